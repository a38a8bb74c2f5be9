// Stacks to run CUDA threads on, the switch between them, and what the sanitizers must be told of it.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <sys/mman.h>
#if defined(EMU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMU_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
// The allocator and memmove are intercepted: keeps the scheduler's own accesses out of the reports.
struct Quiet {
  Quiet() { AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0); }
  ~Quiet() { AnnotateIgnoreReadsEnd("", 0), AnnotateIgnoreWritesEnd("", 0); }
};
#define ACQUIRE(p) __tsan_acquire(p)
#define RELEASE(p) __tsan_release(p)
#else
struct Quiet { Quiet() {} };
#define ACQUIRE(p) (void)(p)
#define RELEASE(p) (void)(p)
#endif

// Saves the registers a callee must keep, stores the stack pointer, takes over the other stack.
extern "C" void emu_switch(void** save, void* to);

namespace emu {
// Keeps its stack for good; `fake` is AddressSanitizer's.
struct Fibre {
  void* sp;
  char* base;
  size_t size;
  void* fake;
};

inline Fibre* new_fibre_stack() {
  constexpr size_t STACK = 64 << 10, PAGE = 4096;
  void* p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE)) abort();
  return new Fibre{nullptr, static_cast<char*>(p) + PAGE, STACK, nullptr};
}
// `entry` is where it goes on, on a new stack. Stacks start at distances of pages: `number` moves this one's first frame, lest
// those of a whole block compete for a few lines of the cache.
inline void start_over(Fibre& f, void (*entry)(), size_t number) {
#if defined(EMU_ASAN)
  __asan_unpoison_memory_region(f.base, f.size);
#endif
  void** sp = reinterpret_cast<void**>(f.base + f.size - number * 5 % 64 * 64);
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  f.sp = sp;
}
}  // namespace emu
