// Lists of rows that are grouped by rank.
#pragma once
#include "common.cuh"

// Returns the rank to whose group row `i` of a list belongs; `ranks` if it is beyond all groups.
__device__ __forceinline__ uint32_t rank_of(uint32_t i, const uint32_t* counts, uint32_t ranks) {
  uint64_t end = 0;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    end += counts[rank];
    if (i < end) return rank;
  }
  return ranks;
}
