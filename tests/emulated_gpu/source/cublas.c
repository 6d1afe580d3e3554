/* libcublas.so.13: matrix products and dot products, by loops, and systems of equations by LAPACK.
 * Matrices are stored column by column, as in cuBLAS. Everything else that CuPy links to says
 * CUBLAS_STATUS_NOT_SUPPORTED. */
#include "lapack.h"
#include <complex.h>

enum { SUCCESS = 0, INVALID = 7, FAILED = 13, UNSUPPORTED = 15 };
enum { PLAIN, TRANSPOSED, CONJUGATED };
enum { REAL32, REAL64, REAL16, COMPLEX32 = 4, COMPLEX64 = 5 }; /* cudaDataType */

typedef struct { CUstream stream; int on_device, mathematics; } handle;

EXPORT int cublasCreate_v2(handle **made) { *made = calloc(1, sizeof(handle)); return SUCCESS; }
EXPORT int cublasDestroy_v2(handle *h) { free(h); return SUCCESS; }
EXPORT int cublasGetVersion_v2(handle *h, int *version) { *version = 130000; return SUCCESS; }
EXPORT int cublasSetStream_v2(handle *h, CUstream stream) { h->stream = stream; return SUCCESS; }
EXPORT int cublasGetStream_v2(handle *h, CUstream *stream) { *stream = h->stream; return SUCCESS; }
EXPORT int cublasSetPointerMode_v2(handle *h, int mode) { h->on_device = mode; return SUCCESS; }
EXPORT int cublasGetPointerMode_v2(handle *h, int *mode) { *mode = h->on_device; return SUCCESS; }
EXPORT int cublasSetMathMode(handle *h, int mode) { h->mathematics = mode; return SUCCESS; }
EXPORT int cublasGetMathMode(handle *h, int *mode) { *mode = h->mathematics; return SUCCESS; }

/* C = alpha op(A) op(B) + beta C, for each matrix of a batch. */
typedef struct {
  int type, a_form, b_form, m, n, k, lda, ldb, ldc, count, pointers, on_device;
  long long a_step, b_step, c_step; /* in elements, from one matrix of the batch to the next */
  const void *a, *b;                /* or arrays of pointers in device memory */
  void *c;
  const void *alpha, *beta;         /* in device memory */
  double complex alpha_value, beta_value;
} product;

static int size_of(int type) {
  return type == REAL16 ? 2 : type == REAL32 ? 4 : type == COMPLEX64 ? 16 : 8;
}

static double complex read_scalar(int type, const void *at) {
  if (type == REAL64) return *(const double *)at;
  if (type == COMPLEX32) return *(const float complex *)at;
  if (type == COMPLEX64) return *(const double complex *)at;
  return *(const float *)at; /* of half precision too: it is computed in single precision */
}

#define MULTIPLY(name, T, R, conjugate)                                                           \
  static void name(const product *p, const T *a, const T *b, T *c, R alpha, R beta) {             \
    for (int j = 0; j < p->n; j++)                                                                \
      for (int i = 0; i < p->m; i++) {                                                            \
        R sum = 0;                                                                                \
        for (int l = 0; l < p->k; l++) {                                                          \
          R x = a[p->a_form ? l + (size_t)i * p->lda : i + (size_t)l * p->lda];                   \
          R y = b[p->b_form ? j + (size_t)l * p->ldb : l + (size_t)j * p->ldb];                   \
          if (p->a_form == CONJUGATED) x = conjugate(x);                                          \
          if (p->b_form == CONJUGATED) y = conjugate(y);                                          \
          sum += x * y;                                                                           \
        }                                                                                         \
        T *at = c + i + (size_t)j * p->ldc;                                                       \
        *at = beta == 0 ? alpha * sum : alpha * sum + beta * *at;                                 \
      }                                                                                           \
  }
#define SAME(x) (x)
MULTIPLY(multiply16, _Float16, float, SAME)
MULTIPLY(multiply32, float, float, SAME)
MULTIPLY(multiply64, double, double, SAME)
MULTIPLY(multiply32c, float complex, float complex, conjf)
MULTIPLY(multiply64c, double complex, double complex, conj)

static void read_factors(product *p) {
  if (!p->on_device) return;
  p->alpha_value = read_scalar(p->type, p->alpha);
  p->beta_value = read_scalar(p->type, p->beta);
}

