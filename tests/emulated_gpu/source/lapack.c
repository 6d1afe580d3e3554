/* Where LAPACK's functions are in this process, by name. */
#include "emulator.h"
#include <string.h>

enum { MOST = 256 };
static struct { char name[16]; void *address; } table[MOST];
static int filled;

EXPORT void emulator_set_lapack(const char *name, void *address) {
  if (filled == MOST) return;
  strncpy(table[filled].name, name, sizeof table->name - 1);
  table[filled++].address = address;
}
EXPORT void *emulator_lapack(const char *name) {
  for (int k = 0; k < filled; k++)
    if (!strcmp(table[k].name, name)) return table[k].address;
  return NULL;
}
