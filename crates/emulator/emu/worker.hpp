// A host thread's state while it runs blocks: the threads of those that are under way, and what they wait for.
#pragma once
#include "block.hpp"
#include "fibre.hpp"
#include <memory>

namespace emu {
constexpr unsigned MOST_THREADS = 1024;
enum class State : uint8_t { Ready, AtBarrier, InCollective, AtCluster, Done };
// Whether a thread has arrived at the barrier of its cluster without having waited since, and whether that is open.
enum class Arrival : uint8_t { None, Arrived, Open };
class Worker;
struct Running : Thread {
  Worker* worker;
  Fibre* fibre;
  uint64_t result;
  int line;
  State state;
  Arrival arrival;
  void* shadow;
};
// A collective that not all lanes of its mask have reached yet.
struct Open { Collective what; unsigned mask, arrived; int line; uint64_t value[32]; int source[32]; };
// The masks of open collectives are disjoint, so there are at most 32 of them.
struct Warp { unsigned exited, opened, generation; char order[2]; Open open[32]; };
struct Barrier { unsigned arrived; int sum, line; unsigned generation; std::vector<unsigned> waiting; char order[2]; };

// A block that is under way.
struct Resident {
  Block block{};
  std::vector<Running> threads;
  std::vector<Warp> warps;
  Barrier at_barrier{};
  // `order`: all threads; those from `next_new` on have not started. `ready`: threads that can continue, the next one
  // last.
  std::vector<unsigned> order, ready;
  size_t next_new = 0;
  unsigned live = 0;
  Random random;
  // Its shared memory while another block of its cluster runs; inaccessible once the block has exited.
  char* kept = nullptr;
  void* shadows[MOST_THREADS]{};

  unsigned number(const Running* t) const { return unsigned(t - threads.data()); }
  bool can_go_on() const { return next_new < order.size() || !ready.empty(); }
};

class Worker {
 public:
  void prepare(const Launch&);
  std::string run(uint64_t cluster);
  int barrier(int vote, Vote, int line);
  uint64_t collective(Collective, unsigned mask, uint64_t value, int source, int line);
  void yield();
  void may_switch();
  [[noreturn]] void fail(const std::string& what, int line);
  ~Worker() = delete;  // fibres are never freed

  // ---- clusters (`cluster.cpp`) ----
  void cluster_arrive(int line);
  void cluster_wait(int line);
  void* in_block(void* own, unsigned rank, int line);
  // The block of the cluster that has exited and had this address in its shared memory, or null.
  const Resident* exited_at(uintptr_t address) const;

 private:
  bool in_order() const { return launch->seed == 0; }
  Running* self() const { return static_cast<Running*>(current); }
  static void body();
  void begin(Resident&, uint64_t cluster, unsigned rank);
  void jump(Fibre* to, Running* t, bool dying = false);
  Fibre* fibre_for(Running*);
  Running* next(bool& starts);
  void leave();
  void wait_in(State, int line);
  void open_barrier();
  void complete(Warp&, unsigned base, Open&);
  void end_thread();

  // ---- clusters (`cluster.cpp`) ----
  void keep_shared_memory();
  void begin_cluster(uint64_t cluster);
  void choose_block();
  unsigned next_turn();
  void enter(Resident&);
  void open_cluster_barrier();
  void leave_cluster(Running*);

  const Launch* launch = nullptr;
  unsigned count = 1;  // blocks of a cluster
  std::vector<std::unique_ptr<Resident>> blocks;  // those of the cluster by rank
  Resident* now = nullptr;  // the one that runs
  std::vector<Fibre*> fibres, free;
  Fibre home{};
  Fibre* on = nullptr;
  std::string failure;
  char launched = 0, finished = 0;
  void* home_shadow = nullptr;
  // The cluster's barrier: its threads that live, and those that have arrived.
  unsigned cluster_live = 0, cluster_arrived = 0, generation = 0;
  char cluster_order[2]{};
  Random draws;       // of the cluster
  unsigned turn = 0;  // switches of threads until another block of the cluster may go on
};

// This host thread's memory for the static shared memory of a block (`cluster.cpp`).
struct SharedMemory { char* begin; size_t size; };
const SharedMemory& shared_memory();
// Fills it with NaN; under a sanitizer, which tracks what was written, it does nothing.
void forget_shared_memory();
}  // namespace emu
