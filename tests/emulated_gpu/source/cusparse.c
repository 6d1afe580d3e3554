/* libcusparse.so.12: conversions between formats of sparse matrices, their sums and products. Each call
 * waits for its stream and is done when it returns. Everything else that CuPy links to says
 * CUSPARSE_STATUS_NOT_SUPPORTED. */
#include "libraries.h"
#include <complex.h>

enum { SUCCESS = 0, INVALID = 3, FAILED = 6, UNSUPPORTED = 10 };
enum { CSR = 1, CSC = 2, COO = 3 };
enum { INDEX32 = 2, INDEX64 = 3 };
enum { REAL32, REAL64, COMPLEX32 = 4, COMPLEX64 = 5 }; /* cudaDataType */
typedef double complex number;

typedef struct { CUstream stream; int on_device; } handle;
EXPORT int cusparseCreate(handle **made) { *made = calloc(1, sizeof(handle)); return SUCCESS; }
EXPORT int cusparseDestroy(handle *h) { free(h); return SUCCESS; }
EXPORT int cusparseGetVersion(handle *h, int *version) { *version = 12600; return SUCCESS; }
EXPORT int cusparseSetStream(handle *h, CUstream stream) { h->stream = stream; return SUCCESS; }
EXPORT int cusparseGetStream(handle *h, CUstream *stream) { *stream = h->stream; return SUCCESS; }
EXPORT int cusparseSetPointerMode(handle *h, int mode) { h->on_device = mode; return SUCCESS; }
EXPORT const char *cusparseGetErrorName(int status) { return status == UNSUPPORTED ? "CUSPARSE_STATUS_NOT_SUPPORTED" : "CUSPARSE_STATUS_EXECUTION_FAILED"; }
EXPORT const char *cusparseGetErrorString(int status) { return status == UNSUPPORTED ? "not in the emulated cuSPARSE" : "execution failed"; }

/* Runs what follows on device memory, once all before it is done. */
#define BEGIN(h) do { if (cuStreamSynchronize((h)->stream)) return FAILED; emulator_open(); } while (0)
#define END(status) do { emulator_close(); return status; } while (0)

static long long read_index(int type, const void *from, long long k) {
  return type == INDEX64 ? ((const int64_t *)from)[k] : ((const int32_t *)from)[k];
}
static void write_index(int type, void *to, long long k, long long value) {
  if (type == INDEX64) ((int64_t *)to)[k] = value;
  else ((int32_t *)to)[k] = (int32_t)value;
}
static number read_value(int type, const void *from, long long k) {
  switch (type) {
    case REAL32: return ((const float *)from)[k];
    case REAL64: return ((const double *)from)[k];
    case COMPLEX32: return ((const float complex *)from)[k];
    default: return ((const double complex *)from)[k];
  }
}
static void write_value(int type, void *to, long long k, number value) {
  switch (type) {
    case REAL32: ((float *)to)[k] = (float)creal(value); break;
    case REAL64: ((double *)to)[k] = creal(value); break;
    case COMPLEX32: ((float complex *)to)[k] = (float complex)value; break;
    default: ((double complex *)to)[k] = value;
  }
}

/* Descriptions of matrices and vectors. */
EXPORT int cusparseCreateMatDescr(void **made) { *made = calloc(1, 1); return SUCCESS; }
EXPORT int cusparseDestroyMatDescr(void *made) { free(made); return SUCCESS; }
EXPORT int cusparseSetMatType(void *made, int kind) { return kind ? UNSUPPORTED : SUCCESS; }
EXPORT int cusparseSetMatIndexBase(void *made, int base) { return base ? UNSUPPORTED : SUCCESS; }

