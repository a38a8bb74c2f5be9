// Runs the blocks of a cluster on one host thread.
//
// In order (seed 0), a block goes on until all its threads wait for the cluster or have exited; then the next one does.
// Under other seeds any of them goes on, for any number of switches between its threads. Blocks share the host thread's
// memory for shared memory, so what a block has there is kept elsewhere while another one runs. That is also where the
// others find it. Reported with thread and line are: addresses in blocks that are not in the cluster, have not begun,
// or have exited, and threads that arrive twice or wait without having arrived.
#include "worker.hpp"
#include <link.h>

namespace emu {
namespace {
constexpr size_t PAGE = 4096;
size_t kept_bytes() { return (shared_memory().size + PAGE - 1) / PAGE * PAGE; }

#if defined(EMU_ASAN) || defined(EMU_TSAN)
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif
// Copies bytes without a sanitizer's looking at them.
void copy(char* to, const char* from, size_t bytes) {
  if (!SANITIZED) return void(memcpy(to, from, bytes));
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Finds the kernel library, which has no other variables than shared memory: as thread-local storage or, under a
// sanitizer, as storage that begins as zeros.
extern "C" void* __tls_get_addr(void*);
int find(dl_phdr_info* library, size_t, void* found) {
  bool of_kernels = false;
  const ElfW(Phdr) *storage = nullptr, *zeros = nullptr;
  for (int i = 0; i < library->dlpi_phnum; i++) {
    auto& part = library->dlpi_phdr[i];
    uintptr_t from_begin = reinterpret_cast<uintptr_t>(kernels) - library->dlpi_addr - part.p_vaddr;
    if (part.p_type == PT_LOAD && from_begin < part.p_memsz) of_kernels = true;
    if (part.p_type == PT_TLS) storage = &part;
    if (part.p_type == PT_LOAD && part.p_memsz > part.p_filesz) zeros = &part;
  }
  if (!of_kernels) return 0;
  auto& shared = *static_cast<SharedMemory*>(found);
  if (SANITIZED && zeros) {
    shared.begin = reinterpret_cast<char*>(library->dlpi_addr + zeros->p_vaddr + zeros->p_filesz);
    shared.size = zeros->p_memsz - zeros->p_filesz;
  } else if (!SANITIZED && storage) {
    struct { size_t module, offset; } first{library->dlpi_tls_modid, 0};
    shared.begin = static_cast<char*>(__tls_get_addr(&first)), shared.size = storage->p_memsz;
  }
  return 1;
}
}  // namespace

const SharedMemory& shared_memory() {
  static thread_local SharedMemory all = [] {
    SharedMemory found{nullptr, 0};
    dl_iterate_phdr(find, &found);
    return found;
  }();
  return all;
}
void forget_shared_memory() {
  if (!SANITIZED && shared_memory().size) memset(shared_memory().begin, 0xFF, shared_memory().size);
}

// Gives every block of a cluster a place for its shared memory.
void Worker::keep_shared_memory() {
  for (unsigned rank = 0; rank < count; rank++) {
    char*& kept = blocks[rank]->kept;
    if (kept) continue;
    void* p = mmap(nullptr, kept_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    kept = static_cast<char*>(p);
  }
}
void Worker::begin_cluster(uint64_t cluster) {
  for (unsigned rank = 0; rank < count; rank++) {
    mprotect(blocks[rank]->kept, kept_bytes(), PROT_READ | PROT_WRITE);
    copy(blocks[rank]->kept, shared_memory().begin, shared_memory().size);
  }
  draws = Random(launch->seed, ~cluster);
  now = blocks[in_order() ? 0 : draws.below(count)].get();
  turn = next_turn();
}
// The number of switches between threads until another block may go on. Under a sanitizer, which sees one memory for
// all blocks, that is only when all threads of this one wait.
unsigned Worker::next_turn() { return in_order() || SANITIZED ? ~0u : 1u << draws.below(12); }

// Lets another block of the cluster go on, if this one cannot or its turn is over.
void Worker::choose_block() {
  bool stays = now->can_go_on();
  if (stays && turn-- > 0) return;
  turn = next_turn();
  unsigned own = now->block.cluster_rank, others = 0;
  Resident* chosen = nullptr;
  for (unsigned i = 1; i <= count; i++) {
    Resident& b = *blocks[(own + i) % count];
    // In order, the next one by rank.
    if (b.can_go_on() && (in_order() ? !chosen : draws.below(++others) == 0)) chosen = &b;
  }
  if (chosen) enter(*chosen);
}
void Worker::enter(Resident& b) {
  if (&b == now) return;
  const SharedMemory& own = shared_memory();
  if (now->live) copy(now->kept, own.begin, own.size);
  copy(own.begin, b.kept, own.size);
  now = &b;
  // For a sanitizer: what this block does in the host thread's memory comes after what the previous one did.
  ACQUIRE(&finished);
  RELEASE(&launched);
}

// ---- the barrier of a cluster ----
void Worker::cluster_arrive(int line) {
  Running* t = self();
  if (t->arrival == Arrival::Arrived) fail("arrives at the barrier of its cluster again, before that has opened", line);
  if (t->arrival == Arrival::Open) fail("arrives at the barrier of its cluster again, and has not waited", line);
  t->arrival = Arrival::Arrived;
  RELEASE(&cluster_order[generation & 1]);
  if (++cluster_arrived == cluster_live) open_cluster_barrier();
}
void Worker::cluster_wait(int line) {
  Running* t = self();
  if (t->arrival == Arrival::None) fail("waits at the barrier of its cluster, and has not arrived", line);
  RELEASE(&finished);  // for `enter`, if another block goes on meanwhile
  unsigned open = generation + (t->arrival == Arrival::Arrived);
  if (t->arrival == Arrival::Arrived) wait_in(State::AtCluster, line);
  t->arrival = Arrival::None;
  ACQUIRE(&launched);
  ACQUIRE(&cluster_order[(open - 1) & 1]);
}
void Worker::open_cluster_barrier() {
  generation++;
  cluster_arrived = 0;
  for (unsigned rank = 0; rank < count; rank++) {
    Resident& b = *blocks[rank];
    for (size_t i = b.threads.size(); i-- > 0;) {  // `ready` is a stack: the lowest thread continues first
      Running& t = b.threads[i];
      if (t.arrival == Arrival::Arrived) t.arrival = Arrival::Open;
      if (t.state == State::AtCluster) t.state = State::Ready, b.ready.push_back(unsigned(i));
    }
  }
}
// Called when a thread has exited: nobody waits for it any more.
void Worker::leave_cluster(Running* t) {
  cluster_live--;
  if (t->arrival == Arrival::Arrived) cluster_arrived--;
  t->arrival = Arrival::None;
  if (cluster_arrived && cluster_arrived == cluster_live) open_cluster_barrier();
  if (count > 1 && now->live == 0) mprotect(now->kept, kept_bytes(), PROT_NONE);
}

// ---- the shared memory of the other blocks ----
void* Worker::in_block(void* own, unsigned rank, int line) {
  const SharedMemory& shared = shared_memory();
  char* p = static_cast<char*>(own);
  size_t in_static = size_t(p - shared.begin), in_dynamic = size_t(p - now->block.shared);
  bool is_static = in_static < shared.size;
  if (!is_static && in_dynamic >= launch->shared) fail("asks another block for what is no shared memory", line);
  if (rank >= count) {
    fail("asks for block " + std::to_string(rank) + " of its cluster, which has " + std::to_string(count), line);
  }
  const Resident& b = *blocks[rank];
  if (&b == now) return own;
  if (b.next_new == 0) fail("asks for shared memory of block " + std::to_string(rank) + ", which has not begun", line);
  if (b.live == 0) fail("asks for shared memory of block " + std::to_string(rank) + ", which has exited", line);
  return is_static ? b.kept + in_static : b.block.shared + in_dynamic;
}
const Resident* Worker::exited_at(uintptr_t address) const {
  for (unsigned rank = 0; rank < count; rank++) {
    const Resident& b = *blocks[rank];
    if (b.kept && b.live == 0 && address - reinterpret_cast<uintptr_t>(b.kept) < kept_bytes()) return &b;
  }
  return nullptr;
}
}  // namespace emu
