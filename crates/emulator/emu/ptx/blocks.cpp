// Executes the blocks of a launch: one after the other in order, or several side by side in a random order. The blocks
// of a cluster are always side by side.
#include "run.hpp"

namespace emu::ptx {
constexpr uint32_t SIDE_BY_SIDE = 6;  // clusters, at most
constexpr size_t MOST_SHARED = 232448;  // bytes of a block

Run::Run(const Launch& l)
    : launch(l), function(l.function), random(l.seed != 0), weak(l.weak && l.seed != 0), draws(l.seed),
      shared_bytes(uint32_t(l.function.dynamic_at() + l.shared)), parameters(l.function.parameter_bytes),
      ranges(l.function.places) {
  for (size_t p = 0; p < function.parameters.size(); p++) {
    memcpy(parameters.data() + function.parameters[p].offset, l.arguments[p], function.parameters[p].bytes);
  }
}

void Run::run() {
  auto refuse = [&](const std::string& what) { throw Fault{"kernel " + function.name + ": " + what}; };
  uint32_t threads = launch.size.x * launch.size.y * launch.size.z;
  if (threads > function.most_threads) {
    refuse(std::to_string(threads) + " threads in a block, and .maxntid is " + std::to_string(function.most_threads));
  }
  if (shared_bytes > MOST_SHARED) refuse(std::to_string(shared_bytes) + " bytes of shared memory, more than there are");
  const dim3 &grid = launch.grid, &of = launch.cluster;
  std::vector<uint64_t> numbers(uint64_t(grid.x / of.x) * (grid.y / of.y) * (grid.z / of.z));
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = i;
  if (random) draws.shuffle(numbers);
  // What blocks need is kept by the thread for its next launch.
  static thread_local std::vector<std::unique_ptr<Cluster>> kept;
  size_t together = random ? std::min<size_t>(numbers.size(), 1 + draws.below(SIDE_BY_SIDE)) : 1, next = 0;
  while (kept.size() < together) kept.push_back(std::make_unique<Cluster>());
  std::vector<RunningBlock*> running;
  std::vector<Cluster*> spare;
  for (size_t i = together; i-- > 0;) spare.push_back(kept[i].get());
  while (next < numbers.size() || !running.empty()) {
    while (next < numbers.size() && !spare.empty()) {
      begin(*spare.back(), numbers[next++]);
      running.insert(running.end(), spare.back()->blocks.begin(), spare.back()->blocks.end());
      spare.pop_back();
    }
    RunningBlock* block = choose(running);
    if (!block) continue;
    go_on(*block);
    if (block->live) continue;
    keep_held(*block);
    running.erase(std::find(running.begin(), running.end(), block));
    if (--block->cluster->live == 0) spare.push_back(block->cluster);
  }
  release_all();
}

// Chooses the block that goes on next; null if the one that was drawn leaves its turn to others.
RunningBlock* Run::choose(const std::vector<RunningBlock*>& running) {
  if (!random) {
    for (RunningBlock* block : running) {
      if (can_go_on(*block)) return block;
    }
    return running[0];  // which tells why not
  }
  RunningBlock& block = *running[running.size() > 1 ? draws.below(running.size()) : 0];
  if (block.sleeps && running.size() > 1) {
    bool awake = false;
    for (RunningBlock* other : running) awake |= !other->sleeps && can_go_on(*other);
    if (awake) return block.sleeps--, nullptr;
  }
  block.sleeps = 0;
  return &block;
}

void Run::begin(RunningBlock& block) {
  uint32_t threads = launch.size.x * launch.size.y * launch.size.z;
  block.live = threads;
  block.barriers = block.sleeps = block.idle_jumps = 0;
  block.begun = false;
  block.at_barrier.fill(0);
  forget_all(block);  // what a launch that failed has left
  const uint3& at = block.index;
  block.random = Random(launch.seed, at.x + launch.grid.x * (at.y + uint64_t(launch.grid.y) * at.z) + 1);
  block.shared.resize(shared_bytes);
  memset(block.shared.data, 0xFF, shared_bytes);
  block.warps.resize((threads + LANES - 1) / LANES);
  for (uint32_t n = 0; n < block.warps.size(); n++) {
    block.warps[n].block = &block;
    block.warps[n].number = n;
    begin(block.warps[n], std::min(LANES, threads - LANES * n));
  }
}
void Run::begin(Warp& w, uint32_t threads) {
  w.there = threads == LANES ? ALL : (1u << threads) - 1;
  w.exited = w.meetings = w.waited = w.arrived = w.passed = 0;
  w.products.clear(), w.ended = 0, w.may_multiply = false;
  w.fragments.assign(1, {0, w.there, Waits::Nothing});
  w.local.assign(LANES * size_t(function.local_bytes), char(0xFF));
  if (w.registers_of != &function || function.reads_unset) {
    w.registers.resize(function.initial.size());
    memcpy(w.registers.data, function.initial.data(), function.initial.size());
    w.registers_of = &function;
  }
  set_special(w);
}
void Run::set_special(Warp& w) {
  const dim3 &size = launch.size, &grid = launch.grid, &of = launch.cluster;
  const uint3& index = w.block->index;
  uint32_t rank = w.block->rank, blocks = of.x * of.y * of.z;
  for (uint32_t lane = 0; lane < LANES; lane++) {
    uint32_t t = LANES * w.number + lane;
    const uint32_t values[] = {t % size.x, t / size.x % size.y, t / size.x / size.y,  // in the order of `Special`
                               size.x,     size.y,              size.z,
                               index.x,    index.y,             index.z,
                               grid.x,     grid.y,              grid.z,
                               lane,       w.number,
                               rank,       blocks,
                               rank % of.x, rank / of.x % of.y, rank / of.x / of.y,
                               of.x,       of.y,                of.z};
    for (uint32_t s = 0; s < SHARED_BASE; s++) {
      if (function.special[s] != NOWHERE) w.at<uint32_t>(function.special[s])[lane] = values[s];
    }
    if (function.special[SHARED_BASE] != NOWHERE) {
      w.at<uint64_t>(function.special[SHARED_BASE])[lane] = uint64_t(w.block->shared.data);
    }
    if (function.special[LOCAL_BASE] != NOWHERE) {
      uint64_t own = uint64_t(w.local.data()) + uint64_t(lane) * function.local_bytes;
      w.at<uint64_t>(function.special[LOCAL_BASE])[lane] = own;
    }
  }
}

// Lets a block go on: to its end or until it waits for its cluster; in a random order, for a while.
void Run::go_on(RunningBlock& block) {
  block.begun = true;
  if (random) {
    Warp* chosen = nullptr;
    uint32_t ready = 0;
    for (Warp& w : block.warps) {
      if (w.can_run() && block.random.below(++ready) == 0) chosen = &w;
    }
    if (chosen) return run_warp(*chosen, 1 + block.random.below(16));
    if (!leaves_to_cluster(block)) open_barrier(block);
    return;
  }
  while (block.live) {
    bool ran = false;
    for (Warp& w : block.warps) {
      if (w.can_run()) run_warp(w, 0), ran = true;
    }
    if (!ran && leaves_to_cluster(block)) return;
    if (!ran) open_barrier(block);
  }
}

// ---- barriers ----
// Called when nothing else can go on: all threads must be there.
void Run::open_barrier(RunningBlock& block) {
  const Instruction* met = nullptr;
  uint32_t yes = 0;  // threads whose predicate is set
  for (Warp& w : block.warps) {
    if (!w.alive()) continue;
    const Fragment& f = w.fragments[0];
    if (w.fragments.size() != 1 || f.waits != Waits::ForBlock || f.lanes != w.alive()) nothing_goes_on(block);
    const Instruction& i = function.code[f.at];
    if (met && met->told != i.told) {
      std::string what = "meets threads of its block in another barrier (" + place_of(*met) + ")";
      fault(w, i, uint32_t(__builtin_ctz(f.lanes)), what);
    }
    met = &i;
    if (i.told == Told::None) continue;
    yes += uint32_t(__builtin_popcount(*w.at<uint32_t>(function.operands[i.first + 1]) & w.alive()));
  }
  block.barriers++;
  block.idle_jumps = 0;
  for (Warp& w : block.warps) {
    if (!w.alive()) continue;
    Fragment& f = w.fragments[0];
    const Instruction& i = function.code[f.at];
    if (i.told != Told::None) tell_votes(w, i, yes);
    f.at++;
    f.waits = Waits::Nothing;
  }
}
void Run::tell_votes(Warp& w, const Instruction& i, uint32_t yes) {
  uint32_t* to = w.at<uint32_t>(function.operands[i.first]);
  uint32_t alive = w.alive();
  if (i.told == Told::Count) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
      if (alive >> lane & 1) to[lane] = yes;
    }
    return;
  }
  bool holds = i.told == Told::Any ? yes > 0 : yes == w.block->live;
  *to = (*to & ~alive) | (holds ? alive : 0);
}

