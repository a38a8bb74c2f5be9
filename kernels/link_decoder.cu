// link_decoder: logit[i, j] = w . relu(W_src z_u + W_dst z_x + b) + b_out, and its gradients
//
// shapes    z [n r, d] f32, r roots per event: its source, then x = r - 1 candidates; W_src, W_dst [c, d], b, w [1, c],
//           logits [n, x], hidden [n, x c]
// grid      products: one block of 256 per tile of 64 x 64, of one root of 64 events (product.cuh);
//           logits: one warp per candidate; dhidden: one warp per event and 32 columns; weight gradients: row ranges
//           along z, for W_src, then for W_dst
// memory    reads n r d c / 64 words of each operand through L2; reads and writes hidden once more for the logits; the
//           backward pass stores dhidden, n r c words
// limiter   f32 arithmetic, 2 n r d c operations, twice as many in the backward pass
// backward  dhidden = dlogit w [hidden > 0], its sum over candidates for the source; dz = dhidden W, dW = dhidden^T z
// source    TGN's merge layer (Rossi et al. 2020), split as in PyTorch Geometric
#include "bce_loss.cuh"
#include "product.cuh"

// The tile of a block: the grid's x dimension has every root of 64 events, and then those of the next ones.
__device__ __forceinline__ Tile tile_of_root(uint32_t events, uint32_t columns, uint32_t roots) {
  return {blockIdx.x / roots * TILE, events, blockIdx.y * TILE, columns};
}

// Computes W_src z_u into `from_u` [n, c] and W_dst z_x into `hidden`.
extern "C" __global__ void __launch_bounds__(256, 2)
link_decoder_products(const float* z, const float* w_src, const float* w_dst, float* from_u, float* hidden, Rows events,
                      uint32_t roots, uint32_t d, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t root = blockIdx.x % roots;
  float* to = root ? hidden + uint64_t(root - 1) * c : from_u;
  uint64_t stride = root ? uint64_t(roots - 1) * c : c;
  product<Along::Sum, Along::Sum>(
      precision, tile_of_root(events.live(), c, roots), 0, d, Matrix{z + uint64_t(root) * d, uint64_t(roots) * d},
      Matrix{root ? w_dst : w_src, d}, [=](const Sums& sums, Tile tile) { tile.store(sums, Output{to, stride, c}); });
}

extern "C" __global__ void __launch_bounds__(256, 2)
link_decoder_logits(const float* from_u, const float* b, const float* w, const float* b_out, float* hidden, float* logits,
                    Rows events, uint32_t x, uint32_t c) {
  after_previous_kernel();
  uint64_t n = uint64_t(events.live()) * x, warps = warp_rows();
  for (uint64_t row = warp_row(); row < n; row += warps) {
    const float* u = from_u + row / x * c;
    float sum = 0.f;
    float* of_row = hidden + row * c;
    // Four elements are loaded before any of them is stored, so that they are on their way at the same time.
#pragma unroll 1
    for (uint32_t first = lane_id(); first < c; first += 4 * WARP) {
      float h[4], with[4];
#pragma unroll
      for (uint32_t q = 0; q < 4; q++) {
        uint32_t l = first + q * WARP;
        if (l < c) h[q] = relu(of_row[l] + u[l] + b[l]), with[q] = w[l];
      }
#pragma unroll
      for (uint32_t q = 0; q < 4; q++) {
        uint32_t l = first + q * WARP;
        if (l < c) of_row[l] = h[q], sum = fmaf(h[q], with[q], sum);
      }
    }
    sum = warp_sum(sum);
    if (logits && lane_id() == 0) logits[row] = sum + b_out[0];
  }
}

