/* What GPUSCHED_EMULATED_GPU asks for: "1", or words and name=number, separated by commas. */
#pragma once
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static inline long option(const char *name, long usual) {
  const char *text = getenv("GPUSCHED_EMULATED_GPU");
  size_t length = strlen(name);
  while (text && *text) {
    const char *end = strchr(text, ',');
    size_t size = end ? (size_t)(end - text) : strlen(text);
    if (size >= length && !strncmp(text, name, length)) {
      if (size == length) return 1;
      if (text[length] == '=') return atol(text + length + 1);
    }
    text = end ? end + 1 : 0;
  }
  return usual;
}

#define MOST_DEVICES 8
static inline int physical_devices(void) {
  long count = option("devices", 1);
  return count < 1 ? 1 : count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}
static inline size_t device_memory(void) { return (size_t)option("memory", 8L << 30); }
#define DEVICE_NAME "NVIDIA Emulated H100"
#define UUID_FORMAT "%02x234567-89ab-cdef-0123-456789abcdef" /* Takes 1 + the physical number. */
#define FIRST_BUS 0x17
#define DRIVER_VERSION 13000
