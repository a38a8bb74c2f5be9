// Runs the threads of a block as fibres on one host thread.
//
// A switch between fibres saves six registers. Shared memory is filled with NaN when a block starts. Errors that hang a
// GPU or have undefined results there are reported with thread and line: a barrier that not every thread reaches, two
// threads in different barriers, a collective whose mask lacks its caller, an address outside every allocation.
#include "worker.hpp"
#include <csignal>
#include <cstdio>
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
  uint3 t = current ? current->index : uint3{}, b = now->block.index;
  snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s", launch->kernel.name, b.x, b.y, b.z,
           t.x, t.y, t.z, what.c_str());
  failure = text;
  if (line) failure += " (line " + std::to_string(line) + ")";
  int shown = 0;
  for (auto& o : now->threads) {
    if ((o.state == State::Ready || o.state == State::Done) || shown++ >= 4) continue;
    failure += "; thread " + std::to_string(o.index.x) + " waits in a " +
               (o.state == State::AtBarrier   ? "barrier"
                : o.state == State::AtCluster ? "barrier of its cluster"
                                              : "warp collective") +
               " at line " + std::to_string(o.line);
  }
  RELEASE(&finished);
  jump(&home, nullptr, true);
  abort();
}

Fibre* Worker::fibre_for(Running* t) {
  Fibre* f;
  unsigned thread = now->number(t);
#if defined(EMU_TSAN)  // a thread always runs on the same stack; otherwise the reuse of a stack would look like a race
  thread += now->block.cluster_rank * MOST_THREADS;
  while (fibres.size() <= thread) fibres.push_back(new_fibre_stack());
  f = fibres[thread];
#else
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
  if (count > 1) choose_block();
  Resident& b = *now;
  starts = b.next_new < b.order.size() && (b.ready.empty() || in_order() || b.random.draw() & 1);
  if (starts) return &b.threads[b.order[b.next_new++]];
  if (b.ready.empty()) return nullptr;
  if (!in_order()) std::swap(b.ready[b.random.below(b.ready.size())], b.ready.back());
  Running* t = &b.threads[b.ready.back()];
  b.ready.pop_back();
  return t;
}
void Worker::leave() {
  bool starts;
  Running* t = next(starts);
  if (!t) fail("every live thread waits", 0);
  t->state = State::Ready;
  if (starts) jump(fibre_for(t), t);
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
  Barrier& b = now->at_barrier;
  for (unsigned i : b.waiting) now->threads[i].result = uint64_t(b.sum);
  now->ready.insert(now->ready.end(), b.waiting.rbegin(), b.waiting.rend());
  b.waiting.clear();
  b.arrived = 0;
  b.generation++;
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
  Running* lanes = &now->threads[base];
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
    if (&lanes[l] != current) now->ready.push_back(base + l);
  }
  if (&g != &w.open[--w.opened]) g = w.open[w.opened];
}

void Worker::end_thread() {
  Running* t = self();
  t->state = State::Done;
  now->live--;
  unsigned i = now->number(t);
  Warp& w = now->warps[i / 32];
  w.exited |= 1u << (i % 32);
  for (unsigned k = 0; k < w.opened;) {
    Open& g = w.open[k];
    if (((g.arrived | w.exited) & g.mask) == g.mask) complete(w, i & ~31u, g);
    else k++;
  }
  if (now->at_barrier.arrived && now->at_barrier.arrived == now->live) open_barrier();
  leave_cluster(t);
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
    Running* t = w.cluster_live ? w.next(starts) : nullptr;
    if (!t && w.cluster_live) w.fail("every live thread waits", 0);
    if (t) t->state = State::Ready;
#if defined(EMU_TSAN)
    if (starts) w.jump(w.fibre_for(t), t, true);
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
  if (cluster_live < 2) return void(sched_yield());  // the thread waits for another block
  Running* t = self();
  t->fibre = on;
  turn = 0;
  // Behind all other threads, since it may wait for any of them.
  now->ready.insert(in_order() ? now->ready.begin() : now->ready.end(), now->number(t));
  leave();
}
void Worker::may_switch() {
  if (!in_order() && now->random.below(8) == 0) yield();
}

int Worker::barrier(int vote, Vote how, int line) {
  Barrier& b = now->at_barrier;
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
  if (b.arrived == now->live) {
    t->result = uint64_t(b.sum);
    open_barrier();
  } else {
    b.waiting.push_back(now->number(t));
    wait_in(State::AtBarrier, line);
  }
  ACQUIRE(order);
  return int(t->result);
}

