// top_rows: X[r] = x[i_r] tanh(y[i_r]), y = x p^T / |p|: the k rows with the highest scores, highest first; and its
// gradient
//
// shapes    x, dx [n, d], p, dp [1, d], X, dX [k, d], y of the selected rows [k] f32, present [n], i [k] u32
// grid      scores, X, dx: one warp per row; selection: one block of 1024; dp: one thread per column
// memory    reads n d words once, and n keys 34 times; writes k d; the gradient reads 2 k d, writes k d and zeros
// limiter   memory for the scores, latency for the selection
// backward  if a row is selected for several r, the warp of the first one sums them, in order
// source    the summary of EvolveGCN-H (Pareja et al. 2020), after Gao and Ji 2019
#include "common.cuh"

// Maps scores to keys in the same order; 0 is the key of an absent row.
__device__ __forceinline__ uint32_t key_of(float score) {
  uint32_t bits = __float_as_uint(score);
  return max(1u, bits >> 31 ? ~bits : bits | 1u << 31);
}
__device__ __forceinline__ float score_of(uint32_t key) { return __uint_as_float(key >> 31 ? key ^ 1u << 31 : ~key); }

// The dot product of two rows, the same in every lane; every lane of the warp must call it.
__device__ __forceinline__ float row_product(const float* a, const float* b, uint32_t d) {
  float sum = 0.f;
  for (uint32_t c = lane_id(); c < d; c += WARP) sum += a[c] * b[c];
  return warp_sum(sum);
}

extern "C" __global__ void __launch_bounds__(256, FULL)
top_rows_score(const float* x, const float* p, const uint32_t* present, uint32_t* keys, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float length = sqrtf(row_product(p, p, d));
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    bool there = present[i] != NONE;  // the same in the whole warp
    float score = there ? row_product(x + uint64_t(i) * d, p, d) / length : 0.f;
    if (lane_id() == 0) keys[i] = there ? key_of(score) : 0;
  }
}

// `taken` has space for k pairs of key and row.
extern "C" __global__ void __launch_bounds__(1024, 1)
top_rows_select(const uint32_t* keys, uint32_t* taken, uint32_t* index, float* score, Rows rows, uint32_t k) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t n = rows.live();
  // The number of keys >= `least`.
  auto count = [&](uint32_t least) {
    uint32_t found = 0, all;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) found += keys[i] >= least;
    block_scan(found, sums, all);
    return all;
  };
  // The largest key that at least k rows reach, found bit by bit; 0 if fewer than k rows are present.
  uint32_t least = 0;
  for (int bit = 31; bit >= 0; bit--) {
    if (count(least | 1u << bit) >= k) least |= 1u << bit;
  }
  // Among the rows with exactly that key, the first ones are selected.
  uint32_t equals = least ? k - (least == ~0u ? 0 : count(least + 1)) : 0, seen = 0, m = 0;
  for (uint32_t base = 0; base < n; base += blockDim.x) {
    uint32_t i = base + threadIdx.x, key = i < n ? keys[i] : 0, all;
    bool equal = least && key == least;
    uint32_t before = block_scan(equal, sums, all);
    bool take = key > least || (equal && seen + before < equals);
    seen += all;
    uint32_t at = m + block_scan(take, sums, all);
    if (take) taken[2 * at] = key, taken[2 * at + 1] = i;
    m += all;
  }
  __syncthreads();  // all have been written, in row order
  for (uint32_t a = threadIdx.x; a < m; a += blockDim.x) {
    uint32_t key = taken[2 * a], rank = 0;
    for (uint32_t b = 0; b < m; b++) rank += taken[2 * b] > key || (taken[2 * b] == key && b < a);
    index[rank] = taken[2 * a + 1], score[rank] = score_of(key);
  }
  __syncthreads();
  for (uint32_t r = m + threadIdx.x; r < k; r += blockDim.x) {
    index[r] = m ? index[m - 1] : NONE, score[r] = m ? score[m - 1] : 0.f;
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
top_rows(const float* x, const uint32_t* index, const float* score, float* out, uint32_t k, uint32_t d) {
  after_previous_kernel();
  if (!out) return;
  for (uint32_t r = warp_row(); r < k; r += warp_rows()) {
    uint32_t row = index[r];
    float by = tanhf(score[r]);
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      out[uint64_t(r) * d + c] = row == NONE ? 0.f : x[uint64_t(row) * d + c] * by;
    }
  }
}

// Gradients of the scores and of the selected rows; dx must be zeros before, and may be null.
extern "C" __global__ void __launch_bounds__(256, 6)
top_rows_input_grad(const float* x, const float* p, const uint32_t* index, const float* score, const float* dout, float* dx,
                    float* dscore, Rows rows, uint32_t k, uint32_t d, Status s) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float length = sqrtf(row_product(p, p, d));
  for (uint32_t r = warp_row(); r < k; r += warp_rows()) {
    uint32_t row = s.row_of(r, index[r], n), until = r;
    float by = tanhf(score[r]), slope = 1.f - by * by, sum = 0.f;
    if (row == NONE) {
      if (lane_id() == 0) dscore[r] = 0.f;
      continue;
    }
    const float* own = x + uint64_t(row) * d;
    bool first = r == 0 || index[r - 1] != row;
    do {
      float of = row_product(dout + uint64_t(until) * d, own, d) * slope;
      if (until == r && lane_id() == 0) dscore[r] = of;
      sum += of, until++;
    } while (first && dx && until < k && index[until] == row);
    if (!first || !dx) continue;
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      float up = 0.f;
      for (uint32_t same = r; same < until; same++) up += dout[uint64_t(same) * d + c];
      dx[uint64_t(row) * d + c] = up * by + sum * p[c] / length;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
top_rows_score_grad(const float* x, const float* p, const uint32_t* index, const float* score, const float* dscore, float* dp,
                    Rows rows, uint32_t k, uint32_t d) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float length = sqrtf(row_product(p, p, d));
  for (uint32_t c = uint32_t(thread_item()); c < d; c += uint32_t(thread_items())) {
    float sum = 0.f, own = p[c] / length;
#pragma unroll 4
    for (uint32_t r = 0; r < k; r++) {
      uint32_t row = index[r];
      if (row < n) sum += dscore[r] * (x[uint64_t(row) * d + c] - score[r] * own);
    }
    dp[c] = sum / length;
  }
}