typedef struct {
  int format, type, offset_type, index_type;
  long long rows, columns, count;
  void *offsets, *indices, *values; /* of COO: its rows, its columns */
} sparse;
static int describe(sparse **made, sparse given, int base) {
  if (base || given.type > COMPLEX64 || given.type == 2 || given.type == 3) return UNSUPPORTED;
  *made = malloc(sizeof given);
  **made = given;
  return SUCCESS;
}
#define COMPRESSED(name, kind)                                                                     \
  EXPORT int cusparseCreate##name(sparse **made, int64_t rows, int64_t columns, int64_t count, void *offsets, void *indices, void *values, int offset_type, int index_type, int base, int type) { \
    return describe(made, (sparse){kind, type, offset_type, index_type, rows, columns, count, offsets, indices, values}, base); \
  }
COMPRESSED(Csr, CSR)
COMPRESSED(Csc, CSC)
EXPORT int cusparseCreateCoo(sparse **made, int64_t rows, int64_t columns, int64_t count, void *row, void *column, void *values, int index_type, int base, int type) {
  return describe(made, (sparse){COO, type, index_type, index_type, rows, columns, count, row, column, values}, base);
}
EXPORT int cusparseDestroySpMat(sparse *s) { free(s); return SUCCESS; }
EXPORT int cusparseSpMatGetSize(sparse *s, int64_t *rows, int64_t *columns, int64_t *count) {
  *rows = s->rows, *columns = s->columns, *count = s->count;
  return SUCCESS;
}
EXPORT int cusparseCsrSetPointers(sparse *s, void *offsets, void *indices, void *values) {
  s->offsets = offsets, s->indices = indices, s->values = values;
  return SUCCESS;
}

typedef struct { long long rows, columns, lda; void *values; int type, by_rows; } dense;
EXPORT int cusparseCreateDnMat(dense **made, int64_t rows, int64_t columns, int64_t lda, void *values, int type, int order) {
  *made = malloc(sizeof(dense));
  **made = (dense){rows, columns, lda, values, type, order == 2};
  return SUCCESS;
}
EXPORT int cusparseDestroyDnMat(dense *d) { free(d); return SUCCESS; }
static long long place(const dense *d, long long row, long long column) {
  return d->by_rows ? row * d->lda + column : column * d->lda + row;
}

typedef struct { long long size, count; void *indices, *values; int index_type, type; } vector;
EXPORT int cusparseCreateDnVec(vector **made, int64_t size, void *values, int type) {
  *made = malloc(sizeof(vector));
  **made = (vector){size, size, NULL, values, 0, type};
  return SUCCESS;
}
EXPORT int cusparseCreateSpVec(vector **made, int64_t size, int64_t count, void *indices, void *values, int index_type, int base, int type) {
  *made = malloc(sizeof(vector));
  **made = (vector){size, count, indices, values, index_type, type};
  return base ? UNSUPPORTED : SUCCESS;
}
EXPORT int cusparseDestroyDnVec(vector *v) { free(v); return SUCCESS; }
EXPORT int cusparseDestroySpVec(vector *v) { free(v); return SUCCESS; }
EXPORT int cusparseGather(handle *h, vector *from, vector *to) {
  BEGIN(h);
  for (long long k = 0; k < to->count; k++)
    write_value(to->type, to->values, k, read_value(from->type, from->values, read_index(to->index_type, to->indices, k)));
  END(SUCCESS);
}

/* The element of a sparse matrix that is number k of its slice, a row or (CSC) a column. */
static void element(const sparse *s, long long slice, long long k, long long *row, long long *column) {
  long long index = read_index(s->index_type, s->indices, k);
  *row = s->format == CSC ? index : s->format == COO ? read_index(s->offset_type, s->offsets, k) : slice;
  *column = s->format == CSC ? slice : index;
}
static long long slices(const sparse *s) { return s->format == CSC ? s->columns : s->format == COO ? 1 : s->rows; }
static void range(const sparse *s, long long slice, long long *start, long long *stop) {
  *start = s->format == COO ? 0 : read_index(s->offset_type, s->offsets, slice);
  *stop = s->format == COO ? s->count : read_index(s->offset_type, s->offsets, slice + 1);
}

