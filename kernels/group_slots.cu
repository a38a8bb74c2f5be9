// group_slots: slots of neighbours, grouped by the row that they read: slots[starts[r]..starts[r + 1]] are those of row r
//
// shapes    row [n, k], count [n], order [m] u32, the last two null where all slots count; starts [rows + 1], slots [listed] u32; counts [TILES, rows] u32
// grid      the slots in TILES tiles: a block a tile counts, one block adds up, then a warp a tile lists its slots in order
// memory    reads the slots' rows twice, writes a list of them; counts of all rows and tiles twice, coalesced
// limiter   latency: a warp finds the next place of 32 slots, a round after the other; rows of several are on their way
// backward  -
// source    a counting sort; what order the atomics take does not show: they only count
#include "common.cuh"

constexpr uint32_t TILES = 32, EACH = 4;

// The slots of some roots, and those of one tile among them: whole warps of slots as long as there are any.
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
  // The row of slot `j` of the root at place `at` is that of `s = at k + j`; NONE where it is not in use, or of no root.
  __device__ __forceinline__ uint32_t row_of(uint32_t s) const {
    uint32_t i = s < end ? root(s / k) : NONE, j = s % k;
    return i < known && (!count || j < count[i]) ? row[uint64_t(i) * k + j] : NONE;
  }
};

// How many slots of each tile read each row.
extern "C" __global__ void __launch_bounds__(1024, 1)
group_slots_count(const uint32_t* __restrict__ row, const uint32_t* __restrict__ count, const uint32_t* __restrict__ order,
                  uint32_t* counts, Rows roots, Rows known, Rows rows, uint32_t k, Status s) {
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

// Makes of counts where the first slot of each tile and row goes. A thread has a row's counts of all tiles in registers.
extern "C" __global__ void __launch_bounds__(512, 1)
group_slots_starts(uint32_t* counts, uint32_t* starts, uint32_t* listed, Rows rows) {
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

// Lists the slots of a tile. `next` has, by tile and row, where the next one goes.
extern "C" __global__ void __launch_bounds__(32, 1)
group_slots_list(const uint32_t* __restrict__ row, const uint32_t* __restrict__ count, const uint32_t* __restrict__ order,
                 uint32_t* next, uint32_t* list, Rows roots, Rows known, Rows rows, uint32_t k) {
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
      __syncwarp();  // all of a row have read its place
      if (used) list[at + rank] = base + e * WARP + lane_id();
      if (used && rank == 0) mine[of[e]] = at + uint32_t(__popc(same));
      __syncwarp();  // the places of the next ones are there
    }
  }
}
