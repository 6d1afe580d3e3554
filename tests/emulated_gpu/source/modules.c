/* Modules and their functions. What an image holds, and how it runs here, is Python's to say. */
#include "emulator.h"

typedef int (*loader)(const void *image, int *number);
typedef int (*finder)(int number, const char *name, function *found);
static loader load_image;
static finder find_function;
EXPORT void emulator_set_resolver(loader load, finder find) {
  load_image = load;
  find_function = find;
}

static CUresult load(void **handle, const void *image) {
  int number = 0;
  int error = load_image ? load_image(image, &number) : CUDA_ERROR_NOT_SUPPORTED;
  *handle = (void *)(intptr_t)(number + 1); /* Never NULL. */
  return (CUresult)error;
}
static CUresult find(void **handle, void *module, const char *name) {
  function *found = calloc(1, sizeof *found);
  int error = find_function((int)(intptr_t)module - 1, name, found);
  strncpy(found->name, name, sizeof found->name - 1);
  *handle = found;
  return (CUresult)error;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) { NEED_CONTEXT; return load((void **)module, image); }
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) { NEED_CONTEXT; return load((void **)module, image); }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) { NEED_CONTEXT; return find((void **)function, module, name); }
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) { return CUDA_ERROR_NOT_FOUND; }
CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) { *mode = 2; return CUDA_SUCCESS; } /* lazy */
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values, unsigned count, CUlibraryOption *library_options, void **library_values, unsigned library_count) {
  NEED_INIT;
  return load((void **)library, image);
}
CUresult cuLibraryUnload(CUlibrary library) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) { return find((void **)kernel, library, name); }
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) { NEED_CONTEXT; *module = (CUmodule)library; return CUDA_SUCCESS; }
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) { NEED_CONTEXT; *function = (CUfunction)kernel; return CUDA_SUCCESS; }

enum { MOST_THREADS_PER_BLOCK = 0, REGISTERS = 4, PTX_VERSION = 5, BINARY_VERSION = 6 };
static CUresult attribute_of(int *value, CUfunction_attribute attribute, const function *f) {
  switch ((int)attribute) {
  case MOST_THREADS_PER_BLOCK: *value = f->most_threads ? f->most_threads : 1024; break;
  case REGISTERS: *value = 32; break;
  case PTX_VERSION: case BINARY_VERSION: *value = 90; break;
  default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) { return attribute_of(value, attribute, (function *)kernel); }
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) { return CUDA_SUCCESS; }
CUresult cuKernelGetName(const char **name, CUkernel kernel) { *name = ((function *)kernel)->name; return CUDA_SUCCESS; }
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
  function *f = (function *)kernel;
  if ((int)index >= f->count) return CUDA_ERROR_INVALID_VALUE;
  size_t end = 0, start = 0;
  for (size_t k = 0; k <= index; k++) {
    size_t aligned = f->sizes[k] >= 8 ? 8 : (size_t)f->sizes[k];
    start = (end + aligned - 1) / aligned * aligned;
    end = start + (size_t)f->sizes[k];
  }
  *offset = start;
  if (size) *size = (size_t)f->sizes[index];
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) { return cuKernelGetParamInfo((CUkernel)function, index, offset, size); }
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) { return attribute_of(value, attribute, (function *)handle); }
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }

#define MOST_SHARED (227u << 10) /* Bytes of dynamic shared memory. */
static CUresult launch(CUfunction handle, three grid, three block, unsigned shared, CUstream stream, void **arguments) {
  NEED_CONTEXT;
  if (shared > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
  return put_launch((function *)handle, grid, block, stream, arguments);
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra) {
  return launch(function, (three){grid_x, grid_y, grid_z}, (three){block_x, block_y, block_z}, shared, stream, arguments);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  three grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  three block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return launch(function, grid, block, config->sharedMemBytes, config->hStream, arguments);
}

#define RESIDENT_THREADS 2048 /* of a multiprocessor */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int block, size_t shared) { *count = RESIDENT_THREADS / (block ? block : 1); return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, CUfunction function, int block, size_t shared, unsigned flags) { return cuOccupancyMaxActiveBlocksPerMultiprocessor(count, function, block, shared); }
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared, int limit) { *grid = 264; *block = 256; return CUDA_SUCCESS; }
