// The mean binary cross entropy of n rows of m logits: column 0 holds positives, the others negatives.
#pragma once
#include "common.cuh"

// 1 / (number of elements in the mean that the column belongs to).
__device__ __forceinline__ float bce_weight(uint64_t column, uint32_t n, uint32_t m) {
  return float(1.0 / (double(n) * (column ? m - 1 : 1)));
}
// The gradient of a logit of the column, whose `bce_weight` is given.
__device__ __forceinline__ float bce_gradient(float logit, uint64_t column, float weight) {
  return (sigmoid(logit) - (column ? 0.f : 1.f)) * weight;
}
