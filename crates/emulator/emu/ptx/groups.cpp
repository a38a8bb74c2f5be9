// Groups of four warps: barriers for some of a block's threads, and the products of wgmma.
#include "numbers.hpp"
#include "run.hpp"

namespace emu::ptx {
// ---- barriers ----
// Whether the threads of a barrier are complete with this warp; then the other warps go on, too.
bool Run::completes_group(Warp& w, const Instruction& i) {
  RunningBlock& block = *w.block;
  w.barrier = *w.at<uint32_t>(function.operands[i.first]);
  if (w.barrier >= block.at_barrier.size()) fault(w, i, 0, "waits at barrier " + std::to_string(w.barrier) + " of 16");
  uint32_t& there = block.at_barrier[w.barrier];
  there += uint32_t(__builtin_popcount(w.alive()));
  if (there < i.threads) return false;
  if (there > i.threads) {
    fault(w, i, 0, "is one of " + std::to_string(there) + " threads at a barrier of " + std::to_string(i.threads));
  }
  there = 0;
  block.barriers++;
  block.idle_jumps = 0;
  for (Warp& other : block.warps) {
    for (Fragment& f : other.fragments) {
      if (f.waits == Waits::ForGroup && other.barrier == w.barrier) f.at++, f.waits = Waits::Nothing;
    }
  }
  return true;
}

// ---- wgmma: 64 rows, 64 columns, a depth of 8, of TF32 numbers; a in registers, b in shared memory ----
// The columns of b that a descriptor names: 64 bytes each, in groups of eight, with the 64-byte swizzle (PTX ISA,
// "Matrix Descriptor Format", "Shared Memory Matrix Layout"). Returns false if they are elsewhere, or otherwise placed.
static bool read_columns(const RunningBlock& block, uint64_t descriptor, uint32_t shared_bytes, Started& to) {
  constexpr uint64_t SWIZZLE_64 = 2;
  uint64_t first = (descriptor & 0x3FFF) << 4, apart = (descriptor >> 32 & 0x3FFF) << 4;
  if (descriptor >> 62 != SWIZZLE_64) return false;
  for (uint32_t n = 0; n < COLUMNS; n++) {
    for (uint32_t k = 0; k < 8; k++) {
      uint64_t at = first + n / 8 * apart + n % 8 * 64 + k * 4;
      at ^= (at >> 7 & 3) << 4;
      if (at + 4 > shared_bytes) return false;
      memcpy(&to.b[n][k], block.shared.data + at, 4);
    }
  }
  return true;
}

// Starts a product: its operands are those of this moment. Whether b has changed before the sums are waited for is
// checked then.
void Run::start_product(Warp& w, const Instruction& i) {
  if (!w.may_multiply) fault(w, i, 0, "multiplies without wgmma.fence since it has waited");
  const uint32_t* ins = &function.operands[i.first + i.outs];
  Started product;
  product.instruction = &i;
  for (uint32_t r = 0; r < 4; r++) memcpy(product.a[r].data(), w.at<uint32_t>(ins[i.outs + r]), sizeof product.a[r]);
  product.descriptor = *w.at<uint64_t>(ins[i.outs + 4]);
  product.adds = *w.at<uint32_t>(ins[i.outs + 5]) & 1;
  if (!read_columns(*w.block, product.descriptor, shared_bytes, product)) {
    fault(w, i, 0, "multiplies by columns that are not in shared memory, or not with the 64-byte swizzle");
  }
  w.products.push_back(product);
}

// Computes a started product: the 16 rows of this warp.
void Run::finish_product(Warp& w, const Started& product) {
  const Instruction& i = *product.instruction;
  Started now;
  read_columns(*w.block, product.descriptor, shared_bytes, now);
  if (memcmp(now.b, product.b, sizeof now.b)) {
    fault(w, i, 0, "multiplies by columns that change before the sums are waited for");
  }
  float a[16][8];
  for (uint32_t lane = 0; lane < LANES; lane++) {
    for (uint32_t r = 0; r < 4; r++) a[lane / 4 + r % 2 * 8][lane % 4 + r / 2 * 4] = cut_tf32(product.a[r][lane]);
  }
  for (uint32_t n = 0; n < COLUMNS; n += 8) {
    Columns b[8], c[16];
    for (uint32_t column = 0; column < 8; column++) {
      for (uint32_t k = 0; k < 8; k++) b[k][column] = cut_tf32(product.b[n + column][k]);
    }
    uint32_t* d[4];
    for (uint32_t r = 0; r < 4; r++) {
      d[r] = w.at<uint32_t>(function.operands[i.first + n / 2 + r]);
      for (uint32_t lane = 0; lane < LANES; lane++) {
        c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2] = product.adds ? bits_as<float>(d[r][lane]) : 0.f;
      }
    }
    for (uint32_t row = 0; row < 16; row++) add_products(launch.matrix, a[row], b, c[row]);
    for (uint32_t r = 0; r < 4; r++) {
      for (uint32_t lane = 0; lane < LANES; lane++) d[r][lane] = bits_of(c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
    }
  }
}

// What a whole warp does for its products: fences, starts one, ends a group, or waits for all.
void Run::multiply_as_group(Warp& w, const Instruction& i) {
  switch (i.matrix) {
    case Matrix::Fence: w.may_multiply = true; return;
    case Matrix::Start: return start_product(w, i);
    case Matrix::End: w.ended = w.products.size(); return;
    case Matrix::Wait:
      if (w.ended < w.products.size()) fault(w, i, 0, "waits for products of which it has not ended the group");
      for (const Started& product : w.products) finish_product(w, product);
      w.products.clear(), w.ended = 0, w.may_multiply = false;
  }
}
}  // namespace emu::ptx
