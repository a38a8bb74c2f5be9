// rnn_memory: memory of the unique nodes after their mails, `s' = tanh(W_x m + b_x + W_h s + b_h)`
//
// shapes    see memory_update.cuh; gates [m, d]: s'
// grid      one block of 256 per tile of 64 mails x 64 memory columns; at most about 264 blocks, each of which goes on
//           to further rows of tiles
// memory    reads m c words of messages d / 64 times and d c of weights m / 64 times, mostly from L2; writes n d words
//           and the gates
// limiter   f32 arithmetic, 2 m d c operations
// backward  rnn_memory_gates_grad, then memory_update.cu
// source    JODIE (Kumar et al. 2019), equations 1 and 2; RNN: Elman 1990 in PyTorch's form
#include "memory_update.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
rnn_memory(MemoryUpdate u) {
  after_previous_kernel();
  uint32_t d = u.d;
  update_memory(u, d, [=](Sums sums, Tile tile) {
    tile.map(sums, [=](uint32_t, uint32_t j, float sum) { return tanhf(sum + (u.b_x[j] + u.b_h[j])); });
    tile.each(sums, [=](uint32_t k, uint32_t j, float s) { u.out[uint64_t(u.mailed[k]) * d + j] = s; });
    tile.store(sums, Output{u.gates, d, d});
  });
}

// Gradients of the pre-activations, dpre [m, d].
extern "C" __global__ void __launch_bounds__(256, 2)
rnn_memory_gates_grad(const uint32_t* mailed, const float* gates, const float* dout, float* dpre, Rows mails,
                      Rows rows, uint32_t d, Status status) {
  after_previous_kernel();
  uint32_t m = mails.live(), n = rows.live();
  for (uint32_t k = warp_row(); k < m; k += warp_rows()) {
    uint32_t row = status.row_of(k, mailed[k], n);
    const float *s = gates + uint64_t(k) * d, *dy = row == NONE ? nullptr : dout + uint64_t(row) * d;
    for (uint32_t j = lane_id(); j < d; j += WARP) dpre[uint64_t(k) * d + j] = (dy ? dy[j] : 0.f) * (1.f - s[j] * s[j]);
  }
}