#define SIZES(name, ...) EXPORT int cusparse##name(handle *h, __VA_ARGS__, size_t *bytes) { *bytes = 256; return SUCCESS; }
SIZES(SparseToDense_bufferSize, sparse *s, dense *d, int algorithm)
EXPORT int cusparseSparseToDense(handle *h, sparse *s, dense *d, int algorithm, void *buffer) {
  BEGIN(h);
  for (long long i = 0; i < d->rows; i++)
    for (long long j = 0; j < d->columns; j++) write_value(d->type, d->values, place(d, i, j), 0);
  for (long long slice = 0; slice < slices(s); slice++) {
    long long start, stop, i, j;
    for (range(s, slice, &start, &stop); start < stop; start++) {
      element(s, slice, start, &i, &j);
      write_value(d->type, d->values, place(d, i, j), read_value(s->type, s->values, start));
    }
  }
  END(SUCCESS);
}

/* Counts the elements of a dense matrix that are not zero, and writes them where `writes`. */
static void compress(const dense *d, sparse *s, int writes) {
  long long outer = s->format == CSC ? d->columns : d->rows, inner = s->format == CSC ? d->rows : d->columns, count = 0;
  for (long long a = 0; a < outer; a++) {
    if (s->format != COO && !writes) write_index(s->offset_type, s->offsets, a, count);
    for (long long b = 0; b < inner; b++) {
      number value = read_value(d->type, d->values, s->format == CSC ? place(d, b, a) : place(d, a, b));
      if (value == 0) continue;
      if (writes) {
        if (s->format == COO) write_index(s->offset_type, s->offsets, count, a);
        write_index(s->index_type, s->indices, count, b);
        write_value(s->type, s->values, count, value);
      }
      count++;
    }
  }
  if (s->format != COO && !writes) write_index(s->offset_type, s->offsets, outer, count);
  s->count = count;
}
SIZES(DenseToSparse_bufferSize, dense *d, sparse *s, int algorithm)
EXPORT int cusparseDenseToSparse_analysis(handle *h, dense *d, sparse *s, int algorithm, void *buffer) {
  BEGIN(h);
  compress(d, s, 0);
  END(SUCCESS);
}
EXPORT int cusparseDenseToSparse_convert(handle *h, dense *d, sparse *s, int algorithm, void *buffer) {
  BEGIN(h);
  compress(d, s, 1);
  END(SUCCESS);
}

