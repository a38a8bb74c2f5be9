// Executes the instructions of a warp.
//
// Lanes that stand at the same instruction go on together as a fragment. In order, the fragment that is least far in
// the code goes first, so that lanes meet again after a branch. In a random order any goes first, and fragments break
// up.
#include "run.hpp"

namespace emu::ptx {
// So many jumps of a block in which nothing changes that others can see: a wait for what never happens.
constexpr uint32_t MOST_IDLE_JUMPS = 1u << 22;

// Adds lanes to the fragment that stands at the same instruction for the same reason, or as a new one.
static void add_fragment(Warp& w, Fragment added) {
  for (Fragment& f : w.fragments) {
    if (f.at == added.at && f.waits == added.waits) return void(f.lanes |= added.lanes);
  }
  w.fragments.push_back(added);
}
// Takes away the fragments that stand at an instruction for a reason; returns their lanes.
static uint32_t take(Warp& w, uint32_t at, Waits waits) {
  uint32_t lanes = 0;
  for (size_t k = 0; k < w.fragments.size();) {
    if (w.fragments[k].at == at && w.fragments[k].waits == waits) {
      lanes |= w.fragments[k].lanes;
      w.fragments[k] = w.fragments.back();
      w.fragments.pop_back();
    } else {
      k++;
    }
  }
  return lanes;
}

// Executes a warp until nothing of it can go on or, in a random order, until it has had some turns.
void Run::run_warp(Warp& w, uint32_t turns) {
  Random& draws = w.block->random;
  for (;;) {
    const Fragment* chosen = nullptr;
    uint32_t ready = 0;
    for (const Fragment& f : w.fragments) {
      if (f.waits != Waits::Nothing) continue;
      ready++;
      if (!chosen || (random ? draws.below(ready) == 0 : f.at < chosen->at)) chosen = &f;
    }
    if (!chosen) return;
    Fragment now{chosen->at, take(w, chosen->at, Waits::Nothing), Waits::Nothing};
    uint32_t slice = ALL;  // instructions
    if (random) {
      slice = 1 + draws.below(64);
      uint32_t some = now.lanes & draws.draw();
      if (some && some != now.lanes && draws.below(8) == 0) {  // some lanes run ahead of the others
        w.fragments.push_back({now.at, now.lanes & ~some, Waits::Nothing});
        now.lanes = some;
      }
    }
    if (execute(w, now, slice)) w.fragments.push_back(now);
    if (random && (--turns == 0 || w.block->sleeps)) return;
  }
}

// Executes a fragment until it waits or ends (false), or until others may go first (true).
bool Run::execute(Warp& w, Fragment& now, uint32_t slice) {
  const Instruction* code = function.code.data();
  const uint32_t* operands = function.operands.data();
  std::atomic<bool>* ran = function.ran.get();
  for (;;) {
    const Instruction& i = code[now.at];
    uint32_t lanes = now.lanes;
    if (i.guard != NOWHERE) lanes &= i.negated ? ~*w.at<uint32_t>(i.guard) : *w.at<uint32_t>(i.guard);
    if (ran) ran[now.at].store(true, std::memory_order_relaxed);
    switch (i.kind) {
      case Kind::Compute:
        if (lanes) i.compute(w.registers.data, operands + i.first, lanes);
        break;
      case Kind::Load:
        if (lanes) load(w, i, lanes);
        break;
      case Kind::Store:
        if (lanes) store(w, i, lanes);
        break;
      case Kind::Atomic:
        if (lanes) update(w, i, lanes);
        if (random && w.block->random.below(2)) {  // other blocks may go on for long before this one does
          w.block->sleeps = w.block->random.below(5000);
          now.at++;
          return true;
        }
        break;
      case Kind::Nothing: break;
      case Kind::WaitForPrevious: w.waited |= lanes; break;
      case Kind::MapShared:
        if (lanes) map(w, i, lanes);
        break;
      case Kind::ClusterArrive:
      case Kind::ClusterWait:
        all_take_part(w, i, now.lanes, lanes);
        if (i.aligned && !gathers(w, now)) return false;
        if (i.kind == Kind::ClusterArrive) {
          arrive(w, i, now.lanes);
        } else if (!passes(w, i, now.lanes)) {
          add_fragment(w, {now.at, now.lanes, Waits::ForCluster});
          return false;
        }
        break;
      case Kind::GroupBarrier:
      case Kind::MatrixGroup:
        all_take_part(w, i, now.lanes, lanes);
        if (!gathers(w, now)) return false;
        if (i.kind == Kind::MatrixGroup) {
          multiply_as_group(w, i);
        } else if (!completes_group(w, i)) {
          add_fragment(w, {now.at, now.lanes, Waits::ForGroup});
          return false;
        }
        break;
      case Kind::Fence:
        if (lanes) fence(w, lanes);
        break;
      case Kind::Trap:
        if (lanes) fault(w, i, uint32_t(__builtin_ctz(lanes)), "executes trap");
        break;
      case Kind::Return:
        leave(w, lanes);
        now.lanes &= ~lanes;
        if (!now.lanes) return false;
        break;
      case Kind::Jump:
        if (++w.block->idle_jumps == MOST_IDLE_JUMPS) {
          fault(w, i, uint32_t(__builtin_ctz(now.lanes)), "jumps on and on, and nothing changes that others can see");
        }
        if (lanes == now.lanes) {
          now.at = i.target;
        } else {
          if (lanes) add_fragment(w, {i.target, lanes, Waits::Nothing});
          now.lanes &= ~lanes;
          now.at++;
        }
        if (--slice == 0 || !w.fragments.empty()) return true;
        continue;
      case Kind::Barrier:
        all_take_part(w, i, now.lanes, lanes);
        add_fragment(w, {now.at, lanes, Waits::ForBlock});
        return false;
      case Kind::Collective: {
        all_take_part(w, i, now.lanes, lanes);
        lanes |= take(w, now.at, Waits::ForLanes);
        uint32_t done = together(w, i, lanes);
        if (done != lanes) add_fragment(w, {now.at, lanes & ~done, Waits::ForLanes});
        if (!done) return false;
        now.lanes = done;
      }
    }
    now.at++;
    if (--slice == 0 || (code[now.at].labelled && !w.fragments.empty())) return true;
  }
}

// A guard may not keep some lanes of a fragment from a barrier or a collective: nvcc branches around these.
void Run::all_take_part(const Warp& w, const Instruction& i, uint32_t lanes, uint32_t taking) const {
  if (taking == lanes) return;
  fault(w, i, uint32_t(__builtin_ctz(lanes & ~taking)), "does not take part, by a guard, in what its warp does");
}

// Ends threads. Who waits for them in a collective need not any more.
void Run::leave(Warp& w, uint32_t lanes) {
  if (!w.products.empty()) fault(w, *w.products[0].instruction, 0, "ends before it has waited for its products");
  w.exited |= lanes;
  w.block->live -= uint32_t(__builtin_popcount(lanes));
  w.block->idle_jumps = 0;
  for (Fragment& f : w.fragments) {
    if (f.waits == Waits::ForLanes) f.waits = Waits::Nothing;
  }
  open_if_all_arrived(*w.block->cluster);
}
// Whether all live lanes of a warp are there to execute an instruction together; else the fragment waits for them.
bool Run::gathers(Warp& w, Fragment& now) {
  now.lanes |= take(w, now.at, Waits::ForLanes);
  if (now.lanes == w.alive()) return true;
  add_fragment(w, {now.at, now.lanes, Waits::ForLanes});
  return false;
}
}  // namespace emu::ptx
