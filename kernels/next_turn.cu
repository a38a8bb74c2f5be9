// next_turn: the batch of a step, if groups of ranks take turns
//
// shapes    range [1, 3] u32, clock [1, 2] u32; at [1, 2], writes, slot, clear [1] u32
// grid      one thread
// memory    reads and writes 40 bytes
// limiter   latency
// backward  -
// source    DistTGL, sections 3.2.2 and 3.2.3
#include "common.cuh"

// What a group of ranks does in a step of a pass: see `Turns` in src/ops/ranks/next_turn.rs.
struct Turn {
  uint32_t group, groups, copy, copies;
  uint32_t batch = 0, slot = 0, clear = NONE;

  __device__ void take(uint32_t step, uint32_t begin, uint32_t end, uint32_t shorter, uint32_t capacity) {
    uint64_t events = uint64_t(end - min(begin, end)) + shorter;
    uint32_t batches = uint32_t((events + capacity - 1) / max(capacity, 1u));
    // Batches are counted from the `groups` steps before the pass, in which a group has none.
    uint32_t turn = step + groups - group;
    slot = turn % groups;
    uint32_t begun = turn - slot + group;
    batch = batches;  // none
    if (batches == 0) return;
    uint64_t first = uint64_t(copy) * batches / copies;
    if (begun >= groups && begun - groups < batches) batch = uint32_t((first + begun - groups) % batches);
    for (uint32_t at = slot + 1 == groups ? groups : 0; at-- > 0;) {
      uint32_t next = begun + at + 1;
      if (next > groups && next - groups < batches && (first + next - groups) % batches == 0) clear = at;
    }
  }
};

extern "C" __global__ void __launch_bounds__(1, 1)
next_turn(const uint32_t* range, const uint32_t* clock, uint32_t* at, uint32_t* writes, uint32_t* slot, uint32_t* clear,
          Rows events, uint32_t capacity, uint32_t group, uint32_t groups, uint32_t copy, uint32_t copies) {
  after_previous_kernel();
  Turn turn{group, groups, copy, copies};
  turn.take(clock[1], range[0], min(range[1], events.live()), range[2], capacity);
  if (at) at[0] = clock[0] + copy * groups + turn.slot, at[1] = turn.batch;
  if (writes) *writes = turn.slot == 0 ? ~0u : 0;
  if (slot) *slot = turn.slot;
  if (clear) *clear = turn.clear;
}
