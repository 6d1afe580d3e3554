/* Streams, events and copies.
 *
 * A stream is a queue that runs when somebody waits for it, in the order that CUDA promises and no
 * other: a value that is read without waiting has not been written yet. Option "eager" runs at once;
 * "shuffle" has any stream run any number of its operations whenever one is given to another. */
#include "emulator.h"

typedef struct event event;
enum kind { COPY, FILL, LAUNCH, RECORD, WAIT, RELEASE, CALL };
typedef struct operation {
  struct operation *next;
  enum kind kind;
  void *to, *from, *staged;
  size_t bytes, rows, pitch_to, pitch_from; /* of COPY; bytes counts elements in FILL */
  int value, width;                         /* of FILL */
  function *function;
  three grid, block;
  void **arguments;
  event *event;
  uint64_t version;
  CUhostFn call;
  void *data;
} operation;
struct stream {
  device *device;
  operation *head, *tail;
  int blocking, priority, alive, running;
  unsigned flags;
  uint64_t id;
  stream *next;
};
struct event {
  uint64_t recorded, done; /* how many times; each recording is a version */
  stream *stream;
  struct timespec when;
  unsigned flags;
};
static stream *streams;
static uint64_t ids = 1;
static __thread stream *per_thread[MOST_DEVICES];

stream *new_stream(device *where, unsigned flags, int priority) {
  LOCK;
  stream *s = calloc(1, sizeof *s);
  *s = (stream){.device = where, .blocking = !(flags & 1), .priority = priority, .alive = 1, .flags = flags, .id = ids++, .next = streams};
  streams = s;
  UNLOCK;
  return s;
}

#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)
static stream *stream_of(void *handle) {
  device *here = current_device();
  if (here && (!handle || handle == LEGACY)) return here->legacy;
  if (here && handle == PER_THREAD) {
    stream **mine = &per_thread[here - devices];
    return *mine ? *mine : (*mine = new_stream(here, 0, 0));
  }
  for (stream *s = streams; s; s = s->next)
    if (s == handle) return s->alive ? s : 0;
  return 0;
}

/* ---- Execution ------------------------------------------------------------------------------ */
static void drain(stream *s, operation *until);

static void wait_for_version(event *e, uint64_t version) {
  while (e->done < version && e->stream && e->stream->head && !e->stream->running) {
    operation *o = e->stream->head;
    while (o && !(o->kind == RECORD && o->event == e && o->version >= version)) o = o->next;
    if (!o) break;
    drain(e->stream, o);
  }
}

static void run_launch(operation *o) {
  emulator_counts[LAUNCHES]++;
  int error = now_fails(&launches_until_failure) ? CUDA_ERROR_ILLEGAL_ADDRESS
    : now_fails(&launches_until_loss) ? CUDA_ERROR_UNKNOWN : run_grid(o->function, o->grid, o->block, o->arguments);
  if (error) failure = error;
  for (int k = 0; k < o->function->count; k++) free(o->arguments[k]);
  free(o->arguments);
}
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

