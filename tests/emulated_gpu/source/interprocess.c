/* Memory of other processes' devices (cuIpc*).
 *
 * A handle names a process and an allocation of its. Whoever opens it has the same memory at another
 * address, of which it sees what the owner does: also that the owner releases it. */
#define _GNU_SOURCE
#include "emulator.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
typedef struct { pid_t process; int file; size_t offset, size; } shared; /* what is in a handle */
_Static_assert(sizeof(shared) <= sizeof(CUipcMemHandle), "a handle has room for it");
typedef struct import {
  block block;
  shared shared;
  size_t before; /* bytes from the beginning of the page, where the mapping begins */
  int users;
  struct import *next;
} import;
static import *imports;

void change_imports(int access) {
  for (import *i = imports; i; i = i->next) mprotect(i->block.start - i->before, i->before + i->block.size, access);
}
block *import_at(const void *address) {
  for (import *i = imports; i; i = i->next)
    if ((char *)address >= i->block.start && (char *)address < i->block.start + i->block.size) return &i->block;
  return 0;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  NEED_CONTEXT;
  if (here->instance) return CUDA_ERROR_NOT_SUPPORTED; /* No two MIG instances see each other. */
  LOCK;
  block *b = block_at((void *)address);
  int known = b && !b->pooled && !import_at((void *)address);
  if (known) {
    shared found = {getpid(), arena_file(), arena_offset(b->start), b->size};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &found, sizeof found);
  }
  UNLOCK;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static import *map_shared(shared wanted) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", wanted.process, wanted.file);
  int file = open(name, O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  size_t before = wanted.offset % PAGE;
  int access = option("protect", 0) ? PROT_NONE : PROT_READ | PROT_WRITE;
  char *start = mmap(0, before + wanted.size, access, MAP_SHARED | MAP_NORESERVE, file, wanted.offset - before);
  close(file);
  if (start == MAP_FAILED) return 0;
  import *made = calloc(1, sizeof *made);
  *made = (import){.block = {.start = start + before, .size = wanted.size, .used = 1}, .shared = wanted, .before = before, .next = imports};
  return imports = made;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
  NEED_CONTEXT;
  shared wanted;
  memcpy(&wanted, &handle, sizeof wanted);
  if (wanted.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (here->instance || option("isolated", 0)) return CUDA_ERROR_NOT_SUPPORTED;
  LOCK;
  import *found = imports;
  while (found && memcmp(&found->shared, &wanted, sizeof wanted)) found = found->next;
  if (!found) found = map_shared(wanted);
  if (found) {
    found->users++;
    *address = (CUdeviceptr)found->block.start;
  }
  UNLOCK;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  NEED_CONTEXT;
  LOCK;
  import **at = &imports;
  while (*at && (*at)->block.start != (char *)address) at = &(*at)->next;
  import *found = *at;
  if (found && --found->users == 0) {
    for (int k = 0; k < device_count; k++) drain_device(&devices[k]);
    munmap(found->block.start - found->before, found->before + found->block.size);
    *at = found->next;
    free(found);
  }
  UNLOCK;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
/* How many bytes of other processes' memory are open. */
EXPORT size_t emulator_imported(void) {
  size_t bytes = 0;
  LOCK;
  for (import *i = imports; i; i = i->next) bytes += i->block.size;
  UNLOCK;
  return bytes;
}
