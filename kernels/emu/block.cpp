// Runs the threads of a block as fibres on one host thread.
//
// A fibre keeps its stack; a switch saves six registers. Shared memory is NaN when a block starts. What a real GPU would
// hang on or leave undefined is reported with thread and line: a barrier that not every thread reaches, two threads in
// different barriers, a collective whose mask leaves its caller out, an address in no allocation.
#include "block.hpp"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>
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
asm(R"(.text
.globl emu_switch
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi); movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
extern "C" {
extern char __start_emu_shared[] __attribute__((weak)), __stop_emu_shared[] __attribute__((weak));
}

namespace emu {
Thread* current;
Block block;
uint64_t schedule_seed;

namespace {
constexpr size_t STACK = 64 << 10, PAGE = 4096;
constexpr unsigned MOST_THREADS = 1024;
enum class State : uint8_t { New, Ready, AtBarrier, InCollective, Done };
struct Stack { char* base; size_t size; };
struct Fibre { void* sp; Stack stack; void* fake; };
struct Running : Thread { State state; Fibre* fibre; uint64_t result; int line; void* shadow; };
// A collective that not all lanes of its mask have reached yet.
struct Open { Collective what; unsigned mask, arrived; int line; uint64_t value[32]; int source[32]; };
struct Warp { unsigned exited; std::vector<Open> open; unsigned generation; char order[2]; };
struct Barrier { unsigned arrived; int sum, line; unsigned generation; std::vector<unsigned> waiting; char order[2]; };

std::vector<Running> threads;
std::vector<Warp> warps;
Barrier at_barrier;
char launched, finished;
std::vector<unsigned> order, ready;
size_t next_new, head;
unsigned live;
std::vector<Stack> pool;
std::vector<Fibre*> dead;
Fibre home;
Fibre* on;
const Kernel* kernel;
void** arguments;
uint64_t random_state;
void* home_shadow;
std::string failure;

bool is_random() { return schedule_seed != 0; }
uint64_t draw() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

void jump(Fibre* to, Running* t, bool dying = false) {
  Fibre* from = on;
  on = to;
  current = t;
  (void)dying;
#if defined(EMU_TSAN)
  if (dying) AnnotateIgnoreReadsEnd("", 0), AnnotateIgnoreWritesEnd("", 0);
  __tsan_switch_to_fiber(t ? t->shadow : home_shadow, 1);
#endif
#if defined(EMU_ASAN)
  __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->stack.base, to->stack.size);
#endif
  emu_switch(&from->sp, to->sp);
#if defined(EMU_ASAN)
  __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

// Gives the whole grid up and goes back to the driver.
[[noreturn]] void fail(const std::string& what, int line) {
  char text[512];
  uint3 t = current ? current->index : uint3{};
  snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s", kernel->name, block.index.x,
           block.index.y, block.index.z, t.x, t.y, t.z, what.c_str());
  failure = text;
  if (line) failure += " (line " + std::to_string(line) + ")";
  int shown = 0;
  for (auto& o : threads) {
    if ((o.state == State::AtBarrier || o.state == State::InCollective) && shown++ < 4) {
      failure += "; thread " + std::to_string(o.index.x) + " waits in a " +
                 (o.state == State::AtBarrier ? "barrier" : "warp collective") + " at line " + std::to_string(o.line);
    }
  }
  jump(&home, nullptr, true);
  abort();
}

void body();
Fibre* new_fibre() {
#if defined(EMU_TSAN)  // thread i always runs on stack i, else reuse of a stack looks like a race
  static Stack own[MOST_THREADS];
  Stack& mine = own[order[next_new]];
  if (mine.base) pool.push_back(mine);
#else
  if (!dead.empty() && dead.back() != on) {
    pool.push_back(dead.back()->stack);
    delete dead.back();
    dead.pop_back();
  }
#endif
  Stack s;
  if (!pool.empty()) {
    s = pool.back();
    pool.pop_back();
#if defined(EMU_ASAN)
    __asan_unpoison_memory_region(s.base, s.size);
#endif
  } else {
    void* p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    mprotect(p, PAGE, PROT_NONE);
    s = {static_cast<char*>(p) + PAGE, STACK};
  }
#if defined(EMU_TSAN)
  mine = s;
#endif
  void** sp = reinterpret_cast<void**>(s.base + s.size);
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(body);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return new Fibre{sp, s, nullptr};
}

bool next_ready(unsigned& i) {
  if (head == ready.size()) {
    ready.clear();
    head = 0;
    return false;
  }
  if (is_random()) std::swap(ready[head + draw() % (ready.size() - head)], ready[head]);
  i = ready[head++];
  return true;
}
bool starts_fresh() { return next_new < order.size() && (!is_random() || head == ready.size() || draw() & 1); }

// Leaves this fibre for another thread's; threads that have not started go first unless the schedule is random.
void leave(bool dying = false) {
  unsigned i;
  if (starts_fresh()) return jump(new_fibre(), &threads[order[next_new]], dying);
  if (next_ready(i)) {
    Running& t = threads[i];
    t.state = State::Ready;
    if (t.fibre == on) {
      current = &t;
      return;
    }
    return jump(t.fibre, &t, dying);
  }
  if (next_new < order.size()) return jump(new_fibre(), &threads[order[next_new]], dying);
  if (live == 0) return jump(&home, nullptr, dying);
  fail("every live thread waits", 0);
}
Running* self() { return static_cast<Running*>(current); }
unsigned number(const Running* t) { return unsigned(t - threads.data()); }
void wait_in(State s, int line) {
  Running* t = self();
  t->state = s;
  t->line = line;
  t->fibre = on;
  leave();
}
void open_barrier() {
  for (unsigned i : at_barrier.waiting) {
    threads[i].result = uint64_t(at_barrier.sum);
    ready.push_back(i);
  }
  at_barrier.waiting.clear();
  at_barrier.arrived = 0;
  at_barrier.generation++;
}

// All lanes are there: every one gets its result.
void complete(Warp& w, unsigned base, size_t at) {
  Open g = w.open[at];
  w.open[at] = w.open.back();
  w.open.pop_back();
  unsigned all = g.arrived;
  int first = __builtin_ctz(all);
  uint32_t least = uint32_t(g.value[first]), most = least;
  int32_t least_signed = int32_t(least), most_signed = least_signed;
  uint32_t sum = 0, ballot = 0, conjunction = ~0u, disjunction = 0, parity = 0;
  for (unsigned m = all; m; m &= m - 1) {
    int l = __builtin_ctz(m);
    uint32_t v = uint32_t(g.value[l]);
    sum += v, conjunction &= v, disjunction |= v, parity ^= v;
    ballot |= uint32_t(v != 0) << l;
    least = std::min(least, v), most = std::max(most, v);
    least_signed = std::min(least_signed, int32_t(v)), most_signed = std::max(most_signed, int32_t(v));
  }
  for (unsigned m = all; m; m &= m - 1) {
    int l = __builtin_ctz(m);
    Running& t = threads[base + unsigned(l)];
    switch (g.what) {
      case Collective::Sync: break;
      case Collective::Shuffle: {  // a lane that is not there gives what nobody can rely on
        int from = g.source[l];
        t.result = from >= 0 && from < 32 && (all >> from & 1) ? g.value[from] : 0x7fffdead7fffdeadull;
        break;
      }
      case Collective::Match:
        t.result = 0;
        for (unsigned n = all; n; n &= n - 1) {
          int k = __builtin_ctz(n);
          if (g.value[k] == g.value[l]) t.result |= 1u << k;
        }
        break;
      case Collective::Ballot: t.result = ballot; break;
      case Collective::Any: t.result = ballot != 0; break;
      case Collective::All: t.result = ballot == all; break;
      case Collective::Add: t.result = sum; break;
      case Collective::Min: t.result = least; break;
      case Collective::Max: t.result = most; break;
      case Collective::MinSigned: t.result = uint32_t(least_signed); break;
      case Collective::MaxSigned: t.result = uint32_t(most_signed); break;
      case Collective::And: t.result = conjunction; break;
      case Collective::Or: t.result = disjunction; break;
      case Collective::Xor: t.result = parity; break;
    }
    if (&t != current) ready.push_back(base + unsigned(l));
  }
}

void end_thread() {
  Quiet quiet;
  Running* t = self();
  t->state = State::Done;
  live--;
  unsigned i = number(t);
  Warp& w = warps[i / 32];
  w.exited |= 1u << (i % 32);
  for (size_t k = 0; k < w.open.size();) {
    if (((w.open[k].arrived | w.exited) & w.open[k].mask) == w.open[k].mask) complete(w, i & ~31u, k);
    else k++;
  }
  if (at_barrier.arrived && at_barrier.arrived == live) open_barrier();
}

// A fibre runs threads that have not started, one after another, for as long as none of them waits.
void body() {
#if defined(EMU_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, home.stack.base ? nullptr : (const void**)&home.stack.base,
                                  home.stack.size ? nullptr : &home.stack.size);
#endif
  for (;;) {
    next_new++;
    self()->state = State::Ready;
    ACQUIRE(&launched);
    kernel->call(arguments);
    RELEASE(&finished);
    end_thread();
#if !defined(EMU_TSAN)
    if (starts_fresh()) {
      current = &threads[order[next_new]];
      continue;
    }
#endif
    Quiet quiet;
    dead.push_back(on);  // its stack is taken again once another fibre runs
    leave(true);
    abort();
  }
}

