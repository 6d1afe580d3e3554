/* libcusolver.so.12: factorisations, systems of equations, singular values and eigenvalues of dense
 * matrices, by LAPACK. Everything else that CuPy links to says CUSOLVER_STATUS_NOT_SUPPORTED. */
#include "lapack.h"
#include <complex.h>

enum { SUCCESS = 0, INVALID = 3, FAILED = 6, UNSUPPORTED = 9 };

typedef struct { CUstream stream; } handle;
EXPORT int cusolverDnCreate(handle **made) { *made = calloc(1, sizeof(handle)); return SUCCESS; }
EXPORT int cusolverDnDestroy(handle *h) { free(h); return SUCCESS; }
EXPORT int cusolverDnSetStream(handle *h, CUstream stream) { h->stream = stream; return SUCCESS; }
EXPORT int cusolverDnGetStream(handle *h, CUstream *stream) { *stream = h->stream; return SUCCESS; }
EXPORT int cusolverGetProperty(int which, int *value) { *value = which ? 0 : 12; return SUCCESS; }

/* Options of the methods by Jacobi rotations, which LAPACK's do without. */
#define OPTIONS(name)                                                                              \
  EXPORT int cusolverDnCreate##name(void **made) { *made = calloc(1, 1); return SUCCESS; }         \
  EXPORT int cusolverDnDestroy##name(void *made) { free(made); return SUCCESS; }
OPTIONS(Params)
OPTIONS(GesvdjInfo)
OPTIONS(SyevjInfo)
#define SETTERS(name)                                                                              \
  EXPORT int cusolverDnX##name##SetTolerance(void *options, double value) { return SUCCESS; }      \
  EXPORT int cusolverDnX##name##SetMaxSweeps(void *options, int value) { return SUCCESS; }         \
  EXPORT int cusolverDnX##name##SetSortEig(void *options, int value) { return SUCCESS; }           \
  EXPORT int cusolverDnX##name##GetResidual(handle *h, void *options, double *value) { *value = 0; return SUCCESS; } \
  EXPORT int cusolverDnX##name##GetSweeps(handle *h, void *options, int *value) { *value = 1; return SUCCESS; }
SETTERS(gesvdj)
SETTERS(syevj)

/* One call: of a matrix, of matrices some elements apart, or of matrices at an array of addresses. */
typedef struct call {
  void (*run)(struct call *);
  char letter, left, form, lower; /* the type; and LAPACK's letters for options */
  char u_job, v_job;              /* what is wanted of singular or eigenvectors */
  int m, n, k, lda, ldb, ldc, count, pointers;
  long long a_step, b_step, c_step, s_step; /* in elements */
  char *a, *b, *c, *s;
  int *pivots, *info;
} call;

static void run_call(void *work) {
  call *whole = work;
  emulator_open();
  size_t size = size_of_letter(whole->letter), real = is_complex(whole->letter) ? size / 2 : size;
  for (int k = 0; k < whole->count; k++) {
    call one = *whole;
    if (whole->pointers) {
      one.a = ((char **)whole->a)[k];
      one.b = whole->b ? ((char **)whole->b)[k] : NULL;
    } else {
      one.a += k * whole->a_step * size;
      one.b += k * whole->b_step * size;
      one.c += k * whole->c_step * size;
      one.s += k * whole->s_step * real;
    }
    one.info += k;
    whole->run(&one);
  }
  emulator_close();
  free(whole);
}
static int put_call(handle *h, call c) {
  if (!routine('d', "getrf")) return UNSUPPORTED;
  if (c.m < 0 || c.n < 0 || c.k < 0) return INVALID;
  if (!c.count) c.count = 1;
  return put(h->stream, run_call, &c, sizeof c) ? FAILED : SUCCESS;
}

#define SIDE(side) ((side) ? 'R' : 'L')
#define FILL(fill) ((fill) ? 'U' : 'L')
#define FORM(form) ("NTC"[form])
#define VECTORS(wanted) ((wanted) ? 'V' : 'N')

/* Runs a function of LAPACK's that says how much memory it needs, in a number of its own type. */
#define WITH_MEMORY(c, CALL)                                                                       \
  do {                                                                                             \
    union { float single; double number; double complex both; } asked = {0};                       \
    int length = -1;                                                                               \
    void *memory = &asked;                                                                         \
    CALL;                                                                                          \
    length = (int)((c)->letter == 's' || (c)->letter == 'c' ? asked.single : asked.number);        \
    memory = malloc(length * size_of_letter((c)->letter) + 16);                                    \
    CALL;                                                                                          \
    free(memory);                                                                                  \
  } while (0)

