// The instructions that compute, compiled for any host and for hosts with AVX2, where a loop over 32 lanes takes four
// vector instructions, and `fma` is one of them and no call. That makes the interpreter a quarter faster; AVX-512 would
// add 9 %.
#include "arithmetic.hpp"
#include "numbers.hpp"
#include <unordered_map>

namespace emu::ptx {
using Table = std::unordered_map<std::string, Computation>;

namespace plain {
#include "lanes.inc"
#include "integers.inc"
#include "floats.inc"
}  // namespace plain

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_AVX2
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#include "lanes.inc"
#include "integers.inc"
#include "floats.inc"
}  // namespace avx2
#pragma GCC pop_options
#endif

static Table made() {
  Table table;
#if defined(HAS_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    return avx2::define_integers(table), avx2::define_floats(table), table;
  }
#endif
  return plain::define_integers(table), plain::define_floats(table), table;
}

const Computation* computation(const std::string& opcode) {
  static const Table& table = *new Table(made());  // never destroyed: threads may still run when the program ends
  auto found = table.find(opcode);
  return found == table.end() ? nullptr : &found->second;
}
}  // namespace emu::ptx
