// Runs the threads of a block as fibres on one host thread.
//
// A switch between fibres saves six registers. Shared memory is filled with NaN when a block starts. Errors that hang a
// GPU or have undefined results there are reported with thread and line: a barrier that not every thread reaches, two
// threads in different barriers, a collective whose mask lacks its caller, an address outside every allocation.
#include "block.hpp"
#include "fibre.hpp"
#include <csignal>
#include <cstdio>
#include <link.h>
#include <mutex>
#include <ucontext.h>

asm(R"(.text
.globl emu_switch
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi); movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace emu {
__thread Thread* current __attribute__((tls_model("initial-exec")));

namespace {
constexpr unsigned MOST_THREADS = 1024;
enum class State : uint8_t { Ready, AtBarrier, InCollective, Done };
struct Running : Thread { Worker* worker; Fibre* fibre; uint64_t result; int line; State state; void* shadow; };
// A collective that not all lanes of its mask have reached yet.
struct Open { Collective what; unsigned mask, arrived; int line; uint64_t value[32]; int source[32]; };
// The masks of open collectives are disjoint, so there are at most 32 of them.
struct Warp { unsigned exited, opened, generation; char order[2]; Open open[32]; };
struct Barrier { unsigned arrived; int sum, line; unsigned generation; std::vector<unsigned> waiting; char order[2]; };
}  // namespace

class Worker {
 public:
  void prepare(const Launch&);
  std::string run(uint64_t block);
  int barrier(int vote, Vote, int line);
  uint64_t collective(Collective, unsigned mask, uint64_t value, int source, int line);
  void yield();
  void may_switch();
  [[noreturn]] void fail(const std::string& what, int line);
  ~Worker() = delete;  // fibres are never freed

 private:
  bool in_order() const { return launch->seed == 0; }
  Running* self() const { return static_cast<Running*>(current); }
  unsigned number(const Running* t) const { return unsigned(t - threads.data()); }
  static void body();
  void jump(Fibre* to, Running* t, bool dying = false);
  Fibre* fibre_for(unsigned thread);
  Running* next(bool& starts);
  void leave();
  void wait_in(State, int line);
  void open_barrier();
  void complete(Warp&, unsigned base, Open&);
  void end_thread();

  const Launch* launch = nullptr;
  Block block{};
  std::vector<Running> threads;
  std::vector<Warp> warps;
  Barrier at_barrier{};
  // `order`: all threads; those from `next_new` on have not started. `ready`: threads that can continue, the next one
  // last.
  std::vector<unsigned> order, ready;
  size_t next_new = 0;
  unsigned live = 0;
  std::vector<Fibre*> fibres, free;
  Fibre home{};
  Fibre* on = nullptr;
  Random random;
  std::string failure;
  char launched = 0, finished = 0;
  void* home_shadow = nullptr;
  void* shadows[MOST_THREADS]{};
};

void Worker::jump(Fibre* to, Running* t, bool dying) {
  Fibre* from = on;
  on = to;
  current = t;
  (void)dying;
#if defined(EMU_TSAN)
  if (dying) AnnotateIgnoreReadsEnd("", 0), AnnotateIgnoreWritesEnd("", 0);
  __tsan_switch_to_fiber(t ? t->shadow : home_shadow, 1);
#endif
#if defined(EMU_ASAN)
  __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->base, to->size);
#endif
  emu_switch(&from->sp, to->sp);
#if defined(EMU_ASAN)
  __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

// Abandons the block with an error and returns to the caller of `run`.
void Worker::fail(const std::string& what, int line) {
  char text[512];
  uint3 t = current ? current->index : uint3{};
  snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s", launch->kernel.name, block.index.x,
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

Fibre* Worker::fibre_for(unsigned thread) {
  Fibre* f;
#if defined(EMU_TSAN)  // thread i always runs on stack i; otherwise the reuse of a stack would look like a race
  while (fibres.size() <= thread) fibres.push_back(new_fibre_stack());
  f = fibres[thread];
#else
  (void)thread;
  if (free.empty()) {
    fibres.push_back(new_fibre_stack());
    free.push_back(fibres.back());
  }
  f = free.back();
  free.pop_back();
#endif
  start_over(*f, body, thread);
  return f;
}

// Selects the thread that runs next, or null if all wait. In order (seed 0): first the threads that have not started,
// then the one that became ready last, so that a warp progresses until it waits for others.
Running* Worker::next(bool& starts) {
  starts = next_new < order.size() && (ready.empty() || in_order() || random.draw() & 1);
  if (starts) return &threads[order[next_new++]];
  if (ready.empty()) return nullptr;
  if (!in_order()) std::swap(ready[random.below(ready.size())], ready.back());
  Running* t = &threads[ready.back()];
  ready.pop_back();
  return t;
}
void Worker::leave() {
  bool starts;
  Running* t = next(starts);
  if (!t) fail("every live thread waits", 0);
  t->state = State::Ready;
  if (starts) jump(fibre_for(number(t)), t);
  else if (t->fibre == on) current = t;
  else jump(t->fibre, t);
}
void Worker::wait_in(State s, int line) {
  Running* t = self();
  t->state = s;
  t->line = line;
  t->fibre = on;
  leave();
}
void Worker::open_barrier() {
  for (unsigned i : at_barrier.waiting) threads[i].result = uint64_t(at_barrier.sum);
  ready.insert(ready.end(), at_barrier.waiting.rbegin(), at_barrier.waiting.rend());
  at_barrier.waiting.clear();
  at_barrier.arrived = 0;
  at_barrier.generation++;
}

// The result of a reduction of the values of lanes `all`.
static uint64_t reduced(Collective what, unsigned all, const uint64_t (&value)[32]) {
  uint32_t first = uint32_t(value[__builtin_ctz(all)]), r = first;
  if (what == Collective::Ballot || what == Collective::Any || what == Collective::All) {
    uint32_t ballot = 0;
    for (unsigned m = all; m; m &= m - 1) ballot |= uint32_t(value[__builtin_ctz(m)] != 0) << __builtin_ctz(m);
    return what == Collective::Ballot ? ballot : what == Collective::Any ? ballot != 0 : ballot == all;
  }
  for (unsigned m = all & (all - 1); m; m &= m - 1) {
    uint32_t v = uint32_t(value[__builtin_ctz(m)]);
    switch (what) {
      case Collective::Add: r += v; break;
      case Collective::Min: r = std::min(r, v); break;
      case Collective::Max: r = std::max(r, v); break;
      case Collective::MinSigned: r = uint32_t(std::min(int32_t(r), int32_t(v))); break;
      case Collective::MaxSigned: r = uint32_t(std::max(int32_t(r), int32_t(v))); break;
      case Collective::And: r &= v; break;
      case Collective::Or: r |= v; break;
      default: r ^= v; break;
    }
  }
  return r;
}

// Called when all lanes have arrived: gives every lane its result.
void Worker::complete(Warp& w, unsigned base, Open& g) {
  unsigned all = g.arrived;
  Running* lanes = &threads[base];
  switch (g.what) {
    case Collective::Sync: break;
    case Collective::Together: {  // one lane does the work of all
      void* lanes[32];
      if (all != ~0u) fail("is in a warp that is not whole, and works together", g.line);
      for (unsigned l = 0; l < 32; l++) lanes[l] = reinterpret_cast<Shown*>(g.value[l])->mine;
      reinterpret_cast<Shown*>(g.value[0])->work(lanes);
      break;
    }
    case Collective::Shuffle:  // an absent source lane yields a recognisable garbage value
      for (unsigned m = all; m; m &= m - 1) {
        int l = __builtin_ctz(m), from = g.source[l];
        lanes[l].result = from >= 0 && from < 32 && (all >> from & 1) ? g.value[from] : 0x7fffdead7fffdeadull;
      }
      break;
    case Collective::Match:
      for (unsigned m = all; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        lanes[l].result = 0;
        for (unsigned n = all; n; n &= n - 1) {
          int k = __builtin_ctz(n);
          if (g.value[k] == g.value[l]) lanes[l].result |= 1u << k;
        }
      }
      break;
    default: {
      uint64_t result = reduced(g.what, all, g.value);
      for (unsigned m = all; m; m &= m - 1) lanes[__builtin_ctz(m)].result = result;
    }
  }
  for (unsigned m = all; m;) {  // `ready` is a stack: highest lane first, so that the lowest lane continues first
    unsigned l = 31u - unsigned(__builtin_clz(m));
    m &= ~(1u << l);
    if (&lanes[l] != current) ready.push_back(base + l);
  }
  if (&g != &w.open[--w.opened]) g = w.open[w.opened];
}

void Worker::end_thread() {
  Running* t = self();
  t->state = State::Done;
  live--;
  unsigned i = number(t);
  Warp& w = warps[i / 32];
  w.exited |= 1u << (i % 32);
  for (unsigned k = 0; k < w.opened;) {
    Open& g = w.open[k];
    if (((g.arrived | w.exited) & g.mask) == g.mask) complete(w, i & ~31u, g);
    else k++;
  }
  if (at_barrier.arrived && at_barrier.arrived == live) open_barrier();
}

// The body of a fibre: runs threads that have not started, one after another, until one of them waits.
void Worker::body() {
  Worker& w = *static_cast<Running*>(current)->worker;
#if defined(EMU_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, w.home.base ? nullptr : (const void**)&w.home.base,
                                  w.home.size ? nullptr : &w.home.size);
#endif
  for (;;) {
    ACQUIRE(&w.launched);
    w.launch->kernel.call(w.launch->arguments);
    RELEASE(&w.finished);
    Quiet quiet;
    w.end_thread();
    bool starts = false;
    Running* t = w.live ? w.next(starts) : nullptr;
    if (!t && w.live) w.fail("every live thread waits", 0);
    if (t) t->state = State::Ready;
#if defined(EMU_TSAN)
    if (starts) w.jump(w.fibre_for(w.number(t)), t, true);
#else
    if (starts) {
      current = t;
      continue;
    }
    w.free.push_back(w.on);
#endif
    w.jump(t ? t->fibre : &w.home, t, true);
    abort();
  }
}

void Worker::yield() {
  if (live < 2) return void(sched_yield());  // the thread waits for another block
  Running* t = self();
  t->fibre = on;
  // Behind all other threads, since it may wait for any of them.
  ready.insert(in_order() ? ready.begin() : ready.end(), number(t));
  leave();
}
void Worker::may_switch() {
  if (!in_order() && random.below(8) == 0) yield();
}

int Worker::barrier(int vote, Vote how, int line) {
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
  return int(t->result);
}

uint64_t Worker::collective(Collective what, unsigned mask, uint64_t value, int source, int line) {
  Running* t = self();
  unsigned i = number(t), lane = t->lane;
  Warp& w = warps[i / 32];
  if (!(mask >> lane & 1)) fail("calls a collective whose mask leaves it out", line);
  unsigned k = 0;
  while (k < w.opened &&
         !(w.open[k].mask == mask && w.open[k].what == what && !(w.open[k].arrived >> lane & 1))) {
    k++;
  }
  Open& g = w.open[k];
  if (k == w.opened) {
    for (unsigned o = 0; o < w.opened; o++) {
      if (w.open[o].mask & mask) fail("is named by the masks of two open collectives", line);
    }
    w.opened++;
    g.what = what, g.mask = mask, g.arrived = 0, g.line = line;
  }
  g.value[lane] = value;
  g.source[lane] = source;
  g.arrived |= 1u << lane;
  // All reads of a lane before the collective happen before the other lanes continue. A product on the matrix units
  // orders nothing.
  bool orders = what != Collective::Together;
  char* order = &w.order[w.generation & 1];
  if (orders) RELEASE(order);
  if (((g.arrived | w.exited) & mask) == mask) {
    w.generation++;
    complete(w, i & ~31u, g);
  } else {
    wait_in(State::InCollective, line);
  }
  if (orders) ACQUIRE(order);
  return t->result;
}

// ---- shared memory ----
#if defined(EMU_ASAN) || defined(EMU_TSAN)
static void forget_shared_memory() {}
#else
// This host thread's shared memory: the thread-local storage of the kernel library, which holds nothing else.
extern "C" void* __tls_get_addr(void*);
struct SharedMemory {
  char* begin = nullptr;
  size_t size = 0;
  SharedMemory() { dl_iterate_phdr(find, this); }
  static int find(dl_phdr_info* library, size_t, void* found) {
    bool of_kernels = false;
    const ElfW(Phdr)* storage = nullptr;
    for (int i = 0; i < library->dlpi_phnum; i++) {
      auto& part = library->dlpi_phdr[i];
      uintptr_t from_begin = reinterpret_cast<uintptr_t>(kernels) - library->dlpi_addr - part.p_vaddr;
      if (part.p_type == PT_LOAD && from_begin < part.p_memsz) of_kernels = true;
      if (part.p_type == PT_TLS) storage = &part;
    }
    if (!of_kernels || !storage) return of_kernels;
    struct { size_t module, offset; } first{library->dlpi_tls_modid, 0};
    auto& shared = *static_cast<SharedMemory*>(found);
    shared.begin = static_cast<char*>(__tls_get_addr(&first)), shared.size = storage->p_memsz;
    return 1;
  }
};
static void forget_shared_memory() {
  static thread_local SharedMemory all;
  memset(all.begin, 0xFF, all.size);
}
#endif

// ---- stray addresses ----
// The fault handler continues on the fibre's own stack, in a function that abandons the block.
static thread_local uintptr_t stray;
static struct sigaction before;
static void gave_up() {
  Quiet quiet;
  char text[80];
  snprintf(text, sizeof text, "touches the address %#zx, which is in no allocation", size_t(stray));
  static_cast<Running*>(current)->worker->fail(text, 0);
}
static void on_fault(int signal, siginfo_t* info, void* context) {
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

void Worker::prepare(const Launch& l) {
  static std::once_flag handler;
  std::call_once(handler, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    sigaction(SIGBUS, &action, nullptr);
  });
  Quiet quiet;
  launch = &l;
  unsigned n = l.size.x * l.size.y * l.size.z;
  threads.resize(n);
  order.resize(n);
  warps.resize((n + 31) / 32);
  for (unsigned i = 0; i < n; i++) {
    Running& t = threads[i];
    t.index = {i % l.size.x, i / l.size.x % l.size.y, i / l.size.x / l.size.y};
    t.lane = i % 32;
    t.block = &block;
    t.worker = this;
#if defined(EMU_TSAN)
    // Kept, because creating one takes about 1 ms.
    t.shadow = shadows[i] ? shadows[i] : shadows[i] = __tsan_create_fiber(0);
#endif
  }
}

std::string Worker::run(uint64_t b) {
  Quiet quiet;
  const Launch& l = *launch;
  void* dynamic = nullptr;
  if (l.shared && posix_memalign(&dynamic, 128, l.shared)) abort();  // exact size, so that a sanitizer sees overruns
  if (dynamic) memset(dynamic, 0xFF, l.shared);
  forget_shared_memory();
  uint3 index = {unsigned(b % l.grid.x), unsigned(b / l.grid.x % l.grid.y), unsigned(b / l.grid.x / l.grid.y)};
  block = {l.grid, l.size, index, static_cast<char*>(dynamic), l.matrix};
  for (auto& w : warps) w.exited = w.opened = 0;
  unsigned n = unsigned(threads.size());
  if (n % 32) warps.back().exited = ~0u << (n % 32);
  for (unsigned i = 0; i < n; i++) order[i] = i, threads[i].state = State::Done;
  random = Random(l.seed, b + 1);
  if (!in_order()) random.shuffle(order);
  failure.clear();
  home = {};
  on = &home;
#if defined(EMU_TSAN)
  home_shadow = __tsan_get_current_fiber();
#endif
  // Orders this block after the previous one, and after `prepare`.
  ACQUIRE(&finished);
  RELEASE(&launched);
  next_new = 1;
  live = n;
  ready.clear();
  free = fibres;
  at_barrier.arrived = 0;
  at_barrier.waiting.clear();
  threads[order[0]].state = State::Ready;
  jump(fibre_for(order[0]), &threads[order[0]]);
  ACQUIRE(&finished);
  ::free(dynamic);
  current = nullptr;
#if defined(EMU_TSAN)
  if (!failure.empty()) memset(shadows, 0, sizeof shadows);  // abandoned in the middle of a thread
#endif
  return failure;
}

// ---- the functions that kernels and the grid scheduler call ----
static Worker& worker() { return *static_cast<Running*>(current)->worker; }
int barrier(int vote, Vote how, int line) {
  Quiet quiet;
  return worker().barrier(vote, how, line);
}
uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, int line) {
  Quiet quiet;
  return worker().collective(what, mask, value, source, line);
}
void yield() {
  Quiet quiet;
  worker().yield();
}
void may_switch() {
  Quiet quiet;
  worker().may_switch();
}
Worker* new_worker() { return new Worker; }
void prepare(Worker& w, const Launch& launch) { w.prepare(launch); }
std::string run_block(Worker& w, uint64_t block) { return w.run(block); }
}  // namespace emu