static void getrf(call *c) { routine(c->letter, "getrf")(&c->m, &c->n, c->a, &c->lda, c->pivots, c->info); }
static void getrs(call *c) {
  routine(c->letter, "getrs")(&c->form, &c->n, &c->k, c->a, &c->lda, c->pivots, c->b, &c->ldb, c->info);
}
static void potrf(call *c) { routine(c->letter, "potrf")(&c->lower, &c->n, c->a, &c->lda, c->info); }
static void potrs(call *c) {
  routine(c->letter, "potrs")(&c->lower, &c->n, &c->k, c->a, &c->lda, c->b, &c->ldb, c->info);
}
static void geqrf(call *c) {
  WITH_MEMORY(c, routine(c->letter, "geqrf")(&c->m, &c->n, c->a, &c->lda, c->s, memory, &length, c->info));
}
static void orgqr(call *c) {
  lapack function = routine(c->letter, is_complex(c->letter) ? "ungqr" : "orgqr");
  WITH_MEMORY(c, function(&c->m, &c->n, &c->k, c->a, &c->lda, c->s, memory, &length, c->info));
}
static void ormqr(call *c) {
  lapack function = routine(c->letter, is_complex(c->letter) ? "unmqr" : "ormqr");
  WITH_MEMORY(c, function(&c->left, &c->form, &c->m, &c->n, &c->k, c->a, &c->lda, c->s, c->b, &c->ldb,
                          memory, &length, c->info));
}
static void gesvd(call *c) {
  lapack function = routine(c->letter, "gesvd");
  int least = c->m < c->n ? c->m : c->n;
  void *reals = malloc((5 * (size_t)least + 1) * 8);
  if (is_complex(c->letter))
    WITH_MEMORY(c, function(&c->u_job, &c->v_job, &c->m, &c->n, c->a, &c->lda, c->s, c->b, &c->ldb, c->c,
                            &c->ldc, memory, &length, reals, c->info));
  else
    WITH_MEMORY(c, function(&c->u_job, &c->v_job, &c->m, &c->n, c->a, &c->lda, c->s, c->b, &c->ldb, c->c,
                            &c->ldc, memory, &length, c->info));
  free(reals);
}
/* The same, with the right vectors as columns. */
static void gesvdj(call *c) {
  int least = c->m < c->n ? c->m : c->n, rows = c->v_job == 'A' ? c->n : c->v_job == 'S' ? least : 1;
  size_t size = size_of_letter(c->letter);
  call other = *c;
  other.c = malloc((size_t)rows * (c->n ? c->n : 1) * size);
  other.ldc = rows;
  gesvd(&other);
  for (int j = 0; c->v_job != 'N' && j < c->n; j++)
    for (int i = 0; i < rows; i++) {
      const char *from = other.c + (i + (size_t)j * rows) * size;
      char *to = c->c + (j + (size_t)i * c->ldc) * size;
      if (c->letter == 'c') *(float complex *)to = conjf(*(const float complex *)from);
      else if (c->letter == 'z') *(double complex *)to = conj(*(const double complex *)from);
      else memcpy(to, from, size);
    }
  free(other.c);
}
static void syevd(call *c) {
  char name[] = "syevd";
  size_t n = c->n + 1;
  int many = (int)(3 + 5 * n), real_length = (int)(1 + 5 * n + 2 * n * n);
  int *numbers = malloc(many * sizeof(int));
  double *reals = malloc(real_length * sizeof(double));
  if (is_complex(c->letter)) {
    memcpy(name, "heevd", 5);
    WITH_MEMORY(c, routine(c->letter, name)(&c->u_job, &c->lower, &c->n, c->a, &c->lda, c->s, memory, &length,
                                            reals, &real_length, numbers, &many, c->info));
  } else
    WITH_MEMORY(c, routine(c->letter, name)(&c->u_job, &c->lower, &c->n, c->a, &c->lda, c->s, memory, &length,
                                            numbers, &many, c->info));
  free(numbers);
  free(reals);
}