// ---- faults ----
static std::string triple(uint32_t x, uint32_t y, uint32_t z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}
// `linear.cu:19, PTX line 120, "add.s32 ..."`.
std::string Run::place_of(const Instruction& i) const {
  auto file = function.module->files.find(i.source_file);
  std::string place;
  if (file != function.module->files.end()) place = file->second + ":" + std::to_string(i.source_line) + ", ";
  return place + "PTX line " + std::to_string(i.line) + ", `" + function.module->line(i.line) + "`";
}
void Run::fault(const RunningBlock& block, const std::string& what) const {
  const uint3& b = block.index;
  throw Fault{"kernel " + function.name + ", block " + triple(b.x, b.y, b.z) + what};
}
void Run::fault(const Warp& w, const Instruction& i, uint32_t lane, const std::string& what) const {
  uint32_t t = LANES * w.number + lane;
  const dim3& size = launch.size;
  std::string thread = triple(t % size.x, t / size.x % size.y, t / size.x / size.y);
  fault(*w.block, ", thread " + thread + ": " + what + " (" + place_of(i) + ")");
}
void Run::nothing_goes_on(RunningBlock& block) {
  std::string text = ": every live thread waits";
  int shown = 0;
  for (Warp& w : block.warps) {
    for (const Fragment& f : w.fragments) {
      if (shown++ == 4) break;
      uint32_t first = uint32_t(__builtin_ctz(f.lanes));
      text += "; thread " + std::to_string(LANES * w.number + first) + " and " +
              std::to_string(__builtin_popcount(f.lanes) - 1) + " others of its warp wait in a " +
              (f.waits == Waits::ForBlock     ? "barrier"
               : f.waits == Waits::ForGroup   ? "barrier of some warps"
               : f.waits == Waits::ForCluster ? "barrier of the cluster"
                                              : "warp collective") +
              " (" + place_of(function.code[f.at]) + ")";
    }
  }
  fault(block, text);
}

std::string run(const Launch& launch) {
  try {
    read(launch.function);
    if (!launch.function.unreadable.empty()) return launch.function.unreadable;
    Run(launch).run();
  } catch (const Fault& fault) {
    return fault.text;
  }
  return {};
}
}  // namespace emu::ptx