static void run_product(void *work) {
  product *p = work;
  emulator_open();
  read_factors(p);
  for (int k = 0; k < p->count; k++) {
    int size = size_of(p->type);
    const char *a = p->pointers ? ((const char *const *)p->a)[k] : (const char *)p->a + k * p->a_step * size;
    const char *b = p->pointers ? ((const char *const *)p->b)[k] : (const char *)p->b + k * p->b_step * size;
    char *c = p->pointers ? ((char *const *)p->c)[k] : (char *)p->c + k * p->c_step * size;
    double complex x = p->alpha_value, y = p->beta_value;
    switch (p->type) {
      case REAL16: multiply16(p, (void *)a, (void *)b, (void *)c, creal(x), creal(y)); break;
      case REAL32: multiply32(p, (void *)a, (void *)b, (void *)c, creal(x), creal(y)); break;
      case REAL64: multiply64(p, (void *)a, (void *)b, (void *)c, creal(x), creal(y)); break;
      case COMPLEX32: multiply32c(p, (void *)a, (void *)b, (void *)c, x, y); break;
      default: multiply64c(p, (void *)a, (void *)b, (void *)c, x, y);
    }
  }
  emulator_close();
  free(p);
}

static int put_product(handle *h, product p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.count < 0) return INVALID;
  p.on_device = h->on_device;
  if (!p.on_device) {
    p.alpha_value = read_scalar(p.type, p.alpha);
    p.beta_value = read_scalar(p.type, p.beta);
  }
  return put(h->stream, run_product, &p, sizeof p) ? FAILED : SUCCESS;
}

static int is_known(int a, int b, int c) {
  return a == b && b == c && (a == REAL16 || a == REAL32 || a == REAL64 || a == COMPLEX32 || a == COMPLEX64);
}

#define SHAPE handle *h, int a_form, int b_form, int m, int n, int k
#define COMMON .a_form = a_form, .b_form = b_form, .m = m, .n = n, .alpha = alpha, .beta = beta, \
               .a = a, .b = b, .c = c, .lda = lda, .ldb = ldb, .ldc = ldc

EXPORT int cublasGemmEx(SHAPE, const void *alpha, const void *a, int a_type, int lda, const void *b,
                        int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                        int compute, int algorithm) {
  if (!is_known(a_type, b_type, c_type)) return UNSUPPORTED;
  return put_product(h, (product){COMMON, .k = k, .type = a_type, .count = 1});
}
EXPORT int cublasSgemmEx(SHAPE, const float *alpha, const void *a, int a_type, int lda, const void *b,
                         int b_type, int ldb, const float *beta, void *c, int c_type, int ldc) {
  return cublasGemmEx(h, a_form, b_form, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, 0, 0);
}
EXPORT int cublasGemmStridedBatchedEx(SHAPE, const void *alpha, const void *a, int a_type, int lda,
                                      long long a_step, const void *b, int b_type, int ldb,
                                      long long b_step, const void *beta, void *c, int c_type,
                                      int ldc, long long c_step, int count, int compute, int algorithm) {
  if (!is_known(a_type, b_type, c_type)) return UNSUPPORTED;
  return put_product(h, (product){COMMON, .k = k, .type = a_type, .count = count, .a_step = a_step,
                                  .b_step = b_step, .c_step = c_step});
}

#define GEMMS(letter, code)                                                                       \
  EXPORT int cublas##letter##gemm_v2(SHAPE, const void *alpha, const void *a, int lda,            \
                                     const void *b, int ldb, const void *beta, void *c, int ldc) { \
    return put_product(h, (product){COMMON, .k = k, .type = code, .count = 1});                           \
  }                                                                                               \
  EXPORT int cublas##letter##gemmStridedBatched(                                                  \
      SHAPE, const void *alpha, const void *a, int lda, long long a_step, const void *b, int ldb, \
      long long b_step, const void *beta, void *c, int ldc, long long c_step, int count) {        \
    return put_product(h, (product){COMMON, .k = k, .type = code, .count = count, .a_step = a_step,       \
                                    .b_step = b_step, .c_step = c_step});                         \
  }                                                                                               \
  EXPORT int cublas##letter##gemmBatched(SHAPE, const void *alpha, const void *a, int lda,        \
                                         const void *b, int ldb, const void *beta, void *c,       \
                                         int ldc, int count) {                                    \
    return put_product(h, (product){COMMON, .k = k, .type = code, .count = count, .pointers = 1});        \
  }