#define WORK void *work, int length
#define SIZE(name, ...) EXPORT int cusolverDn##name##_bufferSize(handle *h, __VA_ARGS__, int *length) { *length = 1; return SUCCESS; }
#define ENTRY_POINTS(L, l, un, he)                                                                 \
  SIZE(L##getrf, int m, int n, void *a, int lda)                                                   \
  EXPORT int cusolverDn##L##getrf(handle *h, int m, int n, void *a, int lda, void *work, int *pivots, int *info) { \
    if (!pivots) return UNSUPPORTED;                                                               \
    return put_call(h, (call){getrf, l, .m = m, .n = n, .a = a, .lda = lda, .pivots = pivots, .info = info}); \
  }                                                                                                \
  EXPORT int cusolverDn##L##getrs(handle *h, int form, int n, int k, void *a, int lda, int *pivots, void *b, int ldb, int *info) { \
    return put_call(h, (call){getrs, l, .form = FORM(form), .n = n, .k = k, .a = a, .lda = lda, .pivots = pivots, .b = b, .ldb = ldb, .info = info}); \
  }                                                                                                \
  SIZE(L##potrf, int fill, int n, void *a, int lda)                                                \
  EXPORT int cusolverDn##L##potrf(handle *h, int fill, int n, void *a, int lda, WORK, int *info) { \
    return put_call(h, (call){potrf, l, .lower = FILL(fill), .n = n, .a = a, .lda = lda, .info = info}); \
  }                                                                                                \
  EXPORT int cusolverDn##L##potrfBatched(handle *h, int fill, int n, void *a, int lda, int *info, int count) { \
    return put_call(h, (call){potrf, l, .lower = FILL(fill), .n = n, .a = a, .lda = lda, .info = info, .count = count, .pointers = 1}); \
  }                                                                                                \
  EXPORT int cusolverDn##L##potrs(handle *h, int fill, int n, int k, void *a, int lda, void *b, int ldb, int *info) { \
    return put_call(h, (call){potrs, l, .lower = FILL(fill), .n = n, .k = k, .a = a, .lda = lda, .b = b, .ldb = ldb, .info = info}); \
  }                                                                                                \
  EXPORT int cusolverDn##L##potrsBatched(handle *h, int fill, int n, int k, void *a, int lda, void *b, int ldb, int *info, int count) { \
    return put_call(h, (call){potrs, l, .lower = FILL(fill), .n = n, .k = k, .a = a, .lda = lda, .b = b, .ldb = ldb, .info = info, .count = count, .pointers = 1}); \
  }                                                                                                \
  SIZE(L##geqrf, int m, int n, void *a, int lda)                                                   \
  EXPORT int cusolverDn##L##geqrf(handle *h, int m, int n, void *a, int lda, void *tau, WORK, int *info) { \
    return put_call(h, (call){geqrf, l, .m = m, .n = n, .a = a, .lda = lda, .s = tau, .info = info}); \
  }                                                                                                \
  SIZE(L##un##gqr, int m, int n, int k, void *a, int lda, void *tau)                               \
  EXPORT int cusolverDn##L##un##gqr(handle *h, int m, int n, int k, void *a, int lda, void *tau, WORK, int *info) { \
    return put_call(h, (call){orgqr, l, .m = m, .n = n, .k = k, .a = a, .lda = lda, .s = tau, .info = info}); \
  }                                                                                                \
  SIZE(L##un##mqr, int side, int form, int m, int n, int k, void *a, int lda, void *tau, void *c, int ldc) \
  EXPORT int cusolverDn##L##un##mqr(handle *h, int side, int form, int m, int n, int k, void *a, int lda, void *tau, void *c, int ldc, WORK, int *info) { \
    return put_call(h, (call){ormqr, l, .left = SIDE(side), .form = FORM(form), .m = m, .n = n, .k = k, .a = a, .lda = lda, .s = tau, .b = c, .ldb = ldc, .info = info}); \
  }                                                                                                \
  SIZE(L##gesvd, int m, int n)                                                                     \
  EXPORT int cusolverDn##L##gesvd(handle *h, signed char u_job, signed char v_job, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv, WORK, void *reals, int *info) { \
    if (m < n) return INVALID;                                                                     \
    return put_call(h, (call){gesvd, l, .u_job = u_job, .v_job = v_job, .m = m, .n = n, .a = a, .lda = lda, .s = s, .b = u, .ldb = ldu, .c = v, .ldc = ldv, .info = info}); \
  }                                                                                                \
  SIZE(L##gesvdj, int job, int thin, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv) \
  EXPORT int cusolverDn##L##gesvdj(handle *h, int job, int thin, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv, WORK, int *info, void *options) { \
    char wanted = job ? thin ? 'S' : 'A' : 'N';                                                    \
    return put_call(h, (call){gesvdj, l, .u_job = wanted, .v_job = wanted, .m = m, .n = n, .a = a, .lda = lda, .s = s, .b = u, .ldb = ldu, .c = v, .ldc = ldv, .info = info}); \
  }                                                                                                \
  SIZE(L##gesvdjBatched, int job, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv) \
  EXPORT int cusolverDn##L##gesvdjBatched(handle *h, int job, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv, WORK, int *info, void *options, int count) { \
    char wanted = job ? 'A' : 'N';                                                                 \
    return put_call(h, (call){gesvdj, l, .u_job = wanted, .v_job = wanted, .m = m, .n = n, .a = a, .lda = lda, .s = s, .b = u, .ldb = ldu, .c = v, .ldc = ldv, .info = info, .count = count, \
                              .a_step = (long long)lda * n, .s_step = m < n ? m : n, .b_step = (long long)ldu * m, .c_step = (long long)ldv * n}); \
  }                                                                                                \
  SIZE(L##he##d, int job, int fill, int n, void *a, int lda, void *w)                              \
  EXPORT int cusolverDn##L##he##d(handle *h, int job, int fill, int n, void *a, int lda, void *w, WORK, int *info) { \
    return put_call(h, (call){syevd, l, .u_job = VECTORS(job), .lower = FILL(fill), .n = n, .a = a, .lda = lda, .s = w, .info = info}); \
  }                                                                                                \
  SIZE(L##he##j, int job, int fill, int n, void *a, int lda, void *w)                              \
  EXPORT int cusolverDn##L##he##j(handle *h, int job, int fill, int n, void *a, int lda, void *w, WORK, int *info, void *options) { \
    return cusolverDn##L##he##d(h, job, fill, n, a, lda, w, work, length, info);                   \
  }                                                                                                \
  SIZE(L##he##jBatched, int job, int fill, int n, void *a, int lda, void *w)                       \
  EXPORT int cusolverDn##L##he##jBatched(handle *h, int job, int fill, int n, void *a, int lda, void *w, WORK, int *info, void *options, int count) { \
    return put_call(h, (call){syevd, l, .u_job = VECTORS(job), .lower = FILL(fill), .n = n, .a = a, .lda = lda, .s = w, .info = info, .count = count, \
                              .a_step = (long long)lda * n, .s_step = n});                         \
  }