/* Orders of elements, with 32-bit indices. */
typedef struct { int first, second, number; } sorted;
static int compare(const void *x, const void *y) {
  const sorted *a = x, *b = y;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  if (a->second != b->second) return a->second < b->second ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number; /* which keeps equal ones in order */
}
static void sort(int *first, int *second, int *numbers, long long count) {
  sorted *items = malloc((count + 1) * sizeof(sorted));
  int *before = malloc((count + 1) * sizeof(int));
  for (int k = 0; k < count; k++) items[k] = (sorted){first[k], second[k], k};
  if (numbers) memcpy(before, numbers, count * sizeof(int));
  qsort(items, count, sizeof(sorted), compare);
  for (int k = 0; k < count; k++) {
    first[k] = items[k].first;
    second[k] = items[k].second;
    if (numbers) numbers[k] = before[items[k].number];
  }
  free(before);
  free(items);
}
SIZES(Xcoosort_bufferSizeExt, int m, int n, int count, const int *rows, const int *columns)
EXPORT int cusparseXcoosortByRow(handle *h, int m, int n, int count, int *rows, int *columns, int *numbers, void *buffer) {
  BEGIN(h);
  sort(rows, columns, numbers, count);
  END(SUCCESS);
}
EXPORT int cusparseXcoosortByColumn(handle *h, int m, int n, int count, int *rows, int *columns, int *numbers, void *buffer) {
  BEGIN(h);
  sort(columns, rows, numbers, count);
  END(SUCCESS);
}
EXPORT int cusparseCreateIdentityPermutation(handle *h, int count, int *numbers) {
  BEGIN(h);
  for (int k = 0; k < count; k++) numbers[k] = k;
  END(SUCCESS);
}
static int sort_slices(handle *h, int count, int outer, const int *offsets, int *indices, int *numbers) {
  BEGIN(h);
  int *slice = malloc((count + 1) * sizeof(int));
  for (int k = 0; k < outer; k++)
    for (int at = offsets[k]; at < offsets[k + 1]; at++) slice[at] = k;
  sort(slice, indices, numbers, count);
  free(slice);
  END(SUCCESS);
}
SIZES(Xcsrsort_bufferSizeExt, int m, int n, int count, const int *offsets, const int *indices)
SIZES(Xcscsort_bufferSizeExt, int m, int n, int count, const int *offsets, const int *indices)
EXPORT int cusparseXcsrsort(handle *h, int m, int n, int count, void *matrix, const int *offsets, int *indices, int *numbers, void *buffer) {
  return sort_slices(h, count, m, offsets, indices, numbers);
}
EXPORT int cusparseXcscsort(handle *h, int m, int n, int count, void *matrix, const int *offsets, int *indices, int *numbers, void *buffer) {
  return sort_slices(h, count, n, offsets, indices, numbers);
}
EXPORT int cusparseXcoo2csr(handle *h, const int *rows, int count, int m, int *offsets, int base) {
  if (base) return UNSUPPORTED;
  BEGIN(h);
  for (int i = 0, k = 0; i <= m; i++) {
    while (k < count && rows[k] < i) k++;
    offsets[i] = k;
  }
  END(SUCCESS);
}
EXPORT int cusparseXcsr2coo(handle *h, const int *offsets, int count, int m, int *rows, int base) {
  if (base) return UNSUPPORTED;
  BEGIN(h);
  for (int i = 0; i < m; i++)
    for (int k = offsets[i]; k < offsets[i + 1]; k++) rows[k] = i;
  END(SUCCESS);
}
SIZES(Csr2cscEx2_bufferSize, int m, int n, int count, const void *values, const int *offsets, const int *indices, void *to_values, int *to_offsets, int *to_indices, int type, int action, int base, int algorithm)
EXPORT int cusparseCsr2cscEx2(handle *h, int m, int n, int count, const void *values, const int *offsets, const int *indices, void *to_values, int *to_offsets, int *to_indices, int type, int action, int base, int algorithm, void *buffer) {
  if (base) return UNSUPPORTED;
  BEGIN(h);
  int *next = calloc(n + 1, sizeof(int));
  for (int k = 0; k < count; k++) next[indices[k]]++;
  for (int j = 0, at = 0; j <= n; j++) {
    int columns = next[j];
    to_offsets[j] = next[j] = at;
    at += columns;
  }
  for (int i = 0; i < m; i++)
    for (int k = offsets[i]; k < offsets[i + 1]; k++) {
      int at = next[indices[k]]++;
      to_indices[at] = i;
      if (action) write_value(type, to_values, at, read_value(type, values, k));
    }
  free(next);
  END(SUCCESS);
}

/* One row of a result: values by column, and which columns have any. */
typedef struct { number *values; char *there; long long columns; } row;
static row new_row(long long columns) {
  return (row){calloc(columns + 1, sizeof(number)), calloc(columns + 1, 1), columns};
}
static void clear(row *r) {
  memset(r->values, 0, r->columns * sizeof(number));
  memset(r->there, 0, r->columns);
}
static void drop(row *r) { free(r->values); free(r->there); }
static void add_to(row *r, long long column, number value) {
  r->values[column] += value;
  r->there[column] = 1;
}

