/* LAPACK and BLAS for the emulated cuSOLVER and cuBLAS: SciPy's, whose addresses Python hands to the
 * driver's library. Both store matrices column by column, as cuSOLVER does. */
#pragma once
#include "libraries.h"
#include <stdio.h>

extern void *emulator_lapack(const char *name); /* NULL: SciPy was not handed in */
typedef void (*lapack)(); /* LAPACK's functions take addresses only, as many as each likes */

static inline int is_complex(char letter) { return letter == 'c' || letter == 'z'; }
static inline size_t size_of_letter(char letter) {
  return letter == 's' ? 4 : letter == 'z' ? 16 : 8;
}
/* A function for one of the four types, named as LAPACK names it: `letter` is s, d, c or z. */
static inline lapack routine(char letter, const char *name) {
  char full[16];
  snprintf(full, sizeof full, "%c%s", letter, name);
  return (lapack)emulator_lapack(full);
}