/* Bytes per second between host and device, and from other processes' devices, at most; 0: as fast as memory is. */
static long copy_rate = -1;
EXPORT void emulator_set_copy_rate(long rate) { LOCK; copy_rate = rate; UNLOCK; }
static void take_time(const operation *o) {
  if (copy_rate < 0) copy_rate = option("copy-rate", 0);
  int imported = import_at(o->to) || import_at(o->from);
  if (!copy_rate || (!device_of_pointer(o->to) == !device_of_pointer(o->from) && !imported)) return;
  double wait = (double)o->rows * o->bytes / copy_rate;
  struct timespec pause = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
  while (nanosleep(&pause, &pause)) {}
}
static void run_copy(operation *o) {
  take_time(o);
  for (size_t row = 0; row < o->rows; row++)
    memmove((char *)o->to + row * o->pitch_to, (char *)o->from + row * o->pitch_from, o->bytes);
}
static void run_fill(operation *o) {
  for (size_t k = 0; k < o->bytes; k++) memcpy((char *)o->to + k * o->width, &o->value, o->width);
}
static void run(operation *o) {
  emulator_counts[OPERATIONS]++;
  if (failure && o->kind != RECORD && o->kind != CALL) return; /* A lost context runs nothing. */
  open_memory();
  switch (o->kind) {
  case COPY: run_copy(o); break;
  case FILL: run_fill(o); break;
  case LAUNCH: run_launch(o); break;
  case RECORD: o->event->done = o->version; clock_gettime(CLOCK_MONOTONIC, &o->event->when); break;
  case WAIT: wait_for_version(o->event, o->version); break;
  case RELEASE: release(o->to); break;
  case CALL: o->call(o->data); break;
  }
  close_memory();
}
static void drain(stream *s, operation *until) {
  if (s->running) return;
  s->running = 1;
  for (operation *o = s->head; o; o = s->head) {
    s->head = o->next;
    if (!s->head) s->tail = 0;
    double begun = seconds();
    run(o);
    s->device->busy += seconds() - begun;
    int last = o == until;
    free(o->staged);
    free(o);
    if (last) break;
  }
  s->running = 0;
}
static void drain_blocking(device *where) {
  for (stream *s = streams; s; s = s->next)
    if (s->device == where && s->blocking && s != where->legacy) drain(s, 0);
}
void drain_device(device *where) {
  for (stream *s = streams; s; s = s->next) if (s->device == where) drain(s, 0);
}

static void run_ahead(void) {
  for (stream *s = streams; s; s = s->next) {
    int count = 0;
    for (operation *o = s->head; o; o = o->next) count++;
    unsigned some = shuffled(count + 1);
    operation *until = s->head;
    for (unsigned k = 1; k < some; k++) until = until->next;
    if (some) drain(s, until);
  }
}

/* The null stream and the blocking ones wait for each other; the others wait for nobody. */
static CUresult put(void *handle, operation given, int wait) {
  static int eager = -1, shuffle = -1;
  CUresult error = CUDA_ERROR_INVALID_HANDLE;
  LOCK;
  if (eager < 0) eager = (int)option("eager", 0), shuffle = (int)option("shuffle", 0);
  stream *s = stream_of(handle);
  if (s) {
    operation *o = malloc(sizeof *o);
    *o = given;
    if (s == s->device->legacy) drain_blocking(s->device);
    else if (s->blocking) drain(s->device->legacy, 0);
    *(s->tail ? &s->tail->next : &s->head) = o;
    s->tail = o;
    if (shuffle) run_ahead();
    if (wait || eager) drain(s, 0);
    error = (CUresult)(wait ? failure : 0);
  }
  UNLOCK;
  return error;
}
CUresult put_release(void *address, CUstream handle) { return put(handle, (operation){.kind = RELEASE, .to = address}, 0); }

EXPORT int emulator_pending(void) {
  int count = 0;
  LOCK;
  for (stream *s = streams; s; s = s->next)
    for (operation *o = s->head; o; o = o->next) count++;
  UNLOCK;
  return count;
}

static CUresult check_launch(function *f, three grid, three block) {
  if (!f || !f->run) return CUDA_ERROR_INVALID_HANDLE;
  size_t threads = (size_t)block.x * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || !threads) return CUDA_ERROR_INVALID_VALUE;
  if (threads > 1024 || block.z > 64) return CUDA_ERROR_INVALID_VALUE;
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (f->most_threads && threads > (size_t)f->most_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}
CUresult put_launch(function *f, three grid, three block, CUstream handle, void **arguments) {
  CUresult error = check_launch(f, grid, block);
  if (error) return error;
  operation o = {.kind = LAUNCH, .function = f, .grid = grid, .block = block};
  o.arguments = calloc(f->count + 1, sizeof(void *));
  for (int k = 0; k < f->count; k++) {
    o.arguments[k] = aligned_alloc(64, (f->sizes[k] + 63) / 64 * 64);
    memcpy(o.arguments[k], arguments[k], f->sizes[k]);
  }
  return put(handle, o, 0);
}

