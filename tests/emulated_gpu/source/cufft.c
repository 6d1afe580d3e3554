/* libcufft.so.12: Fourier transforms of any length and rank, computed in double precision. What CuPy
 * links to besides, for several GPUs, says CUFFT_NOT_SUPPORTED. */
#include "libraries.h"
#include <complex.h>
#include <math.h>
#include <pthread.h>

enum { SUCCESS = 0, NO_PLAN = 1, NO_MEMORY = 2, NO_TYPE = 3, INVALID = 4, FAILED = 6, UNSUPPORTED = 16 };
enum { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, Z2Z = 0x69, D2Z = 0x6a, Z2D = 0x6c };
enum { MOST_AXES = 3, MOST_PLANS = 4096 };
typedef double complex number;

typedef struct {
  long long length[MOST_AXES]; /* of the arrays in memory, the first of which nobody asks for */
  long long step, distance;    /* in elements: along the last axis, and to the next of a batch */
} layout;

typedef struct {
  CUstream stream;
  int rank, type, batch; /* batch 0: not made yet */
  long long n[MOST_AXES];
  layout in, out;
} plan;

static plan *plans[MOST_PLANS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static plan *found(int handle) { return handle > 0 && handle < MOST_PLANS ? plans[handle] : NULL; }

EXPORT int cufftCreate(int *handle) {
  int k = 1;
  pthread_mutex_lock(&lock);
  while (k < MOST_PLANS && plans[k]) k++;
  if (k < MOST_PLANS) plans[*handle = k] = calloc(1, sizeof(plan));
  pthread_mutex_unlock(&lock);
  return k < MOST_PLANS ? SUCCESS : NO_MEMORY;
}
EXPORT int cufftDestroy(int handle) {
  plan *p = found(handle);
  if (!p) return NO_PLAN;
  plans[handle] = NULL;
  free(p);
  return SUCCESS;
}
EXPORT int cufftGetVersion(int *version) { *version = 12000; return SUCCESS; }
EXPORT int cufftSetAutoAllocation(int handle, int on) { return found(handle) ? SUCCESS : NO_PLAN; }
EXPORT int cufftSetWorkArea(int handle, void *area) { return found(handle) ? SUCCESS : NO_PLAN; }
EXPORT int cufftSetStream(int handle, CUstream stream) {
  plan *p = found(handle);
  if (p) p->stream = stream;
  return p ? SUCCESS : NO_PLAN;
}

static layout laid_out(int rank, const long long *n, const int *embed, int step, int distance, int halved) {
  layout made = {.step = 1, .distance = 1};
  for (int k = 0; k < rank; k++) made.length[k] = embed ? embed[k] : n[k];
  if (!embed && halved) made.length[rank - 1] = n[rank - 1] / 2 + 1;
  for (int k = 0; k < rank; k++) made.distance *= made.length[k];
  if (embed) made.step = step, made.distance = distance;
  return made;
}

EXPORT int cufftMakePlanMany(int handle, int rank, int *n, int *in, int in_step, int in_distance,
                             int *out, int out_step, int out_distance, int type, int batch, size_t *size) {
  plan *p = found(handle);
  if (!p) return NO_PLAN;
  if (rank < 1 || rank > MOST_AXES || batch < 1) return INVALID;
  if (type != C2C && type != R2C && type != C2R && type != Z2Z && type != D2Z && type != Z2D) return NO_TYPE;
  p->rank = rank, p->type = type, p->batch = batch;
  for (int k = 0; k < rank; k++)
    if ((p->n[k] = n[k]) < 1) return INVALID;
  p->in = laid_out(rank, p->n, in, in_step, in_distance, type == C2R || type == Z2D);
  p->out = laid_out(rank, p->n, out, out_step, out_distance, type == R2C || type == D2Z);
  *size = 256;
  return SUCCESS;
}
EXPORT int cufftMakePlan1d(int handle, int n, int type, int batch, size_t *size) {
  return cufftMakePlanMany(handle, 1, &n, NULL, 1, 0, NULL, 1, 0, type, batch, size);
}

/* Cooley and Tukey (1965): n numbers `step` apart, by the smallest factor of n. `roots` are the
 * powers of the `n * spread`-th root of 1. */
static void transform(long long n, const number *in, long long step, number *out, const number *roots,
                      long long spread) {
  long long factor = 2;
  while (factor * factor <= n && n % factor) factor++;
  if (n % factor) factor = n;
  long long part = n / factor;
  if (n == 1) {
    *out = *in;
    return;
  }
  if (part == 1) {
    for (long long k = 0; k < n; k++) {
      out[k] = 0;
      for (long long j = 0; j < n; j++) out[k] += in[j * step] * roots[j * k % n * spread];
    }
    return;
  }
  for (long long r = 0; r < factor; r++)
    transform(part, in + r * step, step * factor, out + r * part, roots, spread * factor);
  number *terms = malloc(factor * sizeof(number));
  for (long long k = 0; k < part; k++) {
    for (long long r = 0; r < factor; r++) terms[r] = out[r * part + k];
    for (long long q = 0; q < factor; q++) {
      number sum = 0;
      for (long long r = 0; r < factor; r++) sum += terms[r] * roots[r * (q * part + k) % n * spread];
      out[q * part + k] = sum;
    }
  }
  free(terms);
}

static void transform_axis(number *values, long long n, long long step, long long count, int sign) {
  number *roots = malloc(n * sizeof(number)), *line = malloc(n * sizeof(number));
  for (long long k = 0; k < n; k++) roots[k] = cexp(sign * 2 * M_PI * I * k / n);
  for (long long start = 0; start < count; start++) {
    if (start / step % n) continue; /* not the first of its line */
    transform(n, values + start, step, line, roots, 1);
    for (long long k = 0; k < n; k++) values[start + k * step] = line[k];
  }
  free(roots);
  free(line);
}

/* Where the element of these indices is, in elements from the start of the array. */
static long long place(const layout *in, int rank, const long long *index) {
  long long at = 0;
  for (int k = 0; k < rank; k++) at = (k ? at * in->length[k] : 0) + index[k];
  return at * in->step;
}

static number read_number(int type, const void *from, long long at) {
  switch (type) {
    case C2C: case C2R: return ((const float complex *)from)[at];
    case Z2Z: case Z2D: return ((const double complex *)from)[at];
    case R2C: return ((const float *)from)[at];
    default: return ((const double *)from)[at];
  }
}
static void write_number(int type, void *to, long long at, number value) {
  switch (type) {
    case C2C: case R2C: ((float complex *)to)[at] = (float complex)value; break;
    case Z2Z: case D2Z: ((double complex *)to)[at] = value; break;
    case C2R: ((float *)to)[at] = (float)creal(value); break;
    default: ((double *)to)[at] = creal(value);
  }
}

typedef struct { plan plan; const void *in; void *out; int sign; } execution;

static void run_one(const execution *e, long long batch, number *values, long long count) {
  const plan *p = &e->plan;
  int last = p->rank - 1, half_in = p->type == C2R || p->type == Z2D, half_out = p->type == R2C || p->type == D2Z;
  for (int writes = 0; writes < 2; writes++) {
    for (long long k = 0; k < count; k++) {
      long long index[MOST_AXES], rest = k;
      for (int axis = last; axis >= 0; axis--) index[axis] = rest % p->n[axis], rest /= p->n[axis];
      int beyond = index[last] > p->n[last] / 2;
      if (writes) {
        if (half_out && beyond) continue;
        write_number(p->type, e->out, batch * p->out.distance + place(&p->out, p->rank, index), values[k]);
        continue;
      }
      /* The second half of what becomes real numbers is the first one's mirror. */
      int mirrored = half_in && beyond;
      for (int axis = 0; mirrored && axis <= last; axis++) index[axis] = (p->n[axis] - index[axis]) % p->n[axis];
      number x = read_number(p->type, e->in, batch * p->in.distance + place(&p->in, p->rank, index));
      values[k] = mirrored ? conj(x) : x;
    }
    if (writes) return;
    long long step = 1;
    for (int axis = last; axis >= 0; step *= p->n[axis--]) transform_axis(values, p->n[axis], step, count, e->sign);
  }
}

static void run(void *work) {
  execution *e = work;
  emulator_open();
  long long count = 1;
  for (int k = 0; k < e->plan.rank; k++) count *= e->plan.n[k];
  number *values = malloc(count * sizeof(number));
  for (long long batch = 0; batch < e->plan.batch; batch++) run_one(e, batch, values, count);
  free(values);
  emulator_close();
  free(e);
}

static int execute(int handle, int type, const void *in, void *out, int sign) {
  plan *p = found(handle);
  if (!p || !p->batch || p->type != type) return NO_PLAN;
  execution e = {*p, in, out, sign};
  return put(p->stream, run, &e, sizeof e) ? FAILED : SUCCESS;
}
#define EXECUTE(name, sign)                                                                        \
  EXPORT int cufftExec##name(int handle, void *in, void *out) { return execute(handle, name, in, out, sign); }
EXECUTE(R2C, -1)
EXECUTE(D2Z, -1)
EXECUTE(C2R, 1)
EXECUTE(Z2D, 1)
EXPORT int cufftExecC2C(int handle, void *in, void *out, int sign) { return execute(handle, C2C, in, out, sign); }
EXPORT int cufftExecZ2Z(int handle, void *in, void *out, int sign) { return execute(handle, Z2Z, in, out, sign); }

#define STUB(name) EXPORT int cufftXt##name(void) { return UNSUPPORTED; }
STUB(Exec)
STUB(ExecDescriptorC2C)
STUB(ExecDescriptorZ2Z)
STUB(MakePlanMany)
STUB(Memcpy)
STUB(SetGPUs)
STUB(SetWorkArea)
