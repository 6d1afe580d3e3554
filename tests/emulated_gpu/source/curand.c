/* libcurand.so.10: random numbers of the right distributions, and not those of a GPU. Each number
 * depends on the seed and its place in the sequence only. */
#include "libraries.h"
#include <math.h>

enum { SUCCESS = 0, FAILED = 201 };

typedef struct { CUstream stream; uint64_t seed, place; } generator;

EXPORT int curandGetVersion(int *version) { *version = 10400; return SUCCESS; }
EXPORT int curandCreateGenerator(generator **made, int kind) {
  *made = calloc(1, sizeof(generator));
  (*made)->seed = (uint64_t)kind;
  return SUCCESS;
}
EXPORT int curandDestroyGenerator(generator *g) { free(g); return SUCCESS; }
EXPORT int curandSetStream(generator *g, CUstream stream) { g->stream = stream; return SUCCESS; }
EXPORT int curandSetPseudoRandomGeneratorSeed(generator *g, unsigned long long seed) {
  g->seed = seed;
  g->place = 0;
  return SUCCESS;
}
EXPORT int curandSetGeneratorOffset(generator *g, unsigned long long place) { g->place = place; return SUCCESS; }
EXPORT int curandSetGeneratorOrdering(generator *g, int order) { return SUCCESS; }

/* SplitMix64: Steele, Lea, Flood (2014), Fast Splittable Pseudorandom Number Generators. */
static uint64_t bits(uint64_t seed, uint64_t place) {
  uint64_t z = seed * 0xD1342543DE82EF95u + (place + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
static double uniform(uint64_t seed, uint64_t place) { /* above 0, up to 1 */
  return ((bits(seed, place) >> 11) + 1) * 0x1p-53;
}
static double normal(uint64_t seed, uint64_t place) { /* Box and Muller (1958) */
  double radius = sqrt(-2 * log(uniform(seed, place)));
  return radius * cos(2 * M_PI * uniform(~seed, place));
}
static unsigned poisson(uint64_t seed, uint64_t place, double mean) {
  if (mean > 500) return (unsigned)fmax(0, round(mean + sqrt(mean) * normal(seed, place)));
  double product = 1, limit = exp(-mean);
  unsigned count = 0;
  for (uint64_t k = 1; (product *= uniform(seed + 0x5851F42D4C957F2Du * k, place)) > limit; k++) count++;
  return count;
}

enum { BITS32, BITS64, UNIFORM32, UNIFORM64, NORMAL32, NORMAL64, LOGARITHMIC32, LOGARITHMIC64, POISSON };
typedef struct { int kind; void *output; size_t count; uint64_t seed, place; double mean, deviation; } draw;

static void run_draw(void *work) {
  draw *d = work;
  emulator_open();
  for (size_t k = 0; k < d->count; k++) {
    uint64_t at = d->place + k;
    double gaussian = d->mean + d->deviation * (d->kind >= NORMAL32 && d->kind < POISSON ? normal(d->seed, at) : 0);
    switch (d->kind) {
      case BITS32: ((uint32_t *)d->output)[k] = (uint32_t)(bits(d->seed, at) >> 32); break;
      case BITS64: ((uint64_t *)d->output)[k] = bits(d->seed, at); break;
      case UNIFORM32: ((float *)d->output)[k] = ((bits(d->seed, at) >> 40) + 1) * 0x1p-24f; break;
      case UNIFORM64: ((double *)d->output)[k] = uniform(d->seed, at); break;
      case NORMAL32: ((float *)d->output)[k] = (float)gaussian; break;
      case NORMAL64: ((double *)d->output)[k] = gaussian; break;
      case LOGARITHMIC32: ((float *)d->output)[k] = (float)exp(gaussian); break;
      case LOGARITHMIC64: ((double *)d->output)[k] = exp(gaussian); break;
      default: ((unsigned *)d->output)[k] = poisson(d->seed, at, d->mean);
    }
  }
  emulator_close();
  free(d);
}

static int put_draw(generator *g, int kind, void *output, size_t count, double mean, double deviation) {
  draw d = {kind, output, count, g->seed, g->place, mean, deviation};
  g->place += count;
  return put(g->stream, run_draw, &d, sizeof d) ? FAILED : SUCCESS;
}

#define PLAIN(name, kind, T) \
  EXPORT int curandGenerate##name(generator *g, T *out, size_t n) { return put_draw(g, kind, out, n, 0, 1); }
#define SCALED(name, kind, T) \
  EXPORT int curandGenerate##name(generator *g, T *out, size_t n, T mean, T deviation) { return put_draw(g, kind, out, n, mean, deviation); }
PLAIN(, BITS32, unsigned)
PLAIN(LongLong, BITS64, unsigned long long)
PLAIN(Uniform, UNIFORM32, float)
PLAIN(UniformDouble, UNIFORM64, double)
SCALED(Normal, NORMAL32, float)
SCALED(NormalDouble, NORMAL64, double)
SCALED(LogNormal, LOGARITHMIC32, float)
SCALED(LogNormalDouble, LOGARITHMIC64, double)
EXPORT int curandGeneratePoisson(generator *g, unsigned *out, size_t n, double mean) {
  return put_draw(g, POISSON, out, n, mean, 0);
}
