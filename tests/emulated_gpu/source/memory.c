/* Device memory, page-locked host memory and pools.
 *
 * Fresh device memory is filled with 0xFF (NaN in floats) and released memory with 0xEE, so that
 * what reads either gets values that no test expects. */
#define _GNU_SOURCE
#include "emulator.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA ((size_t)32 << 30)
#define GRANULARITY 512
static char *arenas;
static int file = -1; /* Without a name, so that nothing is left of it, however the process ends. */
static int opened, protect;

static void make_arenas(void) {
  protect = (int)option("protect", 0);
  file = memfd_create("emulated-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, ARENA * MOST_DEVICES)) perror("memory of the emulated GPU"), abort();
  arenas = mmap(0, ARENA * MOST_DEVICES, protect ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (arenas == MAP_FAILED) perror("memory of the emulated GPU"), abort();
  for (int k = 0; k < MOST_DEVICES; k++) {
    devices[k].arena = arenas + k * ARENA;
    devices[k].blocks = calloc(1, sizeof(block));
    devices[k].blocks->start = devices[k].arena;
    devices[k].blocks->size = ARENA;
  }
}

int arena_file(void) { return file; }
size_t arena_offset(const void *address) { return (char *)address - arenas; }
static void change_protection(int access) {
  mprotect(arenas, ARENA * MOST_DEVICES, access);
  change_imports(access);
}
void open_memory(void) { if (protect && !opened++) change_protection(PROT_READ | PROT_WRITE); }
void close_memory(void) { if (protect && !--opened) change_protection(PROT_NONE); }
/* For Python, which sorts in device memory. */
EXPORT void emulator_open(void) { LOCK; open_memory(); }
EXPORT void emulator_close(void) { close_memory(); UNLOCK; }

static int is_own(const void *address) {
  char *at = (char *)address;
  return arenas && at >= arenas && at < arenas + ARENA * MOST_DEVICES;
}
device *device_of_pointer(const void *address) {
  if (is_own(address)) return &devices[arena_offset(address) / ARENA];
  /* Its own device may not be visible here: it counts as the first one that is. */
  return import_at(address) ? devices : 0;
}

block *block_at(const void *address) {
  if (!is_own(address)) return import_at(address);
  for (block *b = device_of_pointer(address)->blocks; b; b = b->next)
    if (b->used && (char *)address >= b->start && (char *)address < b->start + b->size) return b;
  return 0;
}

static void poison(block *b, int value) {
  open_memory();
  memset(b->start, value, b->size);
  close_memory();
}

static void split(block *b, size_t size) {
  if (b->size == size) return;
  block *rest = calloc(1, sizeof *rest);
  *rest = (block){.start = b->start + size, .size = b->size - size, .next = b->next};
  b->next = rest;
  b->size = size;
}

static void *take(device *where, size_t bytes) {
  if (!arenas) make_arenas();
  size_t size = bytes ? (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY : GRANULARITY;
  if (now_fails(&allocations_until_failure) || where->in_use + size > device_memory()) return 0;
  block *b = where->blocks;
  while (b && (b->used || b->size < size)) b = b->next;
  if (!b) return 0;
  split(b, size);
  b->used = 1;
  b->pooled = 0;
  where->in_use += size;
  if (where->in_use > where->peak) where->peak = where->in_use;
  emulator_counts[ALLOCATIONS]++;
  poison(b, 0xFF);
  return b->start;
}

static void join_free(block *b) {
  for (; b; b = b->next)
    while (!b->used && b->next && !b->next->used) {
      block *gone = b->next;
      b->size += gone->size;
      b->next = gone->next;
      free(gone);
    }
}

/* Of what is released the pages are given back where they are many; they read as zeros then. */
static void give_back(block *b) {
  size_t first = (arena_offset(b->start) + 4095) / 4096 * 4096, end = (arena_offset(b->start) + b->size) / 4096 * 4096;
  fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, end - first);
}

int release(void *address) {
  block *b = block_at(address);
  if (!b || b->start != (char *)address || !is_own(address)) return 0;
  device *where = device_of_pointer(address);
  poison(b, 0xEE);
  b->used = 0;
  where->in_use -= b->size;
  emulator_counts[RELEASES]++;
  if (b->size >= (size_t)64 << 20) give_back(b);
  join_free(where->blocks);
  return 1;
}

EXPORT size_t emulator_in_use(int number) { return devices[number].in_use; }

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  NEED_CONTEXT;
  *total = device_memory();
  *free_bytes = *total - here->in_use;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  NEED_CONTEXT;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  LOCK;
  *address = (CUdeviceptr)take(here, bytes);
  UNLOCK;
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) { return cuMemAlloc_v2(address, bytes); }
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  CUresult error = cuMemAlloc_v2(address, bytes);
  if (!error) block_at((void *)*address)->pooled = 1;
  return error;
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) { return cuMemAllocAsync(address, bytes, stream); }
CUresult cuMemFree_v2(CUdeviceptr address) {
  if (!address) return CUDA_SUCCESS;
  if (failure) return (CUresult)failure;
  LOCK;
  device *where = device_of_pointer((void *)address);
  if (where) drain_device(where); /* It waits for the device, as CUDA's does. */
  int found = release((void *)address);
  UNLOCK;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return put_release((void *)address, stream); }
CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address) {
  LOCK;
  block *b = block_at((void *)address);
  if (b && start) *start = (CUdeviceptr)b->start;
  if (b && bytes) *bytes = b->size;
  UNLOCK;
  return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Page-locked host memory ---------------------------------------------------------------- */
typedef struct locked {
  char *start;
  size_t size;
  int ours; /* allocated here, not registered */
  struct locked *next;
} locked;
static locked *locks;

int is_page_locked(const void *address) {
  for (locked *k = locks; k; k = k->next)
    if ((char *)address >= k->start && (char *)address < k->start + k->size) return 1;
  return 0;
}
static void add_locked(void *address, size_t bytes, int ours) {
  locked *k = calloc(1, sizeof *k);
  *k = (locked){.start = address, .size = bytes, .ours = ours, .next = locks};
  locks = k;
}
static CUresult remove_locked(void *address) {
  CUresult found = CUDA_ERROR_INVALID_VALUE;
  LOCK;
  for (locked **k = &locks; *k; k = &(*k)->next)
    if ((*k)->start == address) {
      locked *gone = *k;
      *k = gone->next;
      if (gone->ours) free(gone->start);
      free(gone);
      found = CUDA_SUCCESS;
      break;
    }
  UNLOCK;
  return found;
}
EXPORT size_t emulator_page_locked(void) {
  size_t bytes = 0;
  LOCK;
  for (locked *k = locks; k; k = k->next) bytes += k->size;
  UNLOCK;
  return bytes;
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  NEED_CONTEXT;
  *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096);
  memset(*address, 0xDD, bytes);
  LOCK;
  add_locked(*address, bytes, 1);
  UNLOCK;
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }
CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  NEED_CONTEXT;
  LOCK;
  add_locked(address, bytes, 0);
  UNLOCK;
  return CUDA_SUCCESS;
}
static CUresult wait_and_remove(void *address) {
  LOCK; /* What still reads or writes it must be done. */
  for (int k = 0; k < device_count; k++) drain_device(&devices[k]);
  CUresult found = remove_locked(address);
  UNLOCK;
  return found;
}
CUresult cuMemFreeHost(void *address) { return wait_and_remove(address); }
CUresult cuMemHostUnregister(void *address) { return wait_and_remove(address); }
CUresult cuMemHostGetFlags(unsigned *flags, void *address) {
  *flags = 0;
  return is_page_locked(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Attributes of pointers ------------------------------------------------------------------ */
enum { POINTER_CONTEXT = 1, POINTER_MEMORY_TYPE, POINTER_DEVICE, POINTER_HOST, POINTER_MANAGED = 8,
       POINTER_ORDINAL, POINTER_RANGE_START = 11, POINTER_RANGE_SIZE };
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  device *where = device_of_pointer((void *)address);
  block *b = block_at((void *)address);
  if (!b && !is_page_locked((void *)address)) return CUDA_ERROR_INVALID_VALUE;
  switch ((int)attribute) {
  case POINTER_CONTEXT: *(CUcontext *)value = (CUcontext)(where ? where : devices); break;
  case POINTER_MEMORY_TYPE: *(unsigned *)value = b ? 2 : 1; break;
  case POINTER_DEVICE: *(CUdeviceptr *)value = address; break;
  case POINTER_HOST: *(void **)value = (void *)address; break;
  case POINTER_MANAGED: *(unsigned *)value = 0; break;
  case POINTER_ORDINAL: *(int *)value = where ? (int)(where - devices) : 0; break;
  case POINTER_RANGE_START: *(CUdeviceptr *)value = b ? (CUdeviceptr)b->start : address; break;
  case POINTER_RANGE_SIZE: *(size_t *)value = b ? b->size : 0; break;
  default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address) {
  for (unsigned k = 0; k < count; k++)
    if (cuPointerGetAttribute(values[k], attributes[k], address)) *(uint64_t *)values[k] = 0;
  return CUDA_SUCCESS;
}

/* ---- Pools: each device has one, whose handle is the device --------------------------------- */
enum { POOL_THRESHOLD = 4, POOL_RESERVED, POOL_RESERVED_PEAK, POOL_USED, POOL_USED_PEAK };
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice number) {
  NEED_DEVICE(number);
  *pool = (CUmemoryPool)&devices[number];
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice number) { return cuDeviceGetDefaultMemPool(pool, number); }
CUresult cuDeviceSetMemPool(CUdevice number, CUmemoryPool pool) { return CUDA_SUCCESS; }
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  device *of = (device *)pool;
  switch ((int)attribute) {
  case POOL_THRESHOLD: *(uint64_t *)value = of->pool_threshold; break;
  case POOL_RESERVED: case POOL_USED: *(uint64_t *)value = of->in_use; break;
  case POOL_RESERVED_PEAK: case POOL_USED_PEAK: *(uint64_t *)value = of->peak; break;
  default: *(int *)value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  device *of = (device *)pool;
  if ((int)attribute == POOL_THRESHOLD) of->pool_threshold = *(uint64_t *)value;
  else if ((int)attribute >= POOL_RESERVED) of->peak = of->in_use;
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) { return CUDA_SUCCESS; }
CUresult cuMemPoolDestroy(CUmemoryPool pool) { return CUDA_SUCCESS; }
