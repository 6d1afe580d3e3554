/* What the files of the emulated driver share. One lock guards everything: kernels, copies and
 * tables; only one thread of the process is inside at a time. */
#pragma once
#include "cuda_types.h"
#include <pthread.h>
#include <time.h>
#include "options.h"

#define EXPORT __attribute__((visibility("default")))
#define ENTRY(name, arguments) EXPORT CUresult CUDAAPI name arguments;
#include "entry_points.h"
#undef ENTRY

extern pthread_mutex_t everything;
#define LOCK pthread_mutex_lock(&everything)
#define UNLOCK pthread_mutex_unlock(&everything)

typedef struct { unsigned x, y, z; } three;

/* Device memory: one range of host addresses for each device, cut into blocks. */
typedef struct block {
  char *start;
  size_t size; /* in bytes, a multiple of the granularity */
  int used;
  int pooled; /* by cuMemAllocAsync: no other process can open it */
  struct block *next;
} block;

typedef struct stream stream;

typedef struct device {
  int physical; /* number of the card, as NVML counts */
  int instance; /* of that card, counted from 1; 0: the whole card */
  double busy;  /* seconds that its kernels and copies took */
  char *arena;
  block *blocks;
  size_t in_use, peak; /* in bytes */
  uint64_t pool_threshold;
  stream *legacy; /* the null stream */
  int users; /* of the primary context, whose handle is this structure's address */
} device;
extern device devices[MOST_DEVICES];
extern int device_count; /* that are visible to this process */
extern int failure; /* a sticky error, which every later call returns; 0: none */

void set_up(void);
device *current_device(void);
device *device_of_pointer(const void *address); /* NULL: host memory */
block *block_at(const void *address);
int is_page_locked(const void *address);
int release(void *address); /* 0: no allocation begins there */
void open_memory(void);  /* While open, device memory can be read and written (option "protect"). */
void close_memory(void);
void change_imports(int access); /* protection of all imported memory */
block *import_at(const void *address); /* NULL: no imported memory */
int arena_file(void); /* which all devices' memory is in, one after the other */
size_t arena_offset(const void *address);
int now_fails(long *countdown); /* 1 once, when a countdown that somebody set reaches its end */
extern long allocations_until_failure, launches_until_failure, launches_until_loss;

#define NEED_INIT do { if (!device_count) return CUDA_ERROR_NOT_INITIALIZED; } while (0)
#define NEED_DEVICE(number) do { NEED_INIT; if ((number) < 0 || (number) >= device_count) return CUDA_ERROR_INVALID_DEVICE; } while (0)
#define NEED_CONTEXT device *here = current_device(); do { if (!here) return CUDA_ERROR_INVALID_CONTEXT; if (failure) return (CUresult)failure; } while (0)

/* Kernels: host functions that Python hands in. */
#define MOST_ARGUMENTS 120
typedef struct function {
  void (*run)(void **arguments); /* one thread of the kernel */
  int count;                     /* of arguments */
  int barriers;                  /* whether its threads wait for each other */
  int sizes[MOST_ARGUMENTS];     /* in bytes */
  int most_threads;              /* of a block; 0: 1024 */
  char name[512];
} function;
int run_grid(function *function, three grid, three block, void **arguments); /* 0 or an error */

/* Streams: queues of operations, which run when somebody waits for them. */
stream *new_stream(device *where, unsigned flags, int priority);
void drain_device(device *where);
CUresult put_launch(function *function, three grid, three block, CUstream handle, void **arguments);
CUresult put_release(void *address, CUstream handle);
CUresult copy(void *to, const void *from, size_t bytes, CUstream stream, int wait);
CUresult copy_rows(void *to, size_t pitch_to, const void *from, size_t pitch_from, size_t bytes, size_t rows, CUstream stream, int wait);

enum { LAUNCHES, OPERATIONS, ALLOCATIONS, RELEASES, TO_DEVICE, TO_HOST, COUNTERS };
extern EXPORT uint64_t emulator_counts[COUNTERS];