GEMMS(S, REAL32)
GEMMS(D, REAL64)
GEMMS(C, COMPLEX32)
GEMMS(Z, COMPLEX64)

/* y = alpha op(A) x + beta y; and the sum of x y, of conj(x) y. */
typedef struct {
  int type, form, m, n, lda, x_step, y_step, on_device;
  const void *alpha, *beta, *a, *x;
  void *y;
  double complex alpha_value, beta_value;
} vectors;

static double complex read_item(int type, const void *start, long long index) {
  return read_scalar(type, (const char *)start + index * size_of(type));
}
static void write_item(int type, void *start, long long index, double complex value) {
  char *at = (char *)start + index * size_of(type);
  if (type == REAL32) *(float *)at = creal(value);
  else if (type == REAL64) *(double *)at = creal(value);
  else if (type == COMPLEX32) *(float complex *)at = value;
  else *(double complex *)at = value;
}
static long long place(int index, int length, int step) {
  return (long long)(step < 0 ? index - length + 1 : index) * step;
}

/* C = alpha op(A) + beta op(B). */
static void run_sum(void *work) {
  product *p = work;
  emulator_open();
  read_factors(p);
  for (int j = 0; j < p->n; j++)
    for (int i = 0; i < p->m; i++) {
      double complex x = 0, y = 0; /* a factor of 0 says that there may be no matrix */
      if (p->alpha_value != 0) x = read_item(p->type, p->a, p->a_form ? j + (long long)i * p->lda : i + (long long)j * p->lda);
      if (p->beta_value != 0) y = read_item(p->type, p->b, p->b_form ? j + (long long)i * p->ldb : i + (long long)j * p->ldb);
      if (p->a_form == CONJUGATED) x = conj(x);
      if (p->b_form == CONJUGATED) y = conj(y);
      write_item(p->type, p->c, i + (long long)j * p->ldc, p->alpha_value * x + p->beta_value * y);
    }
  emulator_close();
  free(p);
}
#define SUM(letter, code)                                                                         \
  EXPORT int cublas##letter##geam(handle *h, int a_form, int b_form, int m, int n, const void *alpha, \
                                  const void *a, int lda, const void *beta, const void *b, int ldb, \
                                  void *c, int ldc) {                                             \
    product p = {COMMON, .type = code, .on_device = h->on_device};                                \
    if (!p.on_device) {                                                                           \
      p.alpha_value = read_scalar(code, alpha);                                                   \
      p.beta_value = read_scalar(code, beta);                                                     \
    }                                                                                             \
    return put(h->stream, run_sum, &p, sizeof p) ? FAILED : SUCCESS;                              \
  }
SUM(S, REAL32)
SUM(D, REAL64)
SUM(C, COMPLEX32)
SUM(Z, COMPLEX64)

static void run_gemv(void *work) {
  vectors *v = work;
  emulator_open();
  if (v->on_device) {
    v->alpha_value = read_scalar(v->type, v->alpha);
    v->beta_value = read_scalar(v->type, v->beta);
  }
  int rows = v->form ? v->n : v->m, columns = v->form ? v->m : v->n;
  for (int i = 0; i < rows; i++) {
    double complex sum = 0;
    for (int j = 0; j < columns; j++) {
      double complex a = read_item(v->type, v->a, v->form ? j + (long long)i * v->lda : i + (long long)j * v->lda);
      sum += (v->form == CONJUGATED ? conj(a) : a) * read_item(v->type, v->x, place(j, columns, v->x_step));
    }
    long long at = place(i, rows, v->y_step);
    double complex before = v->beta_value == 0 ? 0 : v->beta_value * read_item(v->type, v->y, at);
    write_item(v->type, v->y, at, v->alpha_value * sum + before);
  }
  emulator_close();
  free(v);
}

static void run_dot(void *work) {
  vectors *v = work;
  emulator_open();
  double complex sum = 0;
  for (int i = 0; i < v->n; i++) {
    double complex x = read_item(v->type, v->x, place(i, v->n, v->x_step));
    sum += (v->form == CONJUGATED ? conj(x) : x) * read_item(v->type, v->a, place(i, v->n, v->y_step));
  }
  write_item(v->type, v->y, 0, sum);
  emulator_close();
  free(v);
}

