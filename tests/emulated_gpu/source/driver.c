/* Devices, contexts, errors and the table of entry points. */
#define _GNU_SOURCE
#include "emulator.h"
#include <stdio.h>

pthread_mutex_t everything = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
device devices[MOST_DEVICES];
int device_count, failure;
long allocations_until_failure, launches_until_failure, launches_until_loss;
uint64_t emulator_counts[COUNTERS];
static __thread device *current;
device *current_device(void) { return current; }

/* ---- Errors that tests ask for --------------------------------------------------------------- */
int now_fails(long *countdown) { return *countdown > 0 && --*countdown == 0; }
EXPORT void emulator_fail_allocation(long number) { LOCK; allocations_until_failure = number; UNLOCK; }
EXPORT void emulator_fail_launch(long number) { LOCK; launches_until_failure = number; UNLOCK; }
EXPORT void emulator_lose_device(long number) { LOCK; launches_until_loss = number; UNLOCK; }
EXPORT void emulator_set_failure(int error) { LOCK; failure = error; UNLOCK; }

/* What NVML reports of a card: how much of its memory this process has, and how long it computed.
 * Returns whether the card is lost. */
EXPORT int emulator_usage(int physical, size_t *bytes, double *busy) {
  LOCK;
  *bytes = 0;
  *busy = 0;
  for (int k = 0; k < device_count; k++)
    if (devices[k].physical == physical) {
      *bytes += devices[k].in_use;
      *busy += devices[k].busy;
    }
  UNLOCK;
  return failure == CUDA_ERROR_UNKNOWN;
}

/* ---- Devices --------------------------------------------------------------------------------- */
/* The card and instance that one part of CUDA_VISIBLE_DEVICES names; 0: none. */
static int find_device(const char *part, device *found) {
  int first = instances() ? 1 : 0; /* A divided card computes on its first instance. */
  if (!strncmp(part, "GPU-", 4) || !strncmp(part, "MIG-", 4)) {
    int of_instance = *part == 'M';
    for (int k = 0; part[4] && k < physical_devices(); k++)
      for (int i = of_instance; i <= (of_instance ? instances() : 0); i++) {
        char text[37];
        uuid_text(k, i, text);
        if (strncmp(text, part + 4, strlen(part + 4))) continue;
        *found = (device){.physical = k, .instance = i ? i : first};
        return 1;
      }
    return 0;
  }
  char *end;
  long number = strtol(part, &end, 10);
  if (end == part || number < 0 || number >= physical_devices()) return 0;
  *found = (device){.physical = (int)number, .instance = first};
  return 1;
}
/* A process sees one MIG instance, never several. */
static int most_visible(void) { return instances() ? 1 : MOST_DEVICES; }
static int find_visible(void) {
  const char *given = getenv("CUDA_VISIBLE_DEVICES");
  int count = 0;
  if (!given) {
    for (; count < physical_devices() && count < most_visible(); count++)
      devices[count] = (device){.physical = count, .instance = instances() ? 1 : 0};
    return count;
  }
  char text[1024], *rest = text;
  snprintf(text, sizeof text, "%s", given);
  /* The first name that is none ends the list, as CUDA has it. */
  for (char *part = strsep(&rest, ","); part && count < most_visible(); part = strsep(&rest, ","))
    if (!find_device(part, &devices[count])) break;
    else count++;
  return count;
}
void set_up(void) {
  LOCK;
  int count = device_count ? 0 : find_visible();
  if (count) {
    allocations_until_failure = option("oom", 0);
    launches_until_failure = option("fault", 0);
    launches_until_loss = option("lost", 0);
    for (int k = 0; k < count; k++) devices[k].legacy = new_stream(&devices[k], 0, 0);
    device_count = count;
  }
  UNLOCK;
}

CUresult cuInit(unsigned flags) { set_up(); return device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int *version) { *version = DRIVER_VERSION; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { NEED_INIT; *count = device_count; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *number, int ordinal) { NEED_DEVICE(ordinal); *number = ordinal; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, CUdevice number) { NEED_DEVICE(number); snprintf(name, length, "%s%s", DEVICE_NAME, devices[number].instance ? " MIG" : ""); return CUDA_SUCCESS; }
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice number) {
  NEED_DEVICE(number);
  char text[37], *from = text;
  uuid_text(devices[number].physical, devices[number].instance, text);
  for (int k = 0; k < 16; k++, from += 2) {
    unsigned byte = 0;
    from += *from == '-';
    sscanf(from, "%2x", &byte);
    uuid->bytes[k] = (char)byte;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice number) { return cuDeviceGetUuid(uuid, number); }
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice number) { NEED_DEVICE(number); *bytes = device_memory(); return CUDA_SUCCESS; }

