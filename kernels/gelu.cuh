// The normal distribution function and its density, of which a GELU is made.
#pragma once
#include "common.cuh"

__device__ __forceinline__ float below(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }
__device__ __forceinline__ float density(float x) { return 0.39894228f * expf(-0.5f * x * x); }