/* ---- Copies --------------------------------------------------------------------------------- */
static int fits(const void *start, size_t reach) {
  if (!device_of_pointer(start)) return 1;
  block *b = block_at(start);
  return b && (char *)start + reach <= b->start + b->size;
}

/* From device to device: the null stream's copies wait for all that both have been given. */
static void order_peers(const void *to, const void *from, CUstream handle) {
  stream *s = stream_of(handle);
  if (!s || s != s->device->legacy) return;
  drain_device(device_of_pointer(to));
  drain_device(device_of_pointer(from));
}

CUresult copy_rows(void *to, size_t pitch_to, const void *from, size_t pitch_from, size_t bytes, size_t rows, CUstream stream, int wait) {
  if (!bytes || !rows) return wait ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
  operation o = {.kind = COPY, .to = to, .from = (void *)from, .bytes = bytes, .rows = rows, .pitch_to = pitch_to, .pitch_from = pitch_from};
  LOCK;
  CUresult error = CUDA_ERROR_INVALID_VALUE;
  if (fits(to, (rows - 1) * pitch_to + bytes) && fits(from, (rows - 1) * pitch_from + bytes)) {
    int to_device = device_of_pointer(to) != 0, from_device = device_of_pointer(from) != 0;
    emulator_counts[TO_DEVICE] += to_device && !from_device;
    emulator_counts[TO_HOST] += from_device && !to_device;
    if (to_device && !from_device && !is_page_locked(from)) {
      if (rows > 1) wait = 1;
      else if (!wait) { /* Pageable memory is staged before the call returns. */
        o.from = o.staged = malloc(bytes);
        memcpy(o.staged, from, bytes);
      }
    }
    if (!to_device && !is_page_locked(to)) wait = 1;
    if (to_device && from_device && device_of_pointer(to) != device_of_pointer(from)) order_peers(to, from, stream);
    error = put(stream, o, wait);
  }
  UNLOCK;
  return error;
}
CUresult copy(void *to, const void *from, size_t bytes, CUstream stream, int wait) {
  return copy_rows(to, 0, from, 0, bytes, 1, stream, wait);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { NEED_CONTEXT; return copy((void *)to, (void *)from, bytes, 0, 1); }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { NEED_CONTEXT; return copy((void *)to, (void *)from, bytes, stream, 0); }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { NEED_CONTEXT; return copy((void *)to, from, bytes, 0, 1); }
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { NEED_CONTEXT; return copy(to, (void *)from, bytes, 0, 1); }
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { NEED_CONTEXT; return copy((void *)to, (void *)from, bytes, 0, 0); }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) { NEED_CONTEXT; return copy((void *)to, from, bytes, stream, 0); }
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) { NEED_CONTEXT; return copy(to, (void *)from, bytes, stream, 0); }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { NEED_CONTEXT; return copy((void *)to, (void *)from, bytes, stream, 0); }
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext of, size_t bytes) { return cuMemcpy(to, from, bytes); }
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext of, size_t bytes, CUstream stream) { return cuMemcpyAsync(to, from, bytes, stream); }

static CUresult fill(CUdeviceptr to, int value, int width, size_t count, CUstream stream) {
  NEED_CONTEXT;
  if (!count) return CUDA_SUCCESS;
  if (!fits((void *)to, count * width)) return CUDA_ERROR_INVALID_VALUE;
  return put(stream, (operation){.kind = FILL, .to = (void *)to, .value = value, .width = width, .bytes = count}, 0);
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) { return fill(to, value, 1, count, 0); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) { return fill(to, value, 1, count, stream); }
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) { return fill(to, value, 2, count, stream); }
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) { return fill(to, (int)value, 4, count, stream); }

