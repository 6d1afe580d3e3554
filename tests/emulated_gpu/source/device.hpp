// What CUDA C++ gives to CuPy's own kernels, for g++: one thread of a block at a time.
#pragma once
#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

#define __device__
#define __host__
#define __global__ __attribute__((visibility("default")))
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct emulator_three { unsigned x, y, z; };
extern "C" emulator_three emulator_threadIdx, emulator_blockIdx, emulator_blockDim, emulator_gridDim;
extern "C" char *emulator_dynamic_shared;
extern "C" void emulator_barrier(void);
extern "C" void emulator_warp_barrier(unsigned mask);
#define threadIdx emulator_threadIdx
#define blockIdx emulator_blockIdx
#define blockDim emulator_blockDim
#define gridDim emulator_gridDim
static const int warpSize = 32;
static inline void __syncthreads() { emulator_barrier(); }
static inline void __syncwarp(unsigned mask = 0xffffffff) { emulator_warp_barrier(mask); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

using std::min;
using std::max;
using std::abs;
using std::isnan;
using std::isinf;
using std::isfinite;
using std::signbit;
template <class A, class B> static inline auto min(A a, B b) { return b < a ? b : a; }
template <class A, class B> static inline auto max(A a, B b) { return a < b ? b : a; }
/* CUDA's give the number of a number and a NaN. */
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double sinpi(double x) { return sin(M_PI * x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline double cyl_bessel_i0(double x) { return std::cyl_bessel_i(0., fabs(x)); }
static inline double cyl_bessel_i1(double x) { return copysign(std::cyl_bessel_i(1., fabs(x)), x); }
static inline float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0(x); }
static inline float cyl_bessel_i1f(float x) { return (float)cyl_bessel_i1(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1 / a; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <class To, class From> static inline To emulator_bits(From f) { To t; memcpy(&t, &f, sizeof t); return t; }
static inline int __float_as_int(float x) { return emulator_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emulator_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(emulator_bits<unsigned long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)emulator_bits<unsigned long long>(x); }
static inline double __hiloint2double(int h, int l) { return emulator_bits<double>(((unsigned long long)(unsigned)h << 32) | (unsigned)l); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
template <class T> static inline T __ldg(const T *p) { return *p; }
static inline unsigned short __float2half_rn(float x) { return emulator_bits<unsigned short>((_Float16)x); }
static inline float __half2float(unsigned short x) { return (float)emulator_bits<_Float16>(x); }

// Warps: a value goes from lane to lane through memory, between two barriers of the lanes in the mask.
static inline unsigned emulator_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
template <class T> static inline T emulator_exchange(unsigned mask, T value, unsigned from_lane, int width) {
  static T slots[1024];
  unsigned me = emulator_thread(), count = blockDim.x * blockDim.y * blockDim.z;
  slots[me] = value;
  emulator_warp_barrier(mask);
  unsigned from = me / 32 * 32 + from_lane;
  bool valid = from_lane < 32 && from < count && from_lane / width == me % 32 / width;
  T found = valid ? slots[from] : value;
  emulator_warp_barrier(mask);
  return found;
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) { return emulator_exchange(mask, value, (emulator_thread() % 32) ^ other, width); }
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) { return emulator_exchange(mask, value, emulator_thread() % 32 + delta, width); }
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) { return emulator_exchange(mask, value, emulator_thread() % 32 - delta, width); }
template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) { return emulator_exchange(mask, value, emulator_thread() % 32 / width * width + lane % width, width); }

// float16: CuPy declares the class, these are the two conversions that it asks CUDA for.
struct half;
static inline unsigned short __half_as_ushort(const half &x);
static inline half __ushort_as_half(unsigned short x);
#define EMULATOR_HALF \
  static inline unsigned short __half_as_ushort(const half &x) { unsigned short bits; memcpy(&bits, &x, 2); return bits; } \
  static inline half __ushort_as_half(unsigned short bits) { half x; memcpy(&x, &bits, 2); return x; }

// Atomic functions: only one thread runs at a time.
#define EMULATOR_ATOMIC(name, type, formula) \
  static inline type name(type *p, type v) { type old = *p; *p = (formula); return old; }
#define EMULATOR_ATOMICS(type) \
  EMULATOR_ATOMIC(atomicAdd, type, old + v) EMULATOR_ATOMIC(atomicExch, type, v) \
  EMULATOR_ATOMIC(atomicMax, type, old < v ? v : old) EMULATOR_ATOMIC(atomicMin, type, v < old ? v : old)
#define EMULATOR_BITS(type) \
  EMULATOR_ATOMIC(atomicAnd, type, old & v) EMULATOR_ATOMIC(atomicOr, type, old | v) EMULATOR_ATOMIC(atomicXor, type, old ^ v) \
  static inline type atomicCAS(type *p, type c, type v) { type old = *p; if (old == c) *p = v; return old; }
EMULATOR_ATOMICS(int) EMULATOR_ATOMICS(unsigned) EMULATOR_ATOMICS(unsigned long long)
EMULATOR_ATOMIC(atomicAdd, float, old + v) EMULATOR_ATOMIC(atomicAdd, double, old + v) EMULATOR_ATOMIC(atomicExch, float, v)
EMULATOR_BITS(int) EMULATOR_BITS(unsigned) EMULATOR_BITS(unsigned long long) EMULATOR_BITS(unsigned short)
static inline int atomicSub(int *p, int v) { int old = *p; *p -= v; return old; }

// How the driver calls a kernel: with the addresses of its arguments, whose sizes it asks for.
template <class... A, size_t... I>
static inline void emulator_call_each(void (*f)(A...), void **p, std::index_sequence<I...>) { f(*(A *)p[I]...); }
template <class... A> static inline void emulator_call(void (*f)(A...), void **p) { emulator_call_each(f, p, std::index_sequence_for<A...>{}); }
template <class... A> static inline int emulator_sizes(void (*)(A...), int *to) { int n = 0; ((to[n++] = (int)sizeof(A)), ...); return n; }
#define EMULATOR_KERNEL(name, ...) /* the name, and the expression of a kernel */ \
  extern "C" __attribute__((visibility("default"))) void emulator_run_##name(void **p) { emulator_call(&__VA_ARGS__, p); } \
  extern "C" __attribute__((visibility("default"))) int emulator_sizes_##name(int *to) { return emulator_sizes(&__VA_ARGS__, to); }
