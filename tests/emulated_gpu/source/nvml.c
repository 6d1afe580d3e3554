/* libnvidia-ml.so.1: what it reports of the cards that the emulated driver has. What a card is used
 * for is known of this process alone. */
#define _GNU_SOURCE
#include "options.h"
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define NVML(name) EXPORT int name
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15 };

/* The address of an element is a handle: of a card, or of an instance of it, counted from 1. */
static char handles[MOST_DEVICES][1 + MOST_INSTANCES];
static int number_of(void *handle) { return (int)(((char *)handle - handles[0]) / (1 + MOST_INSTANCES)); }
static int instance_of(void *handle) { return (int)(((char *)handle - handles[0]) % (1 + MOST_INSTANCES)); }

static int usage(int card, size_t *bytes, double *busy) {
  int (*ask)(int, size_t *, double *) = (int (*)(int, size_t *, double *))dlsym(RTLD_DEFAULT, "emulator_usage");
  *bytes = 0;
  *busy = 0;
  return ask && ask(card, bytes, busy) ? GPU_IS_LOST : SUCCESS;
}

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
  *card = &handles[number][0];
  return SUCCESS;
}
NVML(nvmlDeviceGetIndex)(void *card, unsigned *number) { *number = (unsigned)number_of(card); return SUCCESS; }
NVML(nvmlDeviceGetUUID)(void *card, char *text, unsigned length) {
  char uuid[37];
  uuid_text(number_of(card), instance_of(card), uuid);
  snprintf(text, length, "%s-%s", instance_of(card) ? "MIG" : "GPU", uuid);
  return SUCCESS;
}
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
  for (int k = 0; k < physical_devices(); k++)
    for (int i = 0; i <= instances(); i++) {
      nvmlDeviceGetUUID(&handles[k][i], uuid, sizeof uuid);
      if (!strcmp(uuid, text)) { *card = &handles[k][i]; return SUCCESS; }
    }
  return NOT_FOUND;
}
NVML(nvmlDeviceGetHandleByPciBusId_v2)(const char *text, void **card) {
  pci info;
  for (int k = 0; k < physical_devices(); k++) {
    nvmlDeviceGetPciInfo_v3(&handles[k][0], &info);
    if (!strcasecmp(info.text, text) || !strcasecmp(info.legacy, text)) { *card = &handles[k][0]; return SUCCESS; }
  }
  return NOT_FOUND;
}
NVML(nvmlDeviceGetName)(void *card, char *text, unsigned length) { snprintf(text, length, DEVICE_NAME); return SUCCESS; }
NVML(nvmlDeviceGetCudaComputeCapability)(void *card, int *major, int *minor) { *major = 9; *minor = 0; return SUCCESS; }
typedef struct { unsigned long long total, free, used; } memory;
NVML(nvmlDeviceGetMemoryInfo)(void *card, memory *found) {
  size_t total = instance_of(card) ? device_memory() : card_memory(), used;
  double busy;
  if (usage(number_of(card), &used, &busy)) return GPU_IS_LOST;
  used += total / 8; /* A context, and what the driver takes. */
  *found = (memory){total, total > used ? total - used : 0, used};
  return SUCCESS;
}
typedef struct { unsigned gpu, memory; } rates;
/* Since it was asked last; a divided card does not say. */
NVML(nvmlDeviceGetUtilizationRates)(void *card, rates *found) {
  static struct { double when, busy; } last[MOST_DEVICES];
  if (instances()) return NOT_SUPPORTED;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double when = now.tv_sec + now.tv_nsec / 1e9, busy;
  size_t bytes;
  int k = number_of(card);
  if (usage(k, &bytes, &busy)) return GPU_IS_LOST;
  double share = when > last[k].when ? 100 * (busy - last[k].busy) / (when - last[k].when) : 0;
  *found = (rates){share > 100 ? 100 : (unsigned)share, share > 100 ? 100 : (unsigned)share};
  last[k].when = when;
  last[k].busy = busy;
  return SUCCESS;
}
NVML(nvmlDeviceGetTemperature)(void *card, int sensor, unsigned *celsius) { *celsius = 41; return SUCCESS; }
NVML(nvmlDeviceGetPowerUsage)(void *card, unsigned *milliwatts) { *milliwatts = 75000; return SUCCESS; }
NVML(nvmlDeviceGetMigMode)(void *card, unsigned *now, unsigned *next) { *now = *next = instances() > 0; return SUCCESS; }
NVML(nvmlDeviceGetMaxMigDeviceCount)(void *card, unsigned *count) { *count = MOST_INSTANCES; return SUCCESS; }
NVML(nvmlDeviceGetMigDeviceHandleByIndex)(void *card, unsigned number, void **instance) {
  if ((int)number >= instances()) return NOT_FOUND;
  *instance = &handles[number_of(card)][1 + number];
  return SUCCESS;
}
NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(void *instance, void **card) {
  if (!instance_of(instance)) return INVALID_ARGUMENT;
  *card = &handles[number_of(instance)][0];
  return SUCCESS;
}
NVML(nvmlDeviceIsMigDeviceHandle)(void *handle, unsigned *is) { *is = instance_of(handle) > 0; return SUCCESS; }
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
