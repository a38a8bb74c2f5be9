// draw_non_edges: for each item (an edge of a step), its destination and m vertices that are no destination of its
// source in that step
//
// shapes    src, dst [e] u32, sorted within a step; offsets [s + 1], step [1], item [<= b], now [1, 2] u32;
//           out [<= b, 1 + m]
// grid      one thread per element, grid-stride loop
// memory    reads 3 words per item; per element 3 binary searches over the step's edges, whose probes neighbouring
//           threads share; writes b (1 + m) words, coalesced
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

extern "C" __global__ void __launch_bounds__(256, FULL)
draw_non_edges(const uint32_t* src, const uint32_t* dst, const uint32_t* offsets, const uint32_t* step, const uint32_t* item,
               const uint32_t* now, uint32_t* out, Rows items, uint32_t edges, uint32_t steps, uint32_t vertices, uint32_t m,
               Key key, Status s) {
  after_previous_kernel();
  uint64_t n = uint64_t(items.live()) * (1 + m);
  uint32_t at_step = s.row_of(0, *step, steps), first = 0, last = 0;
  if (at_step != NONE) first = offsets[at_step], last = offsets[at_step + 1];
  if (first > last || last > edges) s.fault(0, first), first = last = 0;
  for (uint64_t element = thread_item(); element < n; element += thread_items()) {
    uint32_t i = uint32_t(element / (1 + m)), j = uint32_t(element % (1 + m)), edge = s.row_of(i, item[i], edges);
    if (edge == NONE || j == 0) {
      out[element] = edge == NONE ? NONE : dst[edge];
      continue;
    }
    // The source's destinations; the number of the other vertices, and how many of these are below the source.
    uint32_t u = src[edge], begin = numbers_below(src + first, last - first, u);
    const uint32_t* to = dst + first + begin;
    uint32_t degree = numbers_below(src + first + begin, last - first - begin, uint64_t(u) + 1);
    uint32_t smaller = numbers_below(to, degree, u), before = u - smaller;
    bool itself = smaller < degree && to[smaller] == u;
    uint32_t excluded = degree + !itself, others = vertices > excluded ? vertices - excluded : 0;
    uint64_t draw = uint64_t(i) * m + j - 1;
    uint4 of = key.draw(draw / 4, now[0], now[1]);
    uint32_t low_word = draw & 1 ? of.y : of.x, high_word = draw & 1 ? of.w : of.z;
    uint32_t k = __umulhi(draw & 2 ? high_word : low_word, others ? others : vertices);
    if (others == 0) {
      out[element] = k;
      continue;
    }
    if (!itself && k >= before) k++;
    // Below destination to[p] there are to[p] - p vertices that are not destinations.
    uint32_t low = 0, high = degree;
    while (low < high) {
      uint32_t middle = low + (high - low) / 2;
      if (to[middle] - middle <= k) low = middle + 1; else high = middle;
    }
    out[element] = k + low;
  }
}
