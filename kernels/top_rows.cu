// top_rows: X[r] = x[i_r] tanh(y[i_r]), y = x p^T / |p|: the k rows with the highest scores, highest first; and its
// gradient
//
// shapes    x, dx [n, d], p, dp [1, d], X, dX [k, d], y of the selected rows [k] f32, present [n], i [k] u32
// grid      scores, X, dx: one warp per row; selection: one block of 1024, whose threads have up to 12 keys each in
//           registers; dp: one thread per column
// memory    reads n d words once, and n keys once (more than 12,288 keys six times); writes k d; the gradient reads 2 k d,
//           writes k d and zeros
// work      the selection counts keys by 8 bits in four passes, in shared memory, and compares k^2 pairs of rows
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

constexpr unsigned THREADS = 1024, WARPS = THREADS / WARP;
constexpr unsigned EACH = 12;               // keys of a thread, in registers
constexpr unsigned ROUND = THREADS * EACH;  // fits 16 bits
constexpr unsigned DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;  // bits that a pass finds, and the number of their values

// Finds the greatest digit that, with those above it, has been counted `wanted` times, and sets the counts to zero.
// Returns it with the number of those above it; zeros if there is none. For one warp; each lane gets the result.
__device__ __forceinline__ uint2 find_digit(uint32_t (&counts)[DIGITS], uint32_t wanted) {
  constexpr uint32_t OWN = DIGITS / WARP;
  uint32_t digit = DIGITS - 1 - lane_id() * OWN, count[OWN], sum = 0;  // lane 0 has the greatest digits
#pragma unroll
  for (uint32_t i = 0; i < OWN; i++) count[i] = counts[digit - i], counts[digit - i] = 0, sum += count[i];
  uint32_t reached = sum;
  for (unsigned o = 1; o < WARP; o *= 2) {
    uint32_t below = __shfl_up_sync(ALL, reached, o);
    reached += lane_id() < o ? 0 : below;
  }
  uint32_t above = reached - sum;
  unsigned here = __ballot_sync(ALL, above < wanted && wanted <= reached);
  bool open = true;
#pragma unroll
  for (uint32_t i = 0; i < OWN; i++) {
    open = open && above + count[i] < wanted;
    if (open) above += count[i], digit--;
  }
  int lane = __ffs(int(here)) - 1;
  digit = __shfl_sync(ALL, digit, lane), above = __shfl_sync(ALL, above, lane);
  return here ? make_uint2(digit, above) : make_uint2(0, 0);
}

// Repeats the last of the `m` selected rows up to k.
__device__ __forceinline__ void repeat_last(uint32_t* index, float* score, uint32_t m, uint32_t k) {
  __syncthreads();  // they have been written
  for (uint32_t r = m + threadIdx.x; r < k; r += THREADS) {
    index[r] = m ? index[m - 1] : NONE, score[r] = m ? score[m - 1] : 0.f;
  }
}

// `taken` has space for k pairs of key and row.
extern "C" __global__ void __launch_bounds__(1024, 1)
top_rows_select(const uint32_t* keys, uint32_t* taken, uint32_t* index, float* score, Rows rows, uint32_t k) {
  after_previous_kernel();
  __shared__ uint32_t counts[DIGITS], sums[WARP];
  __shared__ uint2 found;
  uint32_t n = rows.live(), lane = lane_id(), warp = threadIdx.x / WARP, first = warp * WARP * EACH + lane, key[EACH];
  auto load = [&](uint32_t base) {
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) key[j] = base + first + j * WARP < n ? keys[base + first + j * WARP] : 0;
  };
  // Calls `use` for each round of keys. The keys of a single round stay in registers.
  auto each_round = [&](auto&& use) {
    for (uint32_t base = 0; base < n; base += ROUND) {
      if (n > ROUND) load(base);
      use(base);
    }
  };
  load(0);
  for (uint32_t d = threadIdx.x; d < DIGITS; d += THREADS) counts[d] = 0;
  __syncthreads();  // the counts are zero
  // The largest key that at least k rows reach, found digit by digit; 0 if fewer than k rows are present. Of the keys
  // with the digits found so far, `wanted` are selected.
  uint32_t least = 0, wanted = k, known = 0;  // `known`: mask of the digits found so far
#pragma unroll 1
  for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    each_round([&](uint32_t) {
#pragma unroll
      for (unsigned j = 0; j < EACH; j++) {
        if (key[j] && (key[j] & known) == least) atomicAdd(&counts[key[j] >> shift & (DIGITS - 1)], 1u);
      }
    });
    __syncthreads();  // all have been counted
    if (warp == 0) {
      uint2 digit = find_digit(counts, wanted);
      if (lane == 0) found = digit;
    }
    __syncthreads();  // the digit has been written
    least |= found.x << shift, wanted -= found.y, known |= (DIGITS - 1) << shift;
  }
  // Among the rows with exactly that key, the first ones are selected. Rows keep their order.
  uint32_t equals = least ? wanted : 0, greater = 0, equal = 0;
  each_round([&](uint32_t base) {
    uint32_t found_here = 0, all;  // greater keys, and equal ones in the upper half
    auto lanes_of = [&](uint32_t of) {
      return make_uint2(__ballot_sync(ALL, of > least), __ballot_sync(ALL, least && of == least));
    };
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint2 lanes = lanes_of(key[j]);
      found_here += uint32_t(__popc(lanes.x)) + (uint32_t(__popc(lanes.y)) << 16);
    }
    uint32_t before = __shfl_sync(ALL, block_scan(lane == 0 ? found_here : 0, sums, all), 0);
    uint32_t more = greater + (before & 0xffffu), same = equal + (before >> 16);
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint2 lanes = lanes_of(key[j]);
      uint32_t same_before = same + lanes_below(lanes.y), at = more + lanes_below(lanes.x) + min(same_before, equals);
      if (lanes.x >> lane & 1 || (lanes.y >> lane & 1 && same_before < equals)) {
        taken[2 * at] = key[j], taken[2 * at + 1] = base + first + j * WARP;
      }
      more += uint32_t(__popc(lanes.x)), same += uint32_t(__popc(lanes.y));
    }
    greater += all & 0xffffu, equal += all >> 16;
  });
  uint32_t m = greater + min(equal, equals);
  __syncthreads();  // all have been written, in row order
  for (uint32_t a = warp; a < m; a += WARPS) {
    uint32_t own = taken[2 * a], rank = 0;
    for (uint32_t b = lane; b < m; b += WARP) rank += taken[2 * b] > own || (taken[2 * b] == own && b < a);
    rank = __reduce_add_sync(ALL, rank);
    if (lane == 0) index[rank] = taken[2 * a + 1], score[rank] = score_of(own);
  }
  repeat_last(index, score, m, k);
}

// The same, bit by bit: reads the keys 34 times (`Change::Small`).
extern "C" __global__ void __launch_bounds__(1024, 1)
top_rows_select_before(const uint32_t* keys, uint32_t* taken, uint32_t* index, float* score, Rows rows, uint32_t k) {
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
  repeat_last(index, score, m, k);
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
