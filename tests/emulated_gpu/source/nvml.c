/* libnvidia-ml.so.1: what it reports of the cards that the emulated driver has. */
#include "options.h"
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define NVML(name) EXPORT int name
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int cards[MOST_DEVICES]; /* The address of the k-th is the k-th handle. */
static int number_of(void *card) { return (int)((int *)card - cards); }

NVML(nvmlInit_v2)(void) { return SUCCESS; }
NVML(nvmlInitWithFlags)(unsigned flags) { return SUCCESS; }
NVML(nvmlShutdown)(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(int error) {
  return error == NOT_SUPPORTED ? "Not Supported" : error == NOT_FOUND ? "Not Found" : "Invalid Argument";
}
NVML(nvmlSystemGetDriverVersion)(char *text, unsigned length) { snprintf(text, length, "580.0.emulated"); return SUCCESS; }
NVML(nvmlSystemGetNVMLVersion)(char *text, unsigned length) { snprintf(text, length, "13.580.0.emulated"); return SUCCESS; }
NVML(nvmlSystemGetCudaDriverVersion)(int *version) { *version = DRIVER_VERSION; return SUCCESS; }
NVML(nvmlSystemGetCudaDriverVersion_v2)(int *version) { *version = DRIVER_VERSION; return SUCCESS; }

NVML(nvmlDeviceGetCount_v2)(unsigned *count) { *count = (unsigned)physical_devices(); return SUCCESS; }
NVML(nvmlDeviceGetHandleByIndex_v2)(unsigned number, void **card) {
  if ((int)number >= physical_devices()) return INVALID_ARGUMENT;
  *card = &cards[number];
  return SUCCESS;
}
NVML(nvmlDeviceGetIndex)(void *card, unsigned *number) { *number = (unsigned)number_of(card); return SUCCESS; }
NVML(nvmlDeviceGetUUID)(void *card, char *text, unsigned length) { snprintf(text, length, "GPU-" UUID_FORMAT, number_of(card) + 1); return SUCCESS; }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci;
NVML(nvmlDeviceGetPciInfo_v3)(void *card, pci *found) {
  memset(found, 0, sizeof *found);
  found->bus = (unsigned)(FIRST_BUS + number_of(card));
  snprintf(found->text, sizeof found->text, "00000000:%02X:00.0", found->bus);
  snprintf(found->legacy, sizeof found->legacy, "0000:%02X:00.0", found->bus);
  return SUCCESS;
}
NVML(nvmlDeviceGetHandleByUUID)(const char *text, void **card) {
  char uuid[64];
  for (int k = 0; k < physical_devices(); k++) {
    nvmlDeviceGetUUID(&cards[k], uuid, sizeof uuid);
    if (!strcmp(uuid, text)) { *card = &cards[k]; return SUCCESS; }
  }
  return NOT_FOUND;
}
NVML(nvmlDeviceGetHandleByPciBusId_v2)(const char *text, void **card) {
  pci info;
  for (int k = 0; k < physical_devices(); k++) {
    nvmlDeviceGetPciInfo_v3(&cards[k], &info);
    if (!strcasecmp(info.text, text) || !strcasecmp(info.legacy, text)) { *card = &cards[k]; return SUCCESS; }
  }
  return NOT_FOUND;
}
NVML(nvmlDeviceGetName)(void *card, char *text, unsigned length) { snprintf(text, length, DEVICE_NAME); return SUCCESS; }
NVML(nvmlDeviceGetCudaComputeCapability)(void *card, int *major, int *minor) { *major = 9; *minor = 0; return SUCCESS; }
typedef struct { unsigned long long total, free, used; } memory;
NVML(nvmlDeviceGetMemoryInfo)(void *card, memory *found) {
  *found = (memory){device_memory(), device_memory() / 8 * 7, device_memory() / 8};
  return SUCCESS;
}
typedef struct { unsigned gpu, memory; } rates;
NVML(nvmlDeviceGetUtilizationRates)(void *card, rates *found) { *found = (rates){17, 5}; return SUCCESS; }
NVML(nvmlDeviceGetTemperature)(void *card, int sensor, unsigned *celsius) { *celsius = 41; return SUCCESS; }
NVML(nvmlDeviceGetPowerUsage)(void *card, unsigned *milliwatts) { *milliwatts = 75000; return SUCCESS; }
NVML(nvmlDeviceGetMigMode)(void *card, unsigned *now, unsigned *next) { *now = *next = 0; return SUCCESS; }
NVML(nvmlDeviceGetMaxMigDeviceCount)(void *card, unsigned *count) { *count = 7; return SUCCESS; }
NVML(nvmlDeviceGetMigDeviceHandleByIndex)(void *card, unsigned number, void **part) { return NOT_FOUND; }
NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(void *part, void **card) { return INVALID_ARGUMENT; }
NVML(nvmlDeviceIsMigDeviceHandle)(void *card, unsigned *is) { *is = 0; return SUCCESS; }
NVML(nvmlDeviceGetCpuAffinity)(void *card, unsigned count, unsigned long *mask) {
  memset(mask, 0, count * sizeof *mask);
  mask[0] = 3;
  return SUCCESS;
}
NVML(nvmlDeviceGetMemoryAffinity)(void *card, unsigned count, unsigned long *mask, int scope) {
  memset(mask, 0, count * sizeof *mask);
  mask[0] = 1;
  return SUCCESS;
}
NVML(nvmlDeviceGetNvLinkState)(void *card, unsigned link, unsigned *active) { return NOT_SUPPORTED; }
NVML(nvmlDeviceGetComputeRunningProcesses_v3)(void *card, unsigned *count, void *found) { *count = 0; return SUCCESS; }
