// Clusters of blocks: their barrier, and shared memory of other blocks.
//
// An address in the shared memory of a cluster (`shared::cluster`) has an offset in its lower 24 bits and above them
// one more than the rank of the block. Without a rank it is one of the block's own.
#include "run.hpp"

namespace emu::ptx {
constexpr uint32_t OFFSET_BITS = 24;

void Run::begin(Cluster& cluster, uint64_t number) {
  cluster.live = launch.cluster.x * launch.cluster.y * launch.cluster.z;
  while (cluster.kept.size() < cluster.live) cluster.kept.push_back(std::make_unique<RunningBlock>());
  cluster.blocks.clear();
  for (uint32_t rank = 0; rank < cluster.live; rank++) {
    RunningBlock& block = *cluster.kept[rank];
    block.cluster = &cluster;
    block.rank = rank;
    block.index = block_at(launch.grid, launch.cluster, number, rank);
    cluster.blocks.push_back(&block);
    begin(block);
  }
}

static bool waits_for_cluster(const RunningBlock& block) {
  for (const Warp& w : block.warps) {
    for (const Fragment& f : w.fragments) {
      if (f.waits == Waits::ForCluster) return true;
    }
  }
  return false;
}
// Whether a block can go on, or be told why not, before its cluster's barrier opens.
bool Run::can_go_on(const RunningBlock& block) const {
  if (!block.live) return false;
  for (const Warp& w : block.warps) {
    if (w.can_run()) return true;
  }
  return !waits_for_cluster(block);
}
// Called when nothing of a block can go on: whether that is because it waits for its cluster, in which others can.
bool Run::leaves_to_cluster(RunningBlock& block) {
  if (!waits_for_cluster(block)) return false;
  for (const RunningBlock* other : block.cluster->blocks) {
    if (can_go_on(*other)) return true;
  }
  nothing_goes_on(block);
}

// ---- the barrier ----
void Run::arrive(Warp& w, const Instruction& i, uint32_t lanes) {
  auto wrong = [&](uint32_t by, const std::string& what) {
    if (by) fault(w, i, uint32_t(__builtin_ctz(by)), "arrives at the barrier of its cluster again, " + what);
  };
  wrong(lanes & w.arrived, "before that has opened");
  wrong(lanes & w.passed, "and has not waited");
  if (i.releases) fence(w, lanes);
  w.arrived |= lanes;
  open_if_all_arrived(*w.block->cluster);
}
// Whether lanes that wait may go on.
bool Run::passes(Warp& w, const Instruction& i, uint32_t lanes) {
  if (uint32_t never = lanes & ~(w.arrived | w.passed)) {
    fault(w, i, uint32_t(__builtin_ctz(never)), "waits at the barrier of its cluster, and has not arrived");
  }
  if (lanes & w.arrived) return false;
  w.passed &= ~lanes;
  if (weak) forget_l1(*w.block);
  return true;
}
// Opens the barrier of a cluster when all its live threads have arrived.
void Run::open_if_all_arrived(Cluster& cluster) {
  uint32_t some = 0;
  for (const RunningBlock* block : cluster.blocks) {
    for (const Warp& w : block->warps) {
      some |= w.arrived & w.alive();
      if (w.alive() & ~w.arrived) return;
    }
  }
  if (!some) return;
  for (RunningBlock* block : cluster.blocks) {
    block->idle_jumps = 0;
    for (Warp& w : block->warps) {
      w.passed |= w.arrived;
      w.arrived = 0;
      for (Fragment& f : w.fragments) {
        if (f.waits == Waits::ForCluster) f.waits = Waits::Nothing;
      }
    }
  }
}

// ---- shared memory of other blocks ----
// The host's address of a place in the shared memory of a block of the cluster.
uint64_t Run::in_peer(const Warp& w, const Instruction& i, uint32_t lane, const RunningBlock& peer, uint64_t at) const {
  uint64_t n = uint64_t(i.access.bytes) * i.access.count;
  std::string what = "uses " + std::to_string(n) + " bytes at " + std::to_string(at) + " of the shared memory of block " +
                     std::to_string(peer.rank) + " of its cluster, ";
  if (!peer.begun) fault(w, i, lane, what + "which has not begun");
  if (!peer.live) fault(w, i, lane, what + "which has exited");
  if (at > shared_bytes || shared_bytes - at < n) {
    fault(w, i, lane, what + "of which there are " + std::to_string(shared_bytes));
  }
  if (at & (n - 1)) fault(w, i, lane, what + "which is misaligned");
  return uint64_t(peer.shared.data) + at;
}
// The other block of the cluster that has a generic address in its shared memory, or null.
const RunningBlock* Run::peer_at(const Warp& w, uint64_t address) const {
  for (const RunningBlock* block : w.block->cluster->blocks) {
    if (block != w.block && address - uint64_t(block->shared.data) < shared_bytes) return block;
  }
  return nullptr;
}
void Run::locate_in_cluster(Warp& w, const Instruction& i, uint32_t lanes, Addresses& addresses) {
  const std::vector<RunningBlock*>& blocks = w.block->cluster->blocks;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint32_t lane = uint32_t(__builtin_ctz(m));
    uint64_t block = addresses[lane] >> OFFSET_BITS, at = addresses[lane] & ((1u << OFFSET_BITS) - 1);
    if (block > blocks.size()) fault(w, i, lane, "uses an address that is none of the shared memory of its cluster");
    addresses[lane] = in_peer(w, i, lane, block ? *blocks[block - 1] : *w.block, at);
  }
}
void Run::map(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint32_t* places = &function.operands[i.first];
  const uint32_t* ranks = w.at<uint32_t>(places[2]);
  const std::vector<RunningBlock*>& blocks = w.block->cluster->blocks;
  bool generic = i.access.space == Space::Generic, wide = i.access.wide_address;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint32_t lane = uint32_t(__builtin_ctz(m)), rank = ranks[lane];
    uint64_t from = wide ? w.at<uint64_t>(places[1])[lane] : w.at<uint32_t>(places[1])[lane];
    if (rank >= blocks.size()) {
      fault(w, i, lane, "maps an address to block " + std::to_string(rank) + " of its cluster, which has " +
                            std::to_string(blocks.size()));
    }
    uint64_t at = generic ? from - uint64_t(w.block->shared.data) : from & ((1u << OFFSET_BITS) - 1);
    if (at >= shared_bytes) fault(w, i, lane, "maps an address that is not in shared memory");
    uint64_t to = generic ? uint64_t(blocks[rank]->shared.data) + at : uint64_t(rank + 1) << OFFSET_BITS | at;
    if (wide) w.at<uint64_t>(places[0])[lane] = to;
    else w.at<uint32_t>(places[0])[lane] = uint32_t(to);
  }
}
}  // namespace emu::ptx
