/* What the emulated cuBLAS and cuRAND share: they put their work into streams as a program does,
 * by the driver's own entry points, so that it runs when somebody waits. */
#pragma once
#include "cuda_types.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ENTRY(name, arguments) extern CUresult CUDAAPI name arguments;
#include "entry_points.h"
#undef ENTRY
extern void emulator_open(void);
extern void emulator_close(void);

/* Have `function` called with a copy of `work`, which it must free, at its turn in a stream. */
static inline int put(CUstream stream, CUhostFn function, const void *work, size_t size) {
  void *copy = malloc(size);
  memcpy(copy, work, size);
  return (int)cuLaunchHostFunc(stream, function, copy);
}
