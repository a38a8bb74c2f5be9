// split_rows: copies the first rows and the others to two values; join_split: puts them together again
//
// shapes    x, first, rest, out [<= n, d] 4-byte words; count, first_count, rest_count [1] u32 or null
// grid      one thread per word; grid-stride loop
// memory    reads and writes n d words; coalesced
// limiter   memory
// backward  split_rows of the gradient for join_split
// source    the memory operations of PipeTGL, section 4.1
#include "common.cuh"

// `firsts`: the rows of the first part, unless `count` says how many there are; `rests`: at most those of the second.
extern "C" __global__ void __launch_bounds__(256, FULL)
split_rows(const uint32_t* x, const uint32_t* count, uint32_t* first, uint32_t* rest, uint32_t* first_count,
           uint32_t* rest_count, Rows all, Rows firsts, Rows rests, uint32_t d) {
  after_previous_kernel();
  uint32_t n = all.live(), cut = min(count ? *count : firsts.live(), n), end = min(rests.live(), n - cut);
  for (uint64_t i = thread_item(); first && i < uint64_t(cut) * d; i += thread_items()) first[i] = x[i];
  for (uint64_t i = thread_item(); rest && i < uint64_t(end) * d; i += thread_items()) rest[i] = x[uint64_t(cut) * d + i];
  if (thread_item() != 0) return;
  if (first_count) *first_count = cut;
  if (rest_count) *rest_count = n - cut;
}

extern "C" __global__ void __launch_bounds__(256, FULL)
join_split(const uint32_t* first, const uint32_t* rest, uint32_t* out, Rows all, Rows firsts, Rows rests, uint32_t d,
           Status s) {
  after_previous_kernel();
  uint32_t n = all.live(), cut = firsts.live();
  if (cut + rests.live() != n) {
    if (thread_item() == 0) s.fault(cut, rests.live());
    return;
  }
  for (uint64_t i = thread_item(); i < uint64_t(n) * d; i += thread_items()) {
    out[i] = i < uint64_t(cut) * d ? first[i] : rest[i - uint64_t(cut) * d];
  }
}
