// group_slots: groups neighbour slots by the row they read: slots[starts[r]..starts[r + 1]] are the slots of row r
//
// shapes    row [n, k], count [n], order [m] u32, the last two null if all slots are used; starts [rows + 1],
//           slots [listed] u32; counts [TILES, rows] u32
// grid      the slots in TILES tiles: one block per tile counts, one block computes the prefix sum, then one warp per
//           tile lists its slots in order
// memory    reads the slots' rows twice, writes the list of slots; counts of all rows and tiles twice, coalesced
// limiter   latency: a warp places 32 slots per round, and rounds depend on each other; the rows of several rounds are
//           loaded at once
// backward  -
// source    a counting sort; the order of the atomics does not matter: they only count
#include "common.cuh"

constexpr uint32_t TILES = 32, EACH = 4;

// The slots of some roots, and the range of one tile; tiles consist of whole warps of slots, except for the last.
struct Slots {
  const uint32_t *row, *count, *order;
  uint32_t k, known, first, end;
  __device__ __forceinline__ Slots(const uint32_t* row, const uint32_t* count, const uint32_t* order, Rows roots, Rows known,
                                   uint32_t k, uint32_t tile)
      : row(row), count(count), order(order), k(k), known(known.live()) {
    uint32_t all = roots.live() * k, warps = (all + WARP - 1) / WARP, size = (warps + TILES - 1) / TILES * WARP;
    first = min(tile * size, all), end = min(first + size, all);
  }
  __device__ __forceinline__ uint32_t root(uint32_t at) const { return order ? order[at] : at; }
  // The row read by slot `j` of the root at index `at` of the order, s = at k + j; NONE if the slot is unused or the
  // root does not exist.
  __device__ __forceinline__ uint32_t row_of(uint32_t s) const {
    uint32_t i = s < end ? root(s / k) : NONE, j = s % k;
    return i < known && (!count || j < count[i]) ? row[uint64_t(i) * k + j] : NONE;
  }
};

// Counts, for each tile, the slots that read each row.
extern "C" __global__ void __launch_bounds__(1024, 1)
group_slots_count(const uint32_t* __restrict__ row, const uint32_t* __restrict__ count, const uint32_t* __restrict__ order,
                  uint32_t* counts, Rows roots, Rows known, Rows rows, uint32_t k, Status s) {
  after_previous_kernel();
  Slots slots(row, count, order, roots, known, k, blockIdx.x);
  uint32_t* mine = counts + uint64_t(blockIdx.x) * rows.capacity;
  uint32_t live = rows.live();
  for (uint32_t r = threadIdx.x; r < live; r += blockDim.x) mine[r] = 0;
  __syncthreads();  // counts are zero
  for (uint32_t at = slots.first + threadIdx.x; at < slots.end; at += blockDim.x) {
    uint32_t root = slots.root(at / k), r = s.row_of(root, slots.row_of(at), live);
    s.row_of(at / k, root, slots.known);
    if (r != NONE) atomicAdd(&mine[r], 1u);
  }
}

// Turns the counts into the index of the first slot of each tile and row. A thread holds the counts of one row, of all
// tiles, in registers.
extern "C" __global__ void __launch_bounds__(512, 1)
group_slots_starts(uint32_t* counts, uint32_t* starts, uint32_t* listed, Rows rows) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t live = rows.live(), before = 0;
  for (uint32_t base = 0; base < live; base += blockDim.x) {
    uint32_t r = base + threadIdx.x, own[TILES], sum = 0, all;
#pragma unroll
    for (uint32_t t = 0; t < TILES; t++) own[t] = r < live ? counts[uint64_t(t) * rows.capacity + r] : 0, sum += own[t];
    uint32_t at = before + block_scan(sum, sums, all);
    if (r < live) {
      starts[r] = at;
#pragma unroll
      for (uint32_t t = 0; t < TILES; t++) counts[uint64_t(t) * rows.capacity + r] = at, at += own[t];
    }
    before += all;
  }
  for (uint64_t r = uint64_t(live) + threadIdx.x; r <= rows.capacity; r += blockDim.x) starts[r] = before;
  if (threadIdx.x == 0) *listed = before;
}

// Lists the slots of a tile. `next` holds, for each tile and row, the index of the row's next slot.
extern "C" __global__ void __launch_bounds__(32, 1)
group_slots_list(const uint32_t* __restrict__ row, const uint32_t* __restrict__ count, const uint32_t* __restrict__ order,
                 uint32_t* next, uint32_t* list, Rows roots, Rows known, Rows rows, uint32_t k) {
  after_previous_kernel();
  Slots slots(row, count, order, roots, known, k, blockIdx.x);
  uint32_t* mine = next + uint64_t(blockIdx.x) * rows.capacity;
  uint32_t live = rows.live();
  for (uint32_t base = slots.first; base < slots.end; base += WARP * EACH) {
    uint32_t of[EACH];
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) of[e] = slots.row_of(base + e * WARP + lane_id());
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
      bool used = of[e] < live;
      uint32_t same = __match_any_sync(ALL, of[e]), rank = lanes_below(same), at = used ? mine[of[e]] : 0;
      __syncwarp();  // all lanes of a row have read its next index
      if (used) list[at + rank] = base + e * WARP + lane_id();
      if (used && rank == 0) mine[of[e]] = at + uint32_t(__popc(same));
      __syncwarp();  // the next indices have been written
    }
  }
}
