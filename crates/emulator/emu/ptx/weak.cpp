// Memory as a GPU may show it to other blocks (`TGNN_EMU_CODE=weak`).
//
// A store stays in its block until a fence (membar.gl) by the thread that made it, or by one that has met it at a
// barrier since; at the latest the end of the launch shows it. A load may give what the block's L1 has held since the
// last fence of the block, unless it reads past L1 (.cg). Atomics are done in memory.
#include "run.hpp"

namespace emu::ptx {
static void show(uint64_t half, const HeldStore& held) {
  for (int k = 0; k < 2; k++) {
    if (held.stored >> k & 1) reinterpret_cast<uint8_t*>(half * 2)[k] = held.bytes[k];
  }
}

void Run::weak_read(RunningBlock& block, uint64_t address, uint32_t bytes, bool past_l1, char* to) {
  for (uint32_t k = 0; k < bytes;) {
    uint64_t a = address + k;
    uint32_t in_line = std::min(bytes - k, uint32_t(16 - a % 16));
    if (past_l1) {
      memcpy(to + k, reinterpret_cast<const char*>(a), in_line);
    } else {
      auto [line, is_new] = block.l1.try_emplace(a / 16);
      if (is_new) memcpy(line->second.bytes, reinterpret_cast<const char*>(a / 16 * 16), 16);
      memcpy(to + k, line->second.bytes + a % 16, in_line);
    }
    k += in_line;
  }
  if (block.held.empty()) return;
  for (uint32_t k = 0; k < bytes; k++) {
    uint64_t a = address + k;
    auto held = block.held.find(a / 2);
    if (held != block.held.end() && held->second.stored >> (a % 2) & 1) to[k] = char(held->second.bytes[a % 2]);
  }
}

void Run::weak_write(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, const char* from) {
  RunningBlock& block = *w.block;
  uint32_t thread = w.number * LANES + lane;
  for (uint32_t k = 0; k < bytes; k++) {
    uint64_t a = address + k;
    auto [at, is_new] = block.held.try_emplace(a / 2, HeldStore{{0, 0}, 0, thread, block.barriers, w.meetings});
    HeldStore& held = at->second;
    if (!is_new && held.thread != thread) show(a / 2, held), held.stored = 0;
    held.bytes[a % 2] = uint8_t(from[k]);
    held.stored |= uint8_t(1 << (a % 2));
    held.thread = thread, held.barriers = block.barriers, held.meetings = w.meetings;
    auto line = block.l1.find(a / 16);
    if (line != block.l1.end()) line->second.bytes[a % 16] = from[k];
  }
}

// Before an atomic: what the block itself has stored there goes to memory, and L1 forgets the line.
void Run::weak_update(RunningBlock& block, uint64_t address, uint32_t bytes) {
  for (uint64_t half = address / 2; half < (address + bytes + 1) / 2; half++) {
    auto held = block.held.find(half);
    if (held == block.held.end()) continue;
    show(half, held->second);
    block.held.erase(held);
  }
  block.l1.erase(address / 16);
}

// Clearing an empty table that was large once takes time.
void Run::forget_l1(RunningBlock& block) {
  if (!block.l1.empty()) block.l1.clear();
}
void Run::forget_all(RunningBlock& block) {
  forget_l1(block);
  if (!block.held.empty()) block.held.clear();
}
void Run::fence(Warp& w, uint32_t lanes) {
  if (!weak) return;
  RunningBlock& block = *w.block;
  for (auto held = block.held.begin(); held != block.held.end();) {
    const HeldStore& store = held->second;
    bool same_warp = store.thread / LANES == w.number;
    bool own = same_warp && lanes >> (store.thread % LANES) & 1;
    bool met = store.barriers < block.barriers || (same_warp && store.meetings < w.meetings);
    if (own || met) {
      show(held->first, store);
      held = block.held.erase(held);
    } else {
      ++held;
    }
  }
  forget_l1(block);
}

// A block is done. The others need not see what it stored last before the launch is over.
void Run::keep_held(RunningBlock& block) {
  left.insert(left.end(), block.held.begin(), block.held.end());
  forget_all(block);
}
void Run::release_all() {
  for (auto& [half, held] : left) show(half, held);
  left.clear();
}
}  // namespace emu::ptx