static int put_vectors(handle *h, CUhostFn function, vectors v, int waits) {
  v.on_device = h->on_device;
  if (put(h->stream, function, &v, sizeof v)) return FAILED;
  return waits && !h->on_device && cuStreamSynchronize(h->stream) ? FAILED : SUCCESS;
}

#define GEMV(letter, code)                                                                        \
  EXPORT int cublas##letter##gemv_v2(handle *h, int form, int m, int n, const void *alpha,        \
                                     const void *a, int lda, const void *x, int x_step,           \
                                     const void *beta, void *y, int y_step) {                     \
    vectors v = {.type = code, .form = form, .m = m, .n = n, .alpha = alpha, .beta = beta, .a = a, \
                 .lda = lda, .x = x, .x_step = x_step, .y = y, .y_step = y_step};                 \
    if (!h->on_device) {                                                                          \
      v.alpha_value = read_scalar(code, alpha);                                                   \
      v.beta_value = read_scalar(code, beta);                                                     \
    }                                                                                             \
    return put_vectors(h, run_gemv, v, 0);                                                        \
  }
GEMV(S, REAL32)
GEMV(D, REAL64)
GEMV(C, COMPLEX32)
GEMV(Z, COMPLEX64)

#define DOT(name, code, form_)                                                                    \
  EXPORT int name(handle *h, int n, const void *x, int x_step, const void *y, int y_step,         \
                  void *result) {                                                                 \
    vectors v = {.type = code, .form = form_, .n = n, .x = x, .x_step = x_step, .a = y,           \
                 .y_step = y_step, .y = result};                                                  \
    return put_vectors(h, run_dot, v, 1);                                                         \
  }
DOT(cublasSdot_v2, REAL32, PLAIN)
DOT(cublasDdot_v2, REAL64, PLAIN)
DOT(cublasCdotu_v2, COMPLEX32, PLAIN)
DOT(cublasZdotu_v2, COMPLEX64, PLAIN)
DOT(cublasCdotc_v2, COMPLEX32, CONJUGATED)
DOT(cublasZdotc_v2, COMPLEX64, CONJUGATED)

/* Systems of equations, of one matrix or of several at an array of addresses. */
typedef struct solving {
  void (*run)(struct solving *, char *a, char *b, int number);
  char letter, side, fill, form, diagonal;
  int type, m, n, lda, ldb, count, pointers, on_device;
  const void *alpha; /* in device memory */
  void *a, *b;
  int *pivots, *info;
  double complex alpha_value;
} solving;

static void run_solving(void *work) {
  solving *s = work;
  emulator_open();
  if (s->on_device && s->alpha) s->alpha_value = read_scalar(s->type, s->alpha);
  for (int k = 0; k < s->count; k++)
    s->run(s, s->pointers ? ((char **)s->a)[k] : s->a, s->pointers ? ((char **)s->b)[k] : s->b, k);
  emulator_close();
  free(s);
}
static int put_solving(handle *h, solving s) {
  if (!routine('d', "getrf")) return UNSUPPORTED;
  if (s.m < 0 || s.n < 0 || s.count < 0) return INVALID;
  s.on_device = h->on_device;
  if (s.alpha && !s.on_device) s.alpha_value = read_scalar(s.type, s.alpha);
  return put(h->stream, run_solving, &s, sizeof s) ? FAILED : SUCCESS;
}

static void trsm(solving *s, char *a, char *b, int number) {
  double complex alpha;
  write_item(s->type, &alpha, 0, s->alpha_value);
  routine(s->letter, "trsm")(&s->side, &s->fill, &s->form, &s->diagonal, &s->m, &s->n, &alpha, a, &s->lda, b, &s->ldb);
}
static void getrf(solving *s, char *a, char *b, int number) {
  routine(s->letter, "getrf")(&s->n, &s->n, a, &s->lda, s->pivots + (size_t)number * s->n, s->info + number);
}
static void getrs(solving *s, char *a, char *b, int number) {
  int info;
  routine(s->letter, "getrs")(&s->form, &s->n, &s->m, a, &s->lda, s->pivots + (size_t)number * s->n, b, &s->ldb, &info);
}
static void getri(solving *s, char *a, char *b, int number) {
  int length = s->n * 64;
  void *memory = malloc(length * size_of_letter(s->letter) + 16);
  for (int j = 0; j < s->n; j++) {
    size_t size = size_of_letter(s->letter);
    memcpy(b + (size_t)j * s->ldb * size, a + (size_t)j * s->lda * size, s->n * size);
  }
  routine(s->letter, "getri")(&s->n, b, &s->ldb, s->pivots + (size_t)number * s->n, memory, &length, s->info + number);
  free(memory);
}

