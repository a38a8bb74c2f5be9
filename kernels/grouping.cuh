// A counting sort of items by key, by one block for each range of keys: every block reads the keys of all items.
#pragma once
#include "common.cuh"

constexpr unsigned GROUPING_THREADS = 1024;
constexpr unsigned GROUPING_EACH = 8;      // items of a thread, loaded at once
constexpr unsigned GROUPING_KEYS = 2048;   // maximum number of keys of a block
constexpr unsigned GROUPING_QUEUE = 4096;  // items of a block that are listed at a time

struct Grouping {
  uint32_t item[GROUPING_QUEUE], next[GROUPING_KEYS], sums[WARP];
  uint16_t key[GROUPING_QUEUE];
};

// Lists `n` items by key, those of a key in order: the items of key r are at `starts[r]` to `starts[r + 1]`. Keys from
// `live` on count as none; their starts, up to `capacity`, are the number of items listed, as is `listed`.
// `keys_of(first, key)` loads the keys of the items `first`, `first + WARP`, ..., NONE without one. `list(at, item, key)`
// receives each item's place. At most GROUPING_KEYS keys for each block of the grid.
template <class Keys, class List>
__device__ __forceinline__ void group(uint32_t n, uint32_t live, uint32_t capacity, uint32_t* starts, uint32_t* listed,
                                      Grouping& shared, Keys keys_of, List list) {
  constexpr uint32_t ROUND = GROUPING_THREADS * GROUPING_EACH;
  uint32_t per = (live + gridDim.x - 1) / gridDim.x, low = min(blockIdx.x * per, live);
  uint32_t own = min(per, live - low), lane = lane_id(), warp = threadIdx.x / WARP, below = 0, total = 0;
  for (uint32_t l = threadIdx.x; l < own; l += GROUPING_THREADS) shared.next[l] = 0;
  // Each pass lists the next GROUPING_QUEUE of the block's items. The first one counts, and reads all keys; the others
  // begin with the first round that has such an item.
  for (uint32_t window = 0, base = 0, passed = 0; window == 0 || window < total; window += GROUPING_QUEUE) {
    uint32_t rank = passed, next_base = 0, next_passed = 0, full = window + GROUPING_QUEUE;
    __syncthreads();  // counts are zero, or the queue has been read
    for (uint32_t round = base; round < n && (window == 0 || rank < full); round += ROUND) {
      uint32_t first = round + warp * WARP * GROUPING_EACH + lane, key[GROUPING_EACH], lanes[GROUPING_EACH], found = 0, all;
      bool some = first - lane < n;  // whether the warp has items
      if (some) keys_of(first, key);
#pragma unroll
      for (unsigned j = 0; some && j < GROUPING_EACH; j++) {
        lanes[j] = __ballot_sync(ALL, key[j] - low < own);
        below += window == 0 && key[j] < low;
        found += uint32_t(__popc(lanes[j]));
      }
      uint32_t at = rank + __shfl_sync(ALL, block_scan(lane == 0 ? found : 0, shared.sums, all), 0);
#pragma unroll
      for (unsigned j = 0; some && j < GROUPING_EACH; j++) {
        uint32_t place = at + lanes_below(lanes[j]) - window;
        if (lanes[j] >> lane & 1) {
          if (window == 0) atomicAdd(&shared.next[key[j] - low], 1u);
          if (place < GROUPING_QUEUE) shared.item[place] = first + j * WARP, shared.key[place] = uint16_t(key[j] - low);
        }
        at += uint32_t(__popc(lanes[j]));
      }
      if (rank <= full && full < rank + all) next_base = round, next_passed = rank;
      rank += all;
    }
    if (window == 0) {
      uint32_t before, of_tile;
      block_scan(below, shared.sums, before);
      total = rank;
      for (uint32_t tile = 0; tile < own; tile += GROUPING_THREADS) {
        uint32_t l = tile + threadIdx.x, count = l < own ? shared.next[l] : 0;
        uint32_t start = before + block_scan(count, shared.sums, of_tile);
        if (l < own) starts[low + l] = shared.next[l] = start;
        before += of_tile;
      }
      if (blockIdx.x == gridDim.x - 1) {
        for (uint64_t r = uint64_t(live) + threadIdx.x; r <= capacity; r += GROUPING_THREADS) starts[r] = before;
        if (threadIdx.x == 0) *listed = before;
      }
    }
    __syncthreads();  // starts and the queue have been written
    // One warp lists them: the next places depend on each other.
    for (uint32_t q = 0, queued = min(total - window, GROUPING_QUEUE); warp == 0 && q < queued; q += WARP) {
      bool here = q + lane < queued;
      uint32_t l = here ? shared.key[q + lane] : NONE, same = __match_any_sync(ALL, l), at = here ? shared.next[l] : 0;
      __syncwarp();  // all lanes of a key have read its next place
      if (here) list(at + lanes_below(same), shared.item[q + lane], low + l);
      if (here && lanes_below(same) == 0) shared.next[l] = at + uint32_t(__popc(same));
      __syncwarp();  // the next places have been written
    }
    base = next_base, passed = next_passed;
  }
}
