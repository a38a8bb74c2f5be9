// draw_non_edges: for each item (an edge of a step), its destination and m vertices that are no destination of its
// source in that step
//
// shapes    src, dst [e] u32, sorted within a step; offsets [s + 1], step [1], item [<= b], now [1, 2] u32;
//           out [<= b, 1 + m]
// grid      one warp per 32 items: a lane searches the destinations of an item's source; then a lane per element
// memory    reads 3 words per item; 3 binary searches per item, one more over few words per element; writes b (1 + m)
//           words, coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

// How many of `n` ascending numbers are below `x`.
__device__ __forceinline__ uint32_t numbers_below(const uint32_t* of, uint32_t n, uint64_t x) {
  uint32_t low = 0, high = n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (of[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

// Where an item's destinations are: `degree` of them, from `begin` on among the edges; the number of vertices that are
// neither below the source nor destinations, and how many of those are below it.
struct Item {
  uint32_t edge, begin, degree, before, others;
  bool itself;  // whether the source is one of its destinations
};

extern "C" __global__ void __launch_bounds__(256, 6)
draw_non_edges(const uint32_t* src, const uint32_t* dst, const uint32_t* offsets, const uint32_t* step, const uint32_t* item,
               const uint32_t* now, uint32_t* out, Rows items, uint32_t edges, uint32_t steps, uint32_t vertices, uint32_t m,
               Key key, Status s) {
  after_previous_kernel();
  uint32_t n = items.live(), at_step = s.row_of(0, *step, steps), first = 0, last = 0;
  if (at_step != NONE) first = offsets[at_step], last = offsets[at_step + 1];
  if (first > last || last > edges) s.fault(0, first), first = last = 0;
  for (uint64_t base = uint64_t(warp_row()) * WARP; base < n; base += uint64_t(warp_rows()) * WARP) {
    uint32_t mine = uint32_t(base) + lane_id();
    Item of{NONE, 0, 0, 0, 0, false};
    if (mine < n) of.edge = s.row_of(mine, item[mine], edges);
    if (m && of.edge != NONE) {
      uint32_t u = src[of.edge];
      of.begin = first + numbers_below(src + first, last - first, u);
      of.degree = numbers_below(src + of.begin, last - of.begin, uint64_t(u) + 1);
      const uint32_t* to = dst + of.begin;
      uint32_t smaller = numbers_below(to, of.degree, u);
      of.itself = smaller < of.degree && to[smaller] == u, of.before = u - smaller;
      uint32_t excluded = of.degree + !of.itself;
      of.others = vertices > excluded ? vertices - excluded : 0;
    }
    uint32_t here = min(WARP, n - uint32_t(base)), elements = here * (1 + m);
    for (uint32_t start = 0; start < elements; start += WARP) {
      uint32_t e = start + lane_id(), in_warp = min(e / (1 + m), here - 1), j = e % (1 + m);
      auto shown = [&](uint32_t of_lane) { return __shfl_sync(ALL, of_lane, int(in_warp)); };
      uint32_t edge = shown(of.edge), begin = shown(of.begin), degree = shown(of.degree), before = shown(of.before);
      uint32_t others = shown(of.others), itself = shown(of.itself);
      if (e >= elements) continue;
      uint64_t i = base + in_warp;
      uint32_t* result = out + base * (1 + m) + e;
      if (edge == NONE || j == 0) {
        *result = edge == NONE ? NONE : dst[edge];
        continue;
      }
      uint64_t draw = i * m + j - 1;
      uint4 of_four = key.draw(draw / 4, now[0], now[1]);
      uint32_t low_word = draw & 1 ? of_four.y : of_four.x, high_word = draw & 1 ? of_four.w : of_four.z;
      uint32_t k = __umulhi(draw & 2 ? high_word : low_word, others ? others : vertices);
      if (others == 0) {
        *result = k;
        continue;
      }
      if (!itself && k >= before) k++;
      // Below destination to[p] there are to[p] - p vertices that are not destinations.
      const uint32_t* to = dst + begin;
      uint32_t low = 0, high = degree;
      while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (to[middle] - middle <= k) low = middle + 1; else high = middle;
      }
      *result = k + low;
    }
  }
}