#define SOLVE(L, l, code)                                                                         \
  EXPORT int cublas##L##trsm_v2(handle *h, int side, int fill, int form, int diagonal, int m, int n, \
                                const void *alpha, void *a, int lda, void *b, int ldb) {          \
    return put_solving(h, (solving){trsm, l, "LR"[side], "LU"[fill], "NTC"[form], "NU"[diagonal], code, \
                                    m, n, lda, ldb, 1, 0, .alpha = alpha, .a = a, .b = b});       \
  }                                                                                               \
  EXPORT int cublas##L##trsmBatched(handle *h, int side, int fill, int form, int diagonal, int m, int n, \
                                    const void *alpha, void *a, int lda, void *b, int ldb, int count) { \
    return put_solving(h, (solving){trsm, l, "LR"[side], "LU"[fill], "NTC"[form], "NU"[diagonal], code, \
                                    m, n, lda, ldb, count, 1, .alpha = alpha, .a = a, .b = b});   \
  }                                                                                               \
  EXPORT int cublas##L##getrfBatched(handle *h, int n, void *a, int lda, int *pivots, int *info, int count) { \
    if (!pivots) return UNSUPPORTED;                                                              \
    return put_solving(h, (solving){getrf, l, .n = n, .lda = lda, .count = count, .pointers = 1, .a = a, .b = a, .pivots = pivots, .info = info}); \
  }                                                                                               \
  EXPORT int cublas##L##getriBatched(handle *h, int n, void *a, int lda, int *pivots, void *b, int ldb, int *info, int count) { \
    if (!pivots) return UNSUPPORTED;                                                              \
    return put_solving(h, (solving){getri, l, .n = n, .lda = lda, .ldb = ldb, .count = count, .pointers = 1, .a = a, .b = b, .pivots = pivots, .info = info}); \
  }                                                                                               \
  EXPORT int cublas##L##getrsBatched(handle *h, int form, int n, int m, void *a, int lda, int *pivots, void *b, int ldb, int *info, int count) { \
    if (!pivots) return UNSUPPORTED;                                                              \
    *info = 0; /* in host memory: of the arguments */                                             \
    return put_solving(h, (solving){getrs, l, .form = "NTC"[form], .m = m, .n = n, .lda = lda, .ldb = ldb, .count = count, .pointers = 1, .a = a, .b = b, .pivots = pivots}); \
  }
SOLVE(S, 's', REAL32)
SOLVE(D, 'd', REAL64)
SOLVE(C, 'c', COMPLEX32)
SOLVE(Z, 'z', COMPLEX64)

/* What CuPy links to besides. */
#define STUB(name) EXPORT int cublas##name(void) { return UNSUPPORTED; }
#define STUBS(do)                                                                                 \
  do(Caxpy_v2) do(Cdgmm) do(Cgerc_v2) do(Cgeru_v2)  \
  do(Cscal_v2) do(Csscal_v2) do(Csyrk_v2)         \
  do(Dasum_v2) do(Daxpy_v2) do(Ddgmm) do(Dger_v2)   \
  do(Dnrm2_v2) do(Dsbmv_v2) do(Dscal_v2) do(Dsyrk_v2) do(Dtpttr)                \
  do(Dtrttp) do(Dzasum_v2) do(Dznrm2_v2) do(Icamax_v2)              \
  do(Icamin_v2) do(Idamax_v2) do(Idamin_v2) do(Isamax_v2) do(Isamin_v2) do(Izamax_v2)             \
  do(Izamin_v2) do(Sasum_v2) do(Saxpy_v2) do(Scasum_v2) do(Scnrm2_v2) do(Sdgmm)         \
  do(Sger_v2) do(Snrm2_v2) do(Ssbmv_v2)     \
  do(Sscal_v2) do(Ssyrk_v2) do(Stpttr) do(Strttp) do(Zaxpy_v2)      \
  do(Zdgmm) do(Zdscal_v2) do(Zgerc_v2) do(Zgeru_v2)                   \
  do(Zscal_v2) do(Zsyrk_v2) 
STUBS(STUB)
