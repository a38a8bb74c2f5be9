// The table of instructions that compute registers from registers, lane by lane.
#pragma once
#include "code.hpp"

namespace emu::ptx {
struct Computation {
  // The sizes of the operands, the written one first: 'w' a register of 16 or 32 bits (a 16-bit value has zeros above),
  // 'x' one of 64 bits, 'p' a predicate.
  const char* operands;
  Compute compute;
};
// Returns the instruction called `opcode`, or null.
const Computation* computation(const std::string& opcode);
}  // namespace emu::ptx