ENTRY_POINTS(S, 's', or, syev)
ENTRY_POINTS(D, 'd', or, syev)
ENTRY_POINTS(C, 'c', un, heev)
ENTRY_POINTS(Z, 'z', un, heev)

EXPORT int cusolverDnXsyevd_bufferSize(handle *h, void *options, int job, int fill, int64_t n, int type, void *a, int64_t lda, int w_type, void *w, int computed, size_t *on_device, size_t *on_host) {
  *on_device = *on_host = 1;
  return SUCCESS;
}
EXPORT int cusolverDnXsyevd(handle *h, void *options, int job, int fill, int64_t n, int type, void *a, int64_t lda, int w_type, void *w, int computed, void *device, size_t on_device, void *host, size_t on_host, int *info) {
  static const char letters[] = {'s', 'd', 0, 0, 'c', 'z'}; /* by cudaDataType */
  if (type < 0 || type > 5 || !letters[type]) return UNSUPPORTED;
  return put_call(h, (call){syevd, letters[type], .u_job = VECTORS(job), .lower = FILL(fill), .n = (int)n, .a = a, .lda = (int)lda, .s = w, .info = info});
}

/* What CuPy links to besides. */
#define STUB(name) EXPORT int cusolver##name(void) { return UNSUPPORTED; }
#define STUB_OF_TWO(name) STUB(name) STUB(name##_bufferSize)
#define STUBS(do)                                                                                  \
  do(SpCcsreigvsi) do(SpCcsrlsvchol) do(SpCcsrlsvqr) do(SpCreate) do(SpDcsreigvsi)                 \
  do(SpDcsrlsvchol) do(SpDcsrlsvqr) do(SpDestroy) do(SpGetStream) do(SpScsreigvsi)                 \
  do(SpScsrlsvchol) do(SpScsrlsvqr) do(SpSetStream) do(SpZcsreigvsi) do(SpZcsrlsvchol)             \
  do(SpZcsrlsvqr)
#define STUBS_OF_TWO(do)                                                                           \
  do(DnCCgels) do(DnCCgesv) do(DnCKgels) do(DnCKgesv) do(DnCYgels) do(DnCYgesv) do(DnCgebrd)       \
  do(DnCgesvdaStridedBatched) do(DnCsytrf) do(DnDDgels) do(DnDDgesv) do(DnDHgels) do(DnDHgesv)     \
  do(DnDSgels) do(DnDSgesv) do(DnDXgels) do(DnDXgesv) do(DnDgebrd) do(DnDgesvdaStridedBatched)     \
  do(DnDsytrf) do(DnSHgels) do(DnSHgesv) do(DnSSgels) do(DnSSgesv) do(DnSXgels) do(DnSXgesv)       \
  do(DnSgebrd) do(DnSgesvdaStridedBatched) do(DnSsytrf) do(DnZCgels) do(DnZCgesv) do(DnZKgels)     \
  do(DnZKgesv) do(DnZYgels) do(DnZYgesv) do(DnZZgels) do(DnZZgesv) do(DnZgebrd)                    \
  do(DnZgesvdaStridedBatched) do(DnZsytrf)
STUBS(STUB)
STUBS_OF_TWO(STUB_OF_TWO)
