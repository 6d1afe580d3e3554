/* What GPUSCHED_EMULATED_GPU asks for: "1", or words and name=number, separated by commas. */
#pragma once
#include <stdint.h>
#include <stdio.h>
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

/* Option "shuffle": the next of a row of random numbers below `most`; 0 without the option. */
static inline unsigned shuffled(unsigned most) {
  static long seed = -1;
  static uint64_t state;
  if (seed < 0) state = (uint64_t)(seed = option("shuffle", 0)) * 0x9E3779B97F4A7C15u + 1;
  if (!seed || !most) return 0;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)((state * 0x2545F4914F6CDD1Du >> 33) % most);
}

#define MOST_DEVICES 8
static inline int physical_devices(void) {
  long count = option("devices", 1);
  return count < 1 ? 1 : count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}
/* MIG instances of each card, of equal memory; 0: the cards are not divided. */
#define MOST_INSTANCES 7
static inline int instances(void) {
  long count = option("mig", 0);
  return count < 0 ? 0 : count > MOST_INSTANCES ? MOST_INSTANCES : (int)count;
}
static inline size_t card_memory(void) { return (size_t)option("memory", 8L << 30); }
static inline size_t device_memory(void) { return card_memory() / (instances() ? instances() : 1); }
#define DEVICE_NAME "NVIDIA Emulated H100"
/* Of a card, or of an instance of it, which count from 1; `instance` is 0 for the card. */
static inline void uuid_text(int physical, int instance, char text[37]) {
  snprintf(text, 37, "%02x2345%02x-89ab-cdef-0123-456789abcdef", physical + 1, instance ? instance : 0x67);
}
#define FIRST_BUS 0x17
#define DRIVER_VERSION 13000