uint64_t Worker::collective(Collective what, unsigned mask, uint64_t value, int source, int line) {
  Running* t = self();
  unsigned i = now->number(t), lane = t->lane;
  Warp& w = now->warps[i / 32];
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

// ---- stray addresses ----
// The fault handler continues on the fibre's own stack, in a function that abandons the block.
static thread_local uintptr_t stray;
static struct sigaction before;
static void gave_up() {
  Quiet quiet;
  Worker& worker = *static_cast<Running*>(current)->worker;
  char text[120];
  if (const Resident* exited = worker.exited_at(stray)) {
    uint3 b = exited->block.index;
    snprintf(text, sizeof text, "touches the shared memory of block (%u,%u,%u) of its cluster, which has exited", b.x, b.y, b.z);
  } else {
    snprintf(text, sizeof text, "touches the address %#zx, which is in no allocation", size_t(stray));
  }
  worker.fail(text, 0);
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
  count = l.cluster.x * l.cluster.y * l.cluster.z;
  while (blocks.size() < count) blocks.push_back(std::make_unique<Resident>());
  now = blocks[0].get();
  unsigned n = l.size.x * l.size.y * l.size.z;
  for (unsigned rank = 0; rank < count; rank++) {
    Resident& b = *blocks[rank];
    b.threads.resize(n);
    b.order.resize(n);
    b.warps.resize((n + 31) / 32);
    for (unsigned i = 0; i < n; i++) {
      Running& t = b.threads[i];
      t.index = {i % l.size.x, i / l.size.x % l.size.y, i / l.size.x / l.size.y};
      t.lane = i % 32;
      t.block = &b.block;
      t.worker = this;
#if defined(EMU_TSAN)
      // Kept, because creating one takes about 1 ms.
      t.shadow = b.shadows[i] ? b.shadows[i] : b.shadows[i] = __tsan_create_fiber(0);
#endif
    }
  }
  if (count > 1) keep_shared_memory();
}

// Prepares a block to begin.
void Worker::begin(Resident& b, uint64_t cluster, unsigned rank) {
  const Launch& l = *launch;
  void* dynamic = nullptr;
  if (l.shared && posix_memalign(&dynamic, 128, l.shared)) abort();  // exact size, so that a sanitizer sees overruns
  if (dynamic) memset(dynamic, 0xFF, l.shared);
  uint3 at = block_at(l.grid, l.cluster, cluster, rank);
  b.block = {l.grid, l.size, at, static_cast<char*>(dynamic), l.matrix, count, rank};
  for (auto& w : b.warps) w.exited = w.opened = 0;
  unsigned n = unsigned(b.threads.size());
  if (n % 32) b.warps.back().exited = ~0u << (n % 32);
  for (unsigned i = 0; i < n; i++) b.order[i] = i, b.threads[i].state = State::Done, b.threads[i].arrival = Arrival::None;
  b.random = Random(l.seed, at.x + l.grid.x * (at.y + uint64_t(l.grid.y) * at.z) + 1);
  if (!in_order()) b.random.shuffle(b.order);
  b.next_new = 0;
  b.live = n;
  b.ready.clear();
  b.at_barrier.arrived = 0;
  b.at_barrier.waiting.clear();
}

// Runs the blocks of a cluster; without clusters, a block.
std::string Worker::run(uint64_t cluster) {
  Quiet quiet;
  for (unsigned rank = 0; rank < count; rank++) begin(*blocks[rank], cluster, rank);
  forget_shared_memory();
  failure.clear();
  home = {};
  on = &home;
#if defined(EMU_TSAN)
  home_shadow = __tsan_get_current_fiber();
#endif
  // Orders this block after the previous one, and after `prepare`.
  ACQUIRE(&finished);
  RELEASE(&launched);
  free = fibres;
  cluster_live = count * unsigned(now->threads.size());
  cluster_arrived = 0;
  if (count > 1) begin_cluster(cluster);
  bool starts;
  Running* first = next(starts);
  first->state = State::Ready;
  jump(fibre_for(first), first);
  ACQUIRE(&finished);
  for (unsigned rank = 0; rank < count; rank++) ::free(blocks[rank]->block.shared);
  current = nullptr;
#if defined(EMU_TSAN)
  // Abandoned in the middle of a thread.
  for (unsigned rank = 0; rank < count && !failure.empty(); rank++) {
    memset(blocks[rank]->shadows, 0, sizeof blocks[rank]->shadows);
  }
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
void cluster_arrive(int line) {
  Quiet quiet;
  worker().cluster_arrive(line);
}
void cluster_wait(int line) {
  Quiet quiet;
  worker().cluster_wait(line);
}
void* in_block(void* own, unsigned rank, int line) {
  Quiet quiet;
  return worker().in_block(own, rank, line);
}
Worker* new_worker() { return new Worker; }
void prepare(Worker& w, const Launch& launch) { w.prepare(launch); }
std::string run_cluster(Worker& w, uint64_t cluster) { return w.run(cluster); }
}  // namespace emu
