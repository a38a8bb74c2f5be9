// Stacks for CUDA threads, the switch between them, and the notifications that sanitizers need.
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
// Keeps the scheduler's own accesses out of race reports; the allocator and memmove are intercepted, too.
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

// Saves the callee-saved registers, stores the stack pointer in `save`, and continues on the stack `to`.
extern "C" void emu_switch(void** save, void* to);

namespace emu {
// A stack, never freed; `fake` is AddressSanitizer's fake stack.
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
// Resets the fibre to start at `entry` on an empty stack. Stacks are page aligned: `number` offsets the first frame,
// lest the frames of a whole block compete for a few cache lines.
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
