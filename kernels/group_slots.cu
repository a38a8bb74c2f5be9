// group_slots: groups neighbour slots by the row they read: slots[starts[r]..starts[r + 1]] are the slots of row r
//
// shapes    row [n, k], count [n], order [m] u32, the last two null if all slots are used; starts [rows + 1],
//           slots [listed] u32
// grid      one thread per slot finds its row, unless all slots are used; then one block of 1024 for each range of rows
//           reads the rows of all slots
// memory    reads each slot's row, root and count, writes its row; reads that once per block, from L2; writes the list
// limiter   latency: order, count and row of a slot depend on each other; then the instructions per slot of each block
// backward  -
// source    a counting sort; the order of the atomics does not matter: they only count
#include "grouping.cuh"

// Stores the row read by each slot s = at k + j, neighbour `j` of the root at index `at` of the order; NONE if the slot is
// unused or the root does not exist. Without `order` all roots, without `count` all slots are used.
extern "C" __global__ void __launch_bounds__(256, FULL)
group_slots_rows(const uint32_t* __restrict__ row, const uint32_t* __restrict__ count, const uint32_t* __restrict__ order,
                 uint32_t* row_of, Rows roots, Rows known, Rows rows, uint32_t k, Status s) {
  after_previous_kernel();
  uint32_t n = roots.live() * k, all = known.live(), live = rows.live();
  for (uint32_t slot = uint32_t(thread_item()); slot < n; slot += uint32_t(thread_items())) {
    uint32_t at = slot / k, j = slot % k, root = s.row_of(at, order ? order[at] : at, all);
    bool used = root != NONE && (!count || j < count[root]);
    row_of[slot] = used ? s.row_of(root, row[uint64_t(root) * k + j], live) : NONE;
  }
}

// Lists the slots by row; those with no row below the live ones are left out. Of these, the first block reports the ones
// that are not NONE.
extern "C" __global__ void __launch_bounds__(1024, 1)
group_slots(const uint32_t* __restrict__ row_of, uint32_t* starts, uint32_t* slots, uint32_t* listed, Rows roots, Rows rows,
            uint32_t k, Status s) {
  after_previous_kernel();
  __shared__ Grouping shared;
  uint32_t n = roots.live() * k, live = rows.live();
  group(n, live, rows.capacity, starts, listed, shared, [=](uint32_t first, uint32_t (&key)[GROUPING_EACH]) {
#pragma unroll
    for (unsigned e = 0; e < GROUPING_EACH; e++) key[e] = first + e * WARP < n ? row_of[first + e * WARP] : NONE;
    if (blockIdx.x > 0) return;
#pragma unroll
    for (unsigned e = 0; e < GROUPING_EACH; e++) s.row_of((first + e * WARP) / k, key[e], live);
  }, [=](uint32_t at, uint32_t slot, uint32_t) { slots[at] = slot; });
}
