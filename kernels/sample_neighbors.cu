// sample_neighbors: the temporal neighbours of each query (node, time) in a T-CSR, strictly before the query's time
//
// shapes    offsets [v + 1] i64, entries [2 e, 2] i64, position [e, 2] u32, queries [n]; slots [n, k], count [n]
// grid      one warp per query: its lanes probe 32 entries at a time, then each lane fills a slot
// memory    reads 24 n + 16 n k bytes and the entries probed, writes 12 n k + 4 n, 8 n k more with times; slots
//           coalesced
// limiter   latency: query, list, position and entries are dependent loads
// backward  -
// source    TGN's most recent sampling; the T-CSR is TGL's, the stored position is ours
#include "common.cuh"

struct Entry {
  int64_t time;
  uint2 end;  // other end, event
};

// How many of a list's `n` entries have an event before `bound` and a time before `now`; these are a prefix of the
// list. Probes the 32 entries up to the guess, which is right if the query's own position is known; then probes 32
// entries spread over the remaining range.
__device__ uint32_t history(const Entry* list, uint32_t n, uint32_t guess, uint32_t bound, int64_t now) {
  uint32_t low = 0, high = n;  // the result is between low and high, inclusive
  uint32_t end = guess < n ? guess + 1 : n, begin = end - min(end, WARP), width = end - begin;
  while (low < high) {
    auto place = [=](uint32_t lane) { return begin + (width > WARP ? uint32_t(uint64_t(width) * lane / WARP) : lane); };
    uint32_t at = place(lane_id()), looks = min(width, WARP);
    bool earlier = lane_id() < looks && list[at].end.y < bound && list[at].time < now;
    uint32_t before = __popc(__ballot_sync(ALL, earlier));
    if (before > 0) low = place(before - 1) + 1;
    if (before < looks) high = place(before);
    begin = low, width = high - low;
  }
  return low;
}

// Without positions (e = 0) every query searches from the end of its list. `stride`: roots per event, the first two of
// which are its ends; 0 if the queries are not roots. `clocks`: words of the clock. `per_event`: slots of an event.
// `by_time`: whether earlier events of the batch are history, too.
extern "C" __global__ void __launch_bounds__(256, FULL)
sample_neighbors(const int64_t* offsets, const int64_t* entries, const uint32_t* position, const uint32_t* query,
                 const int64_t* time, const uint32_t* batch, const uint32_t* clock, uint32_t* node, uint32_t* event,
                 float* dt, int64_t* when, uint32_t* count, Rows queries, Rows events, uint32_t v, uint32_t e,
                 uint64_t listed, uint32_t k, uint32_t stride, uint32_t clocks, uint32_t per_event, uint32_t uniform,
                 uint32_t by_time, Gaps gaps, Key key, Status s) {
  after_previous_kernel();
  uint32_t before = clocks > 2 ? clock[2] : 0;  // events of the batch that other ranks have
  uint32_t n = queries.live(), first = events.live() ? batch[0] - min(batch[0], before) : 0;
  uint32_t bound = by_time ? NONE : first;
  uint64_t drawn = uint64_t(before) * per_event;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t of = s.row_of(i, query[i], v);
    int64_t now = time[i], start = of == NONE ? 0 : offsets[of], stop = of == NONE ? 0 : offsets[of + 1];
    if (start < 0 || stop < start || uint64_t(stop) > listed) {
      s.fault(i, of);
      start = stop = 0;
    }
    uint32_t length = uint32_t(stop - start);
    bool own = stride && i % stride < 2 && batch[i / stride] < e;
    uint32_t guess = own ? position[uint64_t(2) * batch[i / stride] + i % stride]
                   : e   ? uint32_t(uint64_t(length) * first / e)
                         : length;
    const Entry* list = reinterpret_cast<const Entry*>(entries) + start;
    uint32_t known = history(list, length, guess, bound, now);
    if (count && lane_id() == 0) count[i] = min(known, k);
    for (uint32_t j = lane_id(); j < k; j += WARP) {
      uint64_t slot = uint64_t(i) * k + j;
      uint2 end = make_uint2(NONE, NONE);
      float gap = 0;
      int64_t at = 0;
      if (j < known) {
        bool draw = uniform && known > k;
        Entry taken = list[draw ? key.below(drawn + slot, known, clock[0], clock[1]) : known - 1 - j];
        end = taken.end, gap = gaps.seconds(taken.time, now), at = taken.time;
      }
      if (node) node[slot] = end.x;
      if (event) event[slot] = end.y;
      if (dt) dt[slot] = gap;
      if (when) when[slot] = at;
    }
  }
}