/* ---- Streams -------------------------------------------------------------------------------- */
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  NEED_CONTEXT;
  *stream = (CUstream)new_stream(here, flags, priority);
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CUresult cuStreamDestroy_v2(CUstream handle) {
  LOCK;
  stream *s = stream_of(handle);
  int known = s && s != s->device->legacy;
  if (known) { /* Its structure stays, so that its handle is never another stream's. */
    drain(s, 0);
    s->alive = 0;
  }
  UNLOCK;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuStreamSynchronize(CUstream handle) {
  NEED_CONTEXT;
  LOCK;
  stream *s = stream_of(handle);
  if (s && s == s->device->legacy) drain_blocking(s->device);
  if (s) drain(s, 0);
  UNLOCK;
  return s ? (CUresult)failure : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuStreamQuery(CUstream handle) {
  if (failure) return (CUresult)failure;
  LOCK;
  stream *s = stream_of(handle);
  CUresult found = !s ? CUDA_ERROR_INVALID_HANDLE : s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  UNLOCK;
  return found;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags) {
  event *e = (event *)handle;
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (!e->recorded) return CUDA_SUCCESS;
  return put(stream, (operation){.kind = WAIT, .event = e, .version = e->recorded}, 0);
}
#define NEED_STREAM stream *s = stream_of(handle); if (!s) return CUDA_ERROR_INVALID_HANDLE
CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) { NEED_STREAM; *flags = s->flags; return CUDA_SUCCESS; }
CUresult cuStreamGetPriority(CUstream handle, int *priority) { NEED_STREAM; *priority = s->priority; return CUDA_SUCCESS; }
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) { NEED_STREAM; *context = (CUcontext)s->device; return CUDA_SUCCESS; }
CUresult cuStreamGetDevice(CUstream handle, CUdevice *number) { NEED_STREAM; *number = (CUdevice)(s->device - devices); return CUDA_SUCCESS; }
CUresult cuStreamGetId(CUstream handle, unsigned long long *id) { NEED_STREAM; *id = s->id; return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) { NEED_STREAM; *status = 0; return CUDA_SUCCESS; }
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  return put(stream, (operation){.kind = CALL, .call = function, .data = data}, 0);
}
typedef struct { CUstreamCallback call; CUstream stream; void *data; } callback;
static void call_back(void *given) {
  callback *c = given;
  c->call(c->stream, (CUresult)failure, c->data);
  free(c);
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data, unsigned flags) {
  callback *c = malloc(sizeof *c);
  *c = (callback){function, stream, data};
  return cuLaunchHostFunc(stream, call_back, c);
}

/* ---- Events --------------------------------------------------------------------------------- */
#define WITHOUT_TIMING 2
CUresult cuEventCreate(CUevent *handle, unsigned flags) {
  NEED_CONTEXT;
  event *e = calloc(1, sizeof *e);
  e->flags = flags;
  *handle = (CUevent)e;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent handle) { return CUDA_SUCCESS; } /* Operations may still name it. */
CUresult cuEventRecord(CUevent handle, CUstream stream) {
  event *e = (event *)handle;
  if (failure) return (CUresult)failure;
  LOCK;
  e->stream = stream_of(stream);
  CUresult error = put(stream, (operation){.kind = RECORD, .event = e, .version = ++e->recorded}, 0);
  UNLOCK;
  return error;
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) { return cuEventRecord(event, stream); }
CUresult cuEventSynchronize(CUevent handle) {
  event *e = (event *)handle;
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  LOCK;
  if (e->recorded && e->stream == e->stream->device->legacy) drain_blocking(e->stream->device);
  wait_for_version(e, e->recorded);
  UNLOCK;
  return (CUresult)failure;
}
CUresult cuEventQuery(CUevent handle) {
  event *e = (event *)handle;
  return failure ? (CUresult)failure : e->done >= e->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  event *a = (event *)start, *b = (event *)end;
  if (!a->recorded || !b->recorded || (a->flags | b->flags) & WITHOUT_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  if (a->done < a->recorded || b->done < b->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)((b->when.tv_sec - a->when.tv_sec) * 1e3 + (b->when.tv_nsec - a->when.tv_nsec) / 1e6);
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) { return cuEventElapsedTime(milliseconds, start, end); }