/* The sum of two matrices; `values` NULL: the offsets alone. */
static int add(int m, int n, number x, const void *a, const int *a_offsets, const int *a_indices, number y,
               const void *b, const int *b_offsets, const int *b_indices, int type, void *values, int *offsets, int *indices) {
  row r = new_row(n);
  int at = 0;
  for (int i = 0; i < m; i++) {
    clear(&r);
    for (int k = a_offsets[i]; k < a_offsets[i + 1]; k++) add_to(&r, a_indices[k], a ? x * read_value(type, a, k) : 0);
    for (int k = b_offsets[i]; k < b_offsets[i + 1]; k++) add_to(&r, b_indices[k], b ? y * read_value(type, b, k) : 0);
    offsets[i] = at;
    for (int j = 0; j < n; j++) {
      if (!r.there[j]) continue;
      if (values) {
        indices[at] = j;
        write_value(type, values, at, r.values[j]);
      }
      at++;
    }
  }
  offsets[m] = at;
  drop(&r);
  return at;
}
EXPORT int cusparseXcsrgeam2Nnz(handle *h, int m, int n, void *of_a, int a_count, const int *a_offsets, const int *a_indices, void *of_b, int b_count, const int *b_offsets, const int *b_indices, void *of_c, int *offsets, int *count, void *buffer) {
  BEGIN(h);
  *count = add(m, n, 1, NULL, a_offsets, a_indices, 1, NULL, b_offsets, b_indices, REAL64, NULL, offsets, NULL);
  END(SUCCESS);
}
#define SUMS(L, type)                                                                              \
  SIZES(L##csrgeam2_bufferSizeExt, int m, int n, const void *x, void *of_a, int a_count, const void *a, const int *a_offsets, const int *a_indices, const void *y, void *of_b, int b_count, const void *b, const int *b_offsets, const int *b_indices, void *of_c, const void *values, const int *offsets, const int *indices) \
  EXPORT int cusparse##L##csrgeam2(handle *h, int m, int n, const void *x, void *of_a, int a_count, const void *a, const int *a_offsets, const int *a_indices, const void *y, void *of_b, int b_count, const void *b, const int *b_offsets, const int *b_indices, void *of_c, void *values, int *offsets, int *indices, void *buffer) { \
    BEGIN(h);                                                                                      \
    add(m, n, read_value(type, x, 0), a, a_offsets, a_indices, read_value(type, y, 0), b, b_offsets, b_indices, type, values, offsets, indices); \
    END(SUCCESS);                                                                                  \
  }
SUMS(S, REAL32)
SUMS(D, REAL64)
SUMS(C, COMPLEX32)
SUMS(Z, COMPLEX64)

/* Products of two matrices in CSR, kept until they are copied to where the caller wants them. */
typedef struct { long long *offsets, *indices; number *values; } product;
#define PRODUCT handle *h, int a_form, int b_form, const void *x, sparse *a, sparse *b, const void *y, sparse *c, int type, int algorithm, product *p
EXPORT int cusparseSpGEMM_createDescr(product **made) { *made = calloc(1, sizeof(product)); return SUCCESS; }
EXPORT int cusparseSpGEMM_destroyDescr(product *p) {
  free(p->offsets), free(p->indices), free(p->values), free(p);
  return SUCCESS;
}
EXPORT int cusparseSpGEMM_workEstimation(PRODUCT, size_t *bytes, void *buffer) { *bytes = 256; return SUCCESS; }
EXPORT int cusparseSpGEMM_compute(PRODUCT, size_t *bytes, void *buffer) {
  if (a_form || b_form || a->format != CSR || b->format != CSR) return UNSUPPORTED;
  if (!buffer) {
    *bytes = 256;
    return SUCCESS;
  }
  BEGIN(h);
  number scale = read_value(type, x, 0);
  row r = new_row(b->columns);
  p->offsets = calloc(a->rows + 1, sizeof *p->offsets);
  long long at = 0, start, stop, first, last;
  for (long long i = 0; i < a->rows; i++) {
    clear(&r);
    for (range(a, i, &start, &stop); start < stop; start++) {
      number value = scale * read_value(a->type, a->values, start);
      for (range(b, read_index(a->index_type, a->indices, start), &first, &last); first < last; first++)
        add_to(&r, read_index(b->index_type, b->indices, first), value * read_value(b->type, b->values, first));
    }
    p->indices = realloc(p->indices, (at + b->columns + 1) * sizeof *p->indices);
    p->values = realloc(p->values, (at + b->columns + 1) * sizeof *p->values);
    p->offsets[i] = at;
    for (long long j = 0; j < b->columns; j++)
      if (r.there[j]) p->indices[at] = j, p->values[at++] = r.values[j];
  }
  c->count = p->offsets[a->rows] = at;
  drop(&r);
  END(SUCCESS);
}
EXPORT int cusparseSpGEMM_copy(PRODUCT) {
  BEGIN(h);
  for (long long i = 0; i <= c->rows; i++) write_index(c->offset_type, c->offsets, i, p->offsets[i]);
  for (long long k = 0; k < c->count; k++) {
    write_index(c->index_type, c->indices, k, p->indices[k]);
    write_value(c->type, c->values, k, p->values[k]);
  }
  END(SUCCESS);
}