// A stray address: continues on the fibre's own stack, in a function that gives the grid up.
uintptr_t stray;
struct sigaction before;
void gave_up() {
  char text[80];
  snprintf(text, sizeof text, "touches the address %#zx, which is in no allocation", size_t(stray));
  fail(text, 0);
}
void on_fault(int signal, siginfo_t* info, void* context) {
  if (current) {
    stray = reinterpret_cast<uintptr_t>(info->si_addr);
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    registers[REG_RSP] = (registers[REG_RSP] - 256) & ~15ll;
    registers[REG_RSP] -= 8;
    registers[REG_RIP] = reinterpret_cast<greg_t>(gave_up);
    return;
  }
  if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(signal, info, context);
  else sigaction(signal, &before, nullptr);
}
}  // namespace

void yield() {
  Quiet quiet;
  if (live < 2) return;
  Running* t = self();
  t->fibre = on;
  ready.push_back(number(t));
  leave();
}
void may_switch() {
  if (is_random() && (draw() & 7) == 0) yield();
}

int barrier(int vote, Vote how, int line) {
  Quiet quiet;
  Barrier& b = at_barrier;
  Running* t = self();
  if (b.arrived == 0) {
    b.line = line;
    b.sum = how == Vote::And;
  } else if (b.line != line) {
    fail("threads of one block meet in different barriers", line);
  }
  b.arrived++;
  if (how == Vote::And) b.sum &= vote != 0;
  else if (how == Vote::Or) b.sum |= vote != 0;
  else b.sum += vote != 0;
  char* order = &b.order[b.generation & 1];
  RELEASE(order);
  if (b.arrived == live) {
    t->result = uint64_t(b.sum);
    open_barrier();
  } else {
    b.waiting.push_back(number(t));
    wait_in(State::AtBarrier, line);
  }
  ACQUIRE(order);
  return int(self()->result);
}

uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, int line) {
  Quiet quiet;
  Running* t = self();
  unsigned i = number(t), lane = t->lane;
  Warp& w = warps[i / 32];
  if (!(mask >> lane & 1)) fail("calls a collective whose mask leaves it out", line);
  size_t k = 0;
  while (k < w.open.size() &&
         !(w.open[k].mask == mask && w.open[k].what == what && !(w.open[k].arrived >> lane & 1))) {
    k++;
  }
  if (k == w.open.size()) {
    for (auto& o : w.open) {
      if (o.mask & mask) fail("is named by the masks of two open collectives", line);
    }
    w.open.push_back(Open{what, mask, 0, line, {}, {}});
  }
  Open& g = w.open[k];
  g.value[lane] = value;
  g.source[lane] = source;
  g.arrived |= 1u << lane;
  char* order = &w.order[w.generation & 1];
  RELEASE(order);
  if (((g.arrived | w.exited) & mask) == mask) {
    w.generation++;
    complete(w, i & ~31u, k);
  } else {
    wait_in(State::InCollective, line);
  }
  ACQUIRE(order);
  return self()->result;
}

std::string run(const Kernel& k, dim3 grid, dim3 size, size_t shared, void** args) {
  static std::once_flag handler;
  std::call_once(handler, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    sigaction(SIGBUS, &action, nullptr);
  });
  unsigned n = size.x * size.y * size.z;
  kernel = &k;
  arguments = args;
  failure.clear();
  home.stack = {nullptr, 0};
  on = &home;
  random_state = schedule_seed * 0x9E3779B97F4A7C15ull + 0x1234567;
#if defined(EMU_TSAN)
  home_shadow = __tsan_get_current_fiber();
#endif
  void* dynamic = nullptr;
  if (shared && posix_memalign(&dynamic, 128, shared)) abort();  // exact size: a sanitizer sees overruns
  std::vector<uint64_t> blocks(uint64_t(grid.x) * grid.y * grid.z);
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = i;
  if (is_random()) {
    for (size_t i = blocks.size(); i > 1; i--) std::swap(blocks[i - 1], blocks[draw() % i]);
  }
  threads.resize(n);
  order.resize(n);
  for (uint64_t b : blocks) {
    Quiet quiet;
    uint3 index = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
    block = {grid, size, index, static_cast<char*>(dynamic)};
    if (dynamic) memset(dynamic, 0xFF, shared);
    if (__start_emu_shared) memset(__start_emu_shared, 0xFF, size_t(__stop_emu_shared - __start_emu_shared));
    warps.resize((n + 31) / 32);
    for (auto& w : warps) {
      w.exited = 0;
      w.open.clear();
    }
    if (n % 32) warps.back().exited = ~0u << (n % 32);
    for (unsigned i = 0; i < n; i++) {
      Running& t = threads[i];
      t.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
      t.lane = i % 32;
      t.state = State::New;
      order[i] = i;
#if defined(EMU_TSAN)
      static void* shadows[MOST_THREADS];  // costly to make (about 1 ms), so kept
      t.shadow = shadows[i] ? shadows[i] : shadows[i] = __tsan_create_fiber(0);
#endif
    }
    if (is_random()) {
      for (size_t i = n; i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
    }
    // This block comes after the one before, and after what was prepared for it.
    ACQUIRE(&finished);
    RELEASE(&launched);
    next_new = head = 0;
    live = n;
    ready.clear();
    at_barrier.arrived = 0;
    at_barrier.waiting.clear();
    jump(new_fibre(), &threads[order[0]]);
    while (!dead.empty()) {
#if !defined(EMU_TSAN)
      pool.push_back(dead.back()->stack);
#endif
      delete dead.back();
      dead.pop_back();
    }
    if (!failure.empty()) break;
  }
  ACQUIRE(&finished);
  free(dynamic);
  current = nullptr;
  return failure;
}
}  // namespace emu
