// Which events of a stream a batch has.
#pragma once
#include "common.cuh"

// The first event of batch `nth` of the pass over [begin, end), of `capacity` events each, and one past its last. Batches
// are counted as if the pass began `less` events earlier; the events before its beginning are left out.
struct BatchEvents {
  uint64_t first, past;

  __device__ BatchEvents(uint64_t nth, uint32_t begin, uint32_t end, uint32_t less, uint32_t capacity) {
    uint64_t from = begin + nth * capacity, until = from + capacity;
    first = max(from - min(from, uint64_t(less)), uint64_t(begin));
    past = max(min(until - min(until, uint64_t(less)), uint64_t(end)), first);
  }
  __device__ uint32_t events() const { return uint32_t(past - first); }
};