/* What CuPy links to besides. */
#define STUB(name) EXPORT int cusparse##name(void) { return UNSUPPORTED; }
#define STUB_OF_FOUR(name) STUB(S##name) STUB(D##name) STUB(C##name) STUB(Z##name)
#define STUBS(do)                                                                                  \
  do(CooGet) do(CreateBsric02Info) do(CreateBsrilu02Info) do(CreateCsric02Info)                    \
  do(CreateCsrilu02Info) do(CsrGet) do(DestroyBsric02Info) do(DestroyBsrilu02Info)                 \
  do(DestroyCsric02Info) do(DestroyCsrilu02Info) do(DnMatGet) do(DnMatGetStridedBatch)             \
  do(DnMatGetValues) do(DnMatSetStridedBatch) do(DnMatSetValues) do(DnVecGet) do(DnVecGetValues)   \
  do(DnVecSetValues) do(SetMatDiagType) do(SetMatFillMode) do(SpMM) do(SpMM_bufferSize) do(SpMV)   \
  do(SpMV_bufferSize) do(SpMatGetFormat) do(SpMatGetIndexBase) do(SpMatGetStridedBatch)            \
  do(SpMatGetValues) do(SpMatSetValues) do(SpVV) do(SpVV_bufferSize) do(SpVecGet)                  \
  do(SpVecGetIndexBase) do(SpVecGetValues) do(SpVecSetValues) do(Xbsric02_zeroPivot)               \
  do(Xbsrilu02_zeroPivot) do(Xcsric02_zeroPivot) do(Xcsrilu02_zeroPivot)
#define STUBS_OF_FOUR(do)                                                                          \
  do(bsric02) do(bsric02_analysis) do(bsric02_bufferSize) do(bsrilu02) do(bsrilu02_analysis)       \
  do(bsrilu02_bufferSize) do(bsrilu02_numericBoost) do(csr2csr_compress) do(csric02)               \
  do(csric02_analysis) do(csric02_bufferSize) do(csrilu02) do(csrilu02_analysis)                   \
  do(csrilu02_bufferSize) do(csrilu02_numericBoost) do(gpsvInterleavedBatch)                       \
  do(gpsvInterleavedBatch_bufferSizeExt) do(gtsv2) do(gtsv2StridedBatch)                           \
  do(gtsv2StridedBatch_bufferSizeExt) do(gtsv2_bufferSizeExt) do(gtsv2_nopivot)                    \
  do(gtsv2_nopivot_bufferSizeExt) do(gtsvInterleavedBatch)                                         \
  do(gtsvInterleavedBatch_bufferSizeExt) do(nnz) do(nnz_compress)
STUBS(STUB)
STUBS_OF_FOUR(STUB_OF_FOUR)