/* CUdevice_attribute, and an H100's values; what is not listed is 0. */
static const struct { int attribute, value; } attributes[] = {
  {1, 1024}, {2, 1024}, {3, 1024}, {4, 64},          /* threads of a block, its sides */
  {5, 2147483647}, {6, 65535}, {7, 65535},           /* sides of a grid */
  {8, 49152}, {9, 65536}, {10, 32}, {11, 2147483647}, {12, 65536}, /* shared, constant, warp, pitch, registers */
  {13, 1980000}, {14, 512}, {16, 132}, {19, 1}, {31, 1}, /* kHz, alignment, multiprocessors, mapping, concurrent */
  {32, 1}, {36, 2619000}, {37, 5120}, {38, 52428800}, {39, 2048}, {40, 3}, {41, 1}, /* ECC, memory, L2 */
  {75, 9}, {76, 0}, {78, 1}, {79, 1}, {80, 1}, {81, 233472}, {82, 65536}, {83, 1}, /* sm_90, priorities, caches */
  {90, 1}, {95, 1}, {97, 232448}, {115, 1}, {120, 1}}; /* cooperative, opt-in shared memory, pools */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice number) {
  NEED_DEVICE(number);
  *value = (int)attribute == 33 ? FIRST_BUS + devices[number].physical : 0; /* PCI bus */
  for (size_t k = 0; k < sizeof attributes / sizeof *attributes; k++)
    if (attributes[k].attribute == (int)attribute) *value = attributes[k].value;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char *name, int length, CUdevice number) {
  NEED_DEVICE(number);
  snprintf(name, length, "0000:%02X:00.0", FIRST_BUS + devices[number].physical);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetByPCIBusId(CUdevice *number, const char *name) {
  char text[16];
  for (*number = 0; *number < device_count; ++*number)
    if (!cuDeviceGetPCIBusId(text, sizeof text, *number) && !strcasecmp(text, name)) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice number, CUdevice peer) { *can = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) { *value = 0; return CUDA_SUCCESS; }
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) { return CUDA_ERROR_NOT_SUPPORTED; }

/* ---- Contexts: each device has its primary one, whose handle is the device ------------------ */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice number) {
  NEED_DEVICE(number);
  devices[number].users++;
  *context = (CUcontext)&devices[number];
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) { NEED_DEVICE(number); devices[number].users--; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice number) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *active) {
  NEED_DEVICE(number);
  *flags = 0;
  *active = devices[number].users > 0;
  return CUDA_SUCCESS;
}
#define MOST_PUSHED 32
static __thread device *pushed[MOST_PUSHED];
static __thread int depth;
CUresult cuCtxGetCurrent(CUcontext *context) { NEED_INIT; *context = (CUcontext)current; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { NEED_INIT; current = (device *)context; return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (depth == MOST_PUSHED) return CUDA_ERROR_OUT_OF_MEMORY;
  pushed[depth++] = current;
  current = (device *)context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (context) *context = (CUcontext)current;
  current = depth ? pushed[--depth] : 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *number) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  *number = (CUdevice)(current - devices);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice_v2(CUdevice *number, CUcontext context) {
  if (!context) return cuCtxGetDevice(number);
  *number = (CUdevice)((device *)context - devices);
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  device *where = context ? (device *)context : current;
  if (!where) return CUDA_ERROR_INVALID_CONTEXT;
  LOCK;
  drain_device(where);
  UNLOCK;
  return (CUresult)failure;
}
CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(0); }
CUresult cuCtxGetFlags(unsigned *flags) { *flags = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) { *id = 1 + (unsigned long long)((device *)context - devices); return CUDA_SUCCESS; }
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) { *version = 3020; return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 8 << 20; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return CUDA_SUCCESS; }
CUresult cuCtxGetCacheConfig(CUfunc_cache *config) { *config = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetCacheConfig(CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

/* ---- Names of errors, as CUDA's documentation gives them ------------------------------------- */
static const struct { int code; const char *name, *text; } errors[] = {
  {0, "CUDA_SUCCESS", "no error"},
  {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
  {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
  {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
  {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
  {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
  {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
  {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
  {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {600, "CUDA_ERROR_NOT_READY", "device not ready"},
  {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
  {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
  {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
  {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}};
CUresult cuGetErrorName(CUresult error, const char **text) {
  for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
    if (errors[k].code == (int)error) { *text = errors[k].name; return CUDA_SUCCESS; }
  *text = 0;
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
    if (errors[k].code == (int)error) { *text = errors[k].text; return CUDA_SUCCESS; }
  *text = 0;
  return CUDA_ERROR_INVALID_VALUE;
}

/* ---- The table of entry points --------------------------------------------------------------- */
#define ENTRY(name, arguments) {#name, (void *)name},
static const struct { const char *name; void *address; } entries[] = {
#include "entry_points.h"
};
#undef ENTRY
static void *entry(const char *name, const char *suffix) {
  char full[256];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  for (size_t k = 0; k < sizeof entries / sizeof *entries; k++)
    if (!strcmp(entries[k].name, full)) return entries[k].address;
  return 0;
}
/* Those whose second version takes other arguments; it came with CUDA 13. */
static int changed_in_13(const char *name) { return !strcmp(name, "cuCtxGetDevice") || !strcmp(name, "cuCtxSynchronize"); }

CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
  int first = version < 13000 && changed_in_13(name);
  *found = first ? 0 : entry(name, "_v2");
  if (!*found) *found = entry(name, "");
  if (status) *status = *found ? 0 : 1;
  return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags) { return cuGetProcAddress_v2(name, found, version, flags, 0); }
EXPORT int emulator_entry_points(void) { return sizeof entries / sizeof *entries; }
