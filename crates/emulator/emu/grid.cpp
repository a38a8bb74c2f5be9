// Runs the blocks of a grid on all cores; those of a cluster on one.
//
// Under seed 0 the launching thread runs all blocks itself, in order. Under other seeds it runs them in a random order
// together with helper threads, each taking the next block when it is done, so that blocks really run concurrently.
// What happens within a block depends on the seed alone. `TGNN_EMU_THREADS=1` disables the helpers: then a seed
// reproduces the whole run.
#include "block.hpp"
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <sched.h>
#include <thread>

namespace emu {
namespace {
struct Grid {
  const Launch& launch;
  std::vector<uint64_t> clusters;  // a block each, if the launch has no clusters
  std::atomic<size_t> next{0};
  // Index of the first cluster that failed. They start in order of their indices, so all before it have started, and
  // the grid's error message does not depend on how many run at a time.
  std::atomic<size_t> failed{SIZE_MAX};
  std::string failure;
  unsigned helpers = 0;  // helpers working on this grid; guarded by the pool's lock, like `failure`
};

// Never destroyed: helpers still wait in it when the program ends.
struct Pool {
  std::mutex lock;
  std::condition_variable come, gone;
  std::vector<Grid*> open;
  std::vector<Worker*> idle;
  unsigned helpers = 0;
  bool started = false;
};
Pool& pool() {
  static Pool& p = *new Pool;
  return p;
}

void work_on(Grid& grid, Worker& worker) {
  prepare(worker, grid.launch);
  for (;;) {
    size_t at = grid.next++;
    if (at >= grid.clusters.size() || at > grid.failed) return;
    std::string wrong = run_cluster(worker, grid.clusters[at]);
    if (wrong.empty()) continue;
    std::lock_guard<std::mutex> held(pool().lock);
    if (at < grid.failed) grid.failed = at, grid.failure = wrong;
  }
}

void help() {
  // The stack of the signal handler for a kernel that has overflowed its own.
  std::vector<char> stack(64 << 10);
  stack_t alternate{};
  alternate.ss_sp = stack.data(), alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  Pool& p = pool();
  Worker& worker = *new_worker();
  std::unique_lock<std::mutex> held(p.lock);
  for (;;) {
    p.come.wait(held, [&] { return !p.open.empty(); });
    Grid& grid = *p.open.front();
    if (grid.next >= grid.clusters.size() || grid.failed != SIZE_MAX) {
      p.open.erase(p.open.begin());
      continue;
    }
    grid.helpers++;
    held.unlock();
    work_on(grid, worker);
    held.lock();
    if (--grid.helpers == 0) p.gone.notify_all();
  }
}

// Under a sanitizer, shared memory is global to the program instead of thread-local, so that each array is tracked
// separately; therefore blocks run one at a time.
#if defined(EMU_ASAN) || defined(EMU_TSAN)
std::mutex one_at_a_time;
unsigned wanted_helpers() { return 0; }
#else
unsigned wanted_helpers() {
  if (const char* text = getenv("TGNN_EMU_THREADS")) return std::max(1, atoi(text)) - 1;
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) ? 0 : unsigned(CPU_COUNT(&cores)) - 1;
}
#endif
}  // namespace

unsigned blocks_at_once() { return wanted_helpers() + 1; }

std::string run(const Launch& launch) {
#if defined(EMU_ASAN) || defined(EMU_TSAN)
  std::lock_guard<std::mutex> alone(one_at_a_time);
#endif
  Grid grid{launch};
  dim3 of = launch.cluster;
  grid.clusters.resize(uint64_t(launch.grid.x / of.x) * (launch.grid.y / of.y) * (launch.grid.z / of.z));
  for (size_t i = 0; i < grid.clusters.size(); i++) grid.clusters[i] = i;
  if (launch.seed) Random(launch.seed).shuffle(grid.clusters);
  Pool& p = pool();
  std::unique_lock<std::mutex> held(p.lock);
  if (!p.started) {
    p.started = true;
    p.helpers = blocks_at_once() - 1;
    for (unsigned i = 0; i < p.helpers; i++) std::thread(help).detach();
  }
  if (p.idle.empty()) p.idle.push_back(new_worker());
  Worker* worker = p.idle.back();
  p.idle.pop_back();
  bool shared_out = launch.seed && p.helpers && grid.clusters.size() > 1;
  if (shared_out) {
    p.open.push_back(&grid);
    for (size_t i = std::min<size_t>(p.helpers, grid.clusters.size() - 1); i > 0; i--) p.come.notify_one();
  }
  held.unlock();
  work_on(grid, *worker);
  held.lock();
  if (shared_out) {
    p.open.erase(std::remove(p.open.begin(), p.open.end(), &grid), p.open.end());
    p.gone.wait(held, [&] { return grid.helpers == 0; });
  }
  p.idle.push_back(worker);
  return grid.failure;
}
}  // namespace emu