// The gradients of the sums before relu, `dhidden` [n r, c], with rows as in z; and the gradients of b, w and b_out
// through partial sums [2, c + 1], whose last column, where hidden counts as 1, is the gradient of b_out. The x
// dimension of the grid tiles the columns by 32. If `dloss`, the gradient of the logits' mean binary cross entropy, is
// not null, `dlogits` are the logits, and their gradients are computed here, by every block and lane that needs them.
extern "C" __global__ void __launch_bounds__(256, 2)
link_decoder_grad(const float* w, const float* hidden, const float* dlogits, const float* dloss, float* dhidden, float* made,
                  uint32_t* tickets, float* db, float* dw, float* db_out, Rows events, uint32_t x, uint32_t c) {
  after_previous_kernel();
  constexpr uint32_t WARPS = 256 / WARP, AT_ONCE = 2;  // candidates
  __shared__ float of_b[WARPS][WARP], of_w[WARPS][WARP];
  uint32_t n = events.live();
  Part part(n, gridDim.z, 32, WARPS);
  if (part.is_idle()) return;  // the whole block
  uint32_t last = part.last(), warp = threadIdx.x / WARP, l = blockIdx.x * WARP + lane_id();
  bool column = l < c;
  float own_w = column ? w[l] : 0.f, sum_b = 0.f, sum_w = 0.f;
  float of_positives = dloss ? bce_weight(0, n, x) * *dloss : 0.f;
  float of_negatives = dloss ? bce_weight(1, n, x) * *dloss : 0.f;
  for (uint32_t i = part.first() + warp; i < last; i += WARPS) {
    float* to = dhidden + uint64_t(i) * (1 + x) * c + l;
    float du = 0.f;
    for (uint32_t first = 0; first < x; first += AT_ONCE) {
      float h[AT_ONCE], dlogit[AT_ONCE];  // loaded before anything is stored, so that a warp waits for memory once
#pragma unroll
      for (uint32_t j = 0; j < AT_ONCE; j++) {
        uint64_t row = uint64_t(i) * x + first + j;
        bool is = first + j < x;
        h[j] = is && column ? hidden[row * c + l] : 1.f, dlogit[j] = is ? dlogits[row] : 0.f;
      }
#pragma unroll
      for (uint32_t j = 0; j < AT_ONCE; j++) {
        if (first + j >= x) break;
        if (dloss) dlogit[j] = bce_gradient(dlogit[j], first + j, first + j ? of_negatives : of_positives);
        float dh = h[j] > 0.f ? dlogit[j] * own_w : 0.f;
        if (column) to[uint64_t(1 + first + j) * c] = dh;
        du += dh, sum_w = fmaf(dlogit[j], h[j], sum_w);
      }
    }
    if (column) *to = du;
    sum_b += du;
  }
  sum_b = sum_of_warps(sum_b, of_b), sum_w = sum_of_warps(sum_w, of_w);
  bool own = warp == 0 && l <= c;
  uint64_t size = 2 * (uint64_t(c) + 1);
  float* mine = made + part.at * size;
  if (own) mine[l] = sum_b, mine[c + 1 + l] = sum_w;
  if (!comes_last(tickets + blockIdx.x, part.of) || !own) return;
  float* to = column ? dw : db_out;
  if (column && db) db[l] = sum_of_parts(made, part.of, size, l);
  if (to) to[column ? l : 0] = sum_of_parts(made, part.of, size, c + 1 + l);
}

extern "C" __global__ void __launch_bounds__(256, 2)
link_decoder_input_grad(const float* dhidden, const float* w_src, const float* w_dst, float* dz, Rows rows, uint32_t roots,
                        uint32_t d, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t root = blockIdx.x % roots;
  product<Along::Sum, Along::Edge>(
      precision, tile_of_root(rows.live() / roots, d, roots), 0, c,
      Matrix{dhidden + uint64_t(root) * c, uint64_t(roots) * c}, Matrix{root ? w_dst : w_src, d},
      [=](const Sums& sums, Tile tile) { tile.store(sums, Output{dz + uint64_t(root) * d, uint64_t(roots) * d, d}); });
}

// Gradients of W_src and W_dst, the latter summed over all candidates; either may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
link_decoder_weight_grad(const float* dhidden, const float* z, float* made, uint32_t* tickets, float* dw_src, float* dw_dst,
                         Rows rows, uint32_t roots, uint32_t d, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t room = gridDim.z / 2, dst = blockIdx.z / room;
  float* dw = dst ? dw_dst : dw_src;
  Tile tile = Tile::of_block(c, d);
  Part part(rows.live() / roots, room);
  if (!dw || part.is_idle()) return;  // the whole block
  uint32_t first = part.first(), last = part.last();
  Sums sums = sum_of_products<Along::Edge, Along::Edge>(precision, tile, [=](auto add) {
#pragma unroll 1
    for (uint32_t root = dst; root < (dst ? roots : 1); root++) {
      add(Matrix{dhidden + uint64_t(root) * c, uint64_t(roots) * c}, Matrix{z + uint64_t(root) * d, uint64_t(roots) * d},
          first, last);
    }
  });
  if (!add_parts(sums, part, {made, tickets})) return;
  tile.store(sums, Output{dw, d, d});
}
