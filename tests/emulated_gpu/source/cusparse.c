/* libcusparse.so.12. */
#include "libraries.h"

enum { SUCCESS = 0, INVALID = 3, FAILED = 6, UNSUPPORTED = 10 };

typedef struct { CUstream stream; int on_device; } handle;
EXPORT int cusparseCreate(handle **made) { *made = calloc(1, sizeof(handle)); return SUCCESS; }
EXPORT int cusparseDestroy(handle *h) { free(h); return SUCCESS; }
EXPORT int cusparseGetVersion(handle *h, int *version) { *version = 12600; return SUCCESS; }
EXPORT int cusparseSetStream(handle *h, CUstream stream) { h->stream = stream; return SUCCESS; }
EXPORT int cusparseGetStream(handle *h, CUstream *stream) { *stream = h->stream; return SUCCESS; }
EXPORT int cusparseSetPointerMode(handle *h, int mode) { h->on_device = mode; return SUCCESS; }
EXPORT const char *cusparseGetErrorName(int status) { return status == UNSUPPORTED ? "CUSPARSE_STATUS_NOT_SUPPORTED" : "CUSPARSE_STATUS"; }
EXPORT const char *cusparseGetErrorString(int status) { return status == UNSUPPORTED ? "the emulated cuSPARSE lacks it" : "failed"; }

/* What CuPy links to besides. */
#define STUB(name) EXPORT int cusparse##name(void) { return UNSUPPORTED; }
#define STUB_OF_FOUR(name) STUB(S##name) STUB(D##name) STUB(C##name) STUB(Z##name)
#define STUBS(do)                                                                                  \
  do(CooGet) do(CreateBsric02Info) do(CreateBsrilu02Info) do(CreateCoo) do(CreateCsr)              \
  do(CreateCsric02Info) do(CreateCsrilu02Info) do(CreateDnMat) do(CreateDnVec)                     \
  do(CreateIdentityPermutation) do(CreateMatDescr) do(CreateSpVec) do(Csr2cscEx2)                  \
  do(Csr2cscEx2_bufferSize) do(CsrGet) do(CsrSetPointers) do(DestroyBsric02Info)                   \
  do(DestroyBsrilu02Info) do(DestroyCsric02Info) do(DestroyCsrilu02Info) do(DestroyDnMat)          \
  do(DestroyDnVec) do(DestroyMatDescr) do(DestroySpMat) do(DestroySpVec) do(DnMatGet)              \
  do(DnMatGetStridedBatch) do(DnMatGetValues) do(DnMatSetStridedBatch) do(DnMatSetValues)          \
  do(DnVecGet) do(DnVecGetValues) do(DnVecSetValues) do(Gather) do(SetMatDiagType)                 \
  do(SetMatFillMode) do(SetMatIndexBase) do(SetMatType) do(SpGEMM_compute) do(SpGEMM_copy)         \
  do(SpGEMM_createDescr) do(SpGEMM_destroyDescr) do(SpGEMM_workEstimation) do(SpMM)                \
  do(SpMM_bufferSize) do(SpMV) do(SpMV_bufferSize) do(SpMatGetFormat) do(SpMatGetIndexBase)        \
  do(SpMatGetSize) do(SpMatGetStridedBatch) do(SpMatGetValues) do(SpMatSetValues) do(SpVV)         \
  do(SpVV_bufferSize) do(SpVecGet) do(SpVecGetIndexBase) do(SpVecGetValues) do(SpVecSetValues)     \
  do(Xbsric02_zeroPivot) do(Xbsrilu02_zeroPivot) do(Xcoo2csr) do(XcoosortByColumn)                 \
  do(XcoosortByRow) do(Xcoosort_bufferSizeExt) do(Xcscsort) do(Xcscsort_bufferSizeExt)             \
  do(Xcsr2coo) do(Xcsrgeam2Nnz) do(Xcsric02_zeroPivot) do(Xcsrilu02_zeroPivot) do(Xcsrsort)        \
  do(Xcsrsort_bufferSizeExt)
#define STUBS_OF_FOUR(do)                                                                          \
  do(bsric02) do(bsric02_analysis) do(bsric02_bufferSize) do(bsrilu02) do(bsrilu02_analysis)       \
  do(bsrilu02_bufferSize) do(bsrilu02_numericBoost) do(csr2csr_compress) do(csrgeam2)              \
  do(csrgeam2_bufferSizeExt) do(csric02) do(csric02_analysis) do(csric02_bufferSize)               \
  do(csrilu02) do(csrilu02_analysis) do(csrilu02_bufferSize) do(csrilu02_numericBoost)             \
  do(gpsvInterleavedBatch) do(gpsvInterleavedBatch_bufferSizeExt) do(gtsv2)                        \
  do(gtsv2StridedBatch) do(gtsv2StridedBatch_bufferSizeExt) do(gtsv2_bufferSizeExt)                \
  do(gtsv2_nopivot) do(gtsv2_nopivot_bufferSizeExt) do(gtsvInterleavedBatch)                       \
  do(gtsvInterleavedBatch_bufferSizeExt) do(nnz) do(nnz_compress)
STUBS(STUB)
STUBS_OF_FOUR(STUB_OF_FOUR)
