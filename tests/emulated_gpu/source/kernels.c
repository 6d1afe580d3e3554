/* A grid's execution: block after block, and in each all its threads.
 *
 * The threads of a kernel with barriers are fibers, each with a stack of its own. A fiber that
 * reaches a barrier gives way until the threads that the barrier is for have all reached it. */
#define _GNU_SOURCE
#include "emulator.h"
#include <stdio.h>
#include <sys/mman.h>

#define MOST_THREADS 1024
#define WARP 32
#define STACK ((size_t)256 << 10)

/* What kernels read; set before each thread goes on. */
EXPORT three emulator_threadIdx, emulator_blockIdx, emulator_blockDim, emulator_gridDim;
static char shared_memory[1 << 20] __attribute__((aligned(1024)));
EXPORT char *emulator_dynamic_shared = shared_memory;

enum state { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };
typedef struct { void *stack_pointer; enum state state; unsigned mask; } fiber;
static fiber fibers[MOST_THREADS];
static char *stacks;
static void *scheduler;
static int running;
static function *running_function;
static void **running_arguments;

/* Saves the registers that a call keeps and the stack pointer in `from`, goes on at `to`. */
void switch_stack(void **from, void *to);
__asm__(".text\n.globl switch_stack\n.hidden switch_stack\nswitch_stack:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void give_way(enum state state, unsigned mask) {
  fiber *me = &fibers[running];
  me->state = state;
  me->mask = mask;
  switch_stack(&me->stack_pointer, scheduler);
}
EXPORT void emulator_barrier(void) { give_way(AT_BLOCK_BARRIER, 0); }
EXPORT void emulator_warp_barrier(unsigned mask) { give_way(AT_WARP_BARRIER, mask); }

/* float16 for LLVM, which calls these where the processor it compiles for converts none. */
EXPORT float emulator_extendhfsf2(_Float16 x) { return (float)x; }
EXPORT _Float16 emulator_truncsfhf2(float x) { return (_Float16)x; }
EXPORT _Float16 emulator_truncdfhf2(double x) { return (_Float16)x; }

static void run_fiber(void) {
  running_function->run(running_arguments);
  for (;;) give_way(DONE, 0);
}

static void start_fiber(int number) {
  void **top = (void **)(stacks + STACK * (number + 1) - 64);
  *--top = 0;
  *--top = (void *)run_fiber;
  for (int saved = 0; saved < 6; saved++) *--top = 0;
  fibers[number] = (fiber){.stack_pointer = top, .state = READY};
}

static void set_thread(int number, three block) {
  emulator_threadIdx = (three){number % block.x, number / block.x % block.y, number / block.x / block.y};
}

/* Whether all threads that a waiting thread's mask names, and that are not done, wait in the warp. */
static int warp_is_complete(int number, int count) {
  int first = number / WARP * WARP;
  for (int k = first; k < first + WARP && k < count; k++)
    if (fibers[number].mask >> (k - first) & 1 && fibers[k].state != DONE && fibers[k].state != AT_WARP_BARRIER) return 0;
  return 1;
}

static int release_warps(int count) {
  static char go[MOST_THREADS];
  int released = 0;
  for (int k = 0; k < count; k++) go[k] = fibers[k].state == AT_WARP_BARRIER && warp_is_complete(k, count);
  for (int k = 0; k < count; k++)
    if (go[k]) { fibers[k].state = READY; released = 1; }
  return released;
}

static int release_block(int count) {
  int waiting = 0;
  for (int k = 0; k < count; k++) {
    if (fibers[k].state == AT_WARP_BARRIER) return 0;
    waiting += fibers[k].state == AT_BLOCK_BARRIER;
  }
  for (int k = 0; k < count; k++) if (fibers[k].state == AT_BLOCK_BARRIER) fibers[k].state = READY;
  return waiting;
}

static int all_done(int count) {
  for (int k = 0; k < count; k++) if (fibers[k].state != DONE) return 0;
  return 1;
}

static int backwards = -1;
/* Which comes at some turn: in order, backwards, or from a random one on in steps of a prime. */
typedef struct { uint64_t first, step; } sequence;
static sequence sequence_of(uint64_t count) {
  static const unsigned primes[] = {10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079};
  sequence found = {shuffled(count > 1u << 30 ? 1u << 30 : (unsigned)count), 1};
  unsigned prime = primes[shuffled(8)];
  if (found.first && count % prime) found.step = prime;
  return found;
}
static uint64_t at(sequence order, uint64_t turn, uint64_t count) {
  return backwards ? count - 1 - turn : (order.first + turn * order.step) % count;
}

static int run_fibers(three block, int count) {
  if (!stacks) stacks = mmap(0, STACK * MOST_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int k = 0; k < count; k++) start_fiber(k);
  for (;;) {
    sequence order = sequence_of(count);
    for (int turn = 0; turn < count; turn++) {
      running = (int)at(order, turn, count);
      if (fibers[running].state != READY) continue;
      set_thread(running, block);
      switch_stack(&scheduler, fibers[running].stack_pointer);
    }
    if (all_done(count)) return 0;
    if (!release_warps(count) && !release_block(count)) {
      fprintf(stderr, "emulated GPU: threads of %s wait at barriers that others never reach\n", running_function->name);
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    }
  }
}

static int run_block(three block) {
  int count = block.x * block.y * block.z;
  if (running_function->barriers) return run_fibers(block, count);
  sequence order = sequence_of(count);
  for (int turn = 0; turn < count; turn++) {
    set_thread((int)at(order, turn, count), block);
    running_function->run(running_arguments);
  }
  return 0;
}

int run_grid(function *function, three grid, three block, void **arguments) {
  if (backwards < 0) backwards = (int)option("backwards", 0);
  running_function = function;
  running_arguments = arguments;
  emulator_gridDim = grid;
  emulator_blockDim = block;
  uint64_t count = (uint64_t)grid.x * grid.y * grid.z;
  sequence order = sequence_of(count);
  for (uint64_t turn = 0; turn < count; turn++) {
    uint64_t k = at(order, turn, count);
    emulator_blockIdx = (three){k % grid.x, k / grid.x % grid.y, k / grid.x / grid.y};
    int error = run_block(block);
    if (error) return error;
  }
  return 0;
}
