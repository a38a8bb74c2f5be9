// keep_marked: keeps the marked rows of a list that is grouped by rank
//
// shapes    mark [m], counts [ranks], id [n] u32; kept, kept_row [<= n], kept_counts [ranks] u32
// grid      one block goes over the groups one after another, with a prefix sum over its threads
// memory    reads m + n words, writes up to 2 n; coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

// `segment`: the rank whose marks belong to the list, or NONE if all do.
extern "C" __global__ void __launch_bounds__(1024, 1)
keep_marked(const uint32_t* mark, const uint32_t* counts, const uint32_t* id, uint32_t* count, uint32_t* kept,
            uint32_t* kept_counts, uint32_t* kept_row, Rows marks, Rows ids, uint32_t ranks, uint32_t segment) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t m = marks.live(), n = ids.live(), listed = 0, done = 0;
  uint64_t begin = 0;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    uint64_t end = begin + counts[rank];
    uint32_t before = done;
    if (segment == NONE || segment == rank) {
      uint32_t first = uint32_t(min(begin, uint64_t(m))), last = uint32_t(min(end, uint64_t(m)));
      for (uint32_t base = first; base < last; base += blockDim.x) {
        uint32_t at = base + threadIdx.x, row = listed + (at - first), all;
        bool keeps = at < last && row < n && mark[at] == 1;
        uint32_t to = done + block_scan(keeps, sums, all);
        if (keeps) kept[to] = id[row], kept_row[to] = row;
        done += all;
      }
      listed += last - first;
    }
    if (threadIdx.x == 0) kept_counts[rank] = done - before;
    begin = end;
  }
  if (threadIdx.x == 0) *count = done;
}
