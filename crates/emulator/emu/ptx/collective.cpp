// What the lanes of a warp do together: shuffles, votes, reductions, products on the matrix units.
#include "numbers.hpp"
#include "run.hpp"

namespace emu::ptx {
namespace {
template <class F> void each_lane(uint32_t lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(uint32_t(__builtin_ctz(lanes)));
}
// Sets a predicate for some lanes.
void tell(uint32_t* predicate, uint32_t lanes, uint32_t value) { *predicate = (*predicate & ~lanes) | (value & lanes); }

// The lane whose value a lane takes (PTX ISA, shfl.sync); `valid` is whether that lane is in the segment. If it is not,
// the lane takes its own.
uint32_t source_of(Group how, uint32_t lane, uint32_t b, uint32_t c, bool& valid) {
  int own = int(lane), by = int(b & 31), clamp = int(c & 31), segment = int(c >> 8 & 31);
  int most = (own & segment) | (clamp & ~segment), least = own & segment, from;
  switch (how) {
    case Group::FromBelow: from = own - by, valid = from >= most; break;
    case Group::FromAbove: from = own + by, valid = from <= most; break;
    case Group::FromXor: from = own ^ by, valid = from <= most; break;
    default: from = least | (by & ~segment), valid = from <= most;
  }
  return valid ? uint32_t(from) : lane;
}

uint32_t reduced(Group how, uint32_t lanes, const uint32_t* values) {
  uint32_t r = values[__builtin_ctz(lanes)];
  each_lane(lanes & (lanes - 1), [&](uint32_t l) {
    uint32_t x = values[l];
    switch (how) {
      case Group::Add: r += x; break;
      case Group::Min: r = std::min(r, x); break;
      case Group::Max: r = std::max(r, x); break;
      case Group::MinSigned: r = uint32_t(std::min(int32_t(r), int32_t(x))); break;
      case Group::MaxSigned: r = uint32_t(std::max(int32_t(r), int32_t(x))); break;
      case Group::And: r &= x; break;
      case Group::Or: r |= x; break;
      default: r ^= x;
    }
  });
  return r;
}

// ---- products ----
// Multiplies the TF32 numbers of a warp. Fragments are as the PTX ISA places them, "Warp-level matrix instructions": a
// lane has rows lane / 4 and lane / 4 + 8 of A, C and D, and column lane / 4 of B.
void multiply(Warp& w, MatrixUnits units, const uint32_t* places) {
  const uint32_t* from[10];
  for (int i = 0; i < 10; i++) from[i] = w.at<const uint32_t>(places[4 + i]);
  float a[16][8];
  Columns b[8], c[16];
  for (uint32_t lane = 0; lane < LANES; lane++) {
    uint32_t group = lane / 4, low = lane % 4;
    for (uint32_t i = 0; i < 4; i++) a[group + i % 2 * 8][low + i / 2 * 4] = cut_tf32(from[i][lane]);
    for (uint32_t i = 0; i < 2; i++) b[low + i * 4][group] = cut_tf32(from[4 + i][lane]);
    for (uint32_t i = 0; i < 4; i++) c[group + i / 2 * 8][low * 2 + i % 2] = bits_as<float>(from[6 + i][lane]);
  }
  for (uint32_t row = 0; row < 16; row++) add_products(units, a[row], b, c[row]);
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t* to = w.at<uint32_t>(places[i]);
    for (uint32_t lane = 0; lane < LANES; lane++) to[lane] = bits_of(c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
  }
}
}  // namespace

// Loads four matrices of 8 x 4 words from shared memory: lane l gives the address of row l % 8 of matrix l / 8, and
// receives word l % 4 of row l / 4 of each (PTX ISA, ldmatrix).
void Run::load_matrices(Warp& w, const Instruction& i) {
  const uint32_t* to = &function.operands[i.first];
  Addresses rows;
  locate(w, i, ALL, false, rows);
  for (uint32_t lane = 0; lane < LANES; lane++) {
    for (uint32_t m = 0; m < 4; m++) {
      memcpy(w.at<uint32_t>(to[m]) + lane, reinterpret_cast<const uint32_t*>(rows[8 * m + lane / 4]) + lane % 4, 4);
    }
  }
}

// Does a collective for the groups of lanes of which all are there; returns those lanes.
uint32_t Run::together(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint32_t* places = &function.operands[i.first];
  const uint32_t* ins = places + i.outs;
  const uint32_t* masks = w.at<const uint32_t>(ins[i.ins - 1]);
  uint32_t done = 0;
  for (uint32_t left = lanes; left;) {
    uint32_t first = uint32_t(__builtin_ctz(left)), named = masks[first], group = 0;
    each_lane(left, [&](uint32_t l) { group |= uint32_t(masks[l] == named) << l; });
    left &= ~group;
    if (group & ~named) {
      fault(w, i, uint32_t(__builtin_ctz(group & ~named)), "calls a collective whose mask leaves it out");
    }
    bool whole = i.group == Group::Product || i.group == Group::LoadMatrices;
    if (named & (whole ? ~w.alive() : ~w.there)) {
      fault(w, i, first, whole ? "is in a warp that is not whole, and multiplies or loads matrices"
                                 : "calls a collective whose mask names lanes that are not there");
    }
    uint32_t wanted = named & w.alive();
    if ((group & wanted) != wanted) continue;
    done |= group;
    meet(w, i, group);
  }
  return done;
}

// Does a collective for lanes that are all there.
void Run::meet(Warp& w, const Instruction& i, uint32_t group) {
  const uint32_t* places = &function.operands[i.first];
  const uint32_t* ins = places + i.outs;
  const uint32_t* a = w.at<const uint32_t>(ins[0]);
  switch (i.group) {
    case Group::Sync: w.meetings++; return;
    case Group::LoadMatrices: return load_matrices(w, i);
    case Group::Product: return multiply(w, launch.matrix, places);
    case Group::FromIndex:
    case Group::FromBelow:
    case Group::FromAbove:
    case Group::FromXor: {
      const uint32_t *b = w.at<const uint32_t>(ins[1]), *c = w.at<const uint32_t>(ins[2]);
      uint32_t values[LANES], all_valid = 0;
      each_lane(group, [&](uint32_t l) {
        bool valid;
        uint32_t from = source_of(i.group, l, b[l], c[l], valid);
        if (!(group >> from & 1)) {
          fault(w, i, l, "takes a value of lane " + std::to_string(from) + ", which takes no part");
        }
        values[l] = a[from];
        all_valid |= uint32_t(valid) << l;
      });
      each_lane(group, [&](uint32_t l) { w.at<uint32_t>(places[0])[l] = values[l]; });
      if (i.outs == 2) tell(w.at<uint32_t>(places[1]), group, all_valid);
      return;
    }
    case Group::Any: return tell(w.at<uint32_t>(places[0]), group, *a & group ? ALL : 0);
    case Group::All: return tell(w.at<uint32_t>(places[0]), group, (*a & group) == group ? ALL : 0);
    case Group::Ballot:
      return each_lane(group, [&](uint32_t l) { w.at<uint32_t>(places[0])[l] = *a & group; });
    case Group::Match: {
      uint32_t same[LANES] = {};
      each_lane(group, [&](uint32_t l) {
        each_lane(group, [&](uint32_t other) { same[l] |= uint32_t(a[other] == a[l]) << other; });
      });
      return each_lane(group, [&](uint32_t l) { w.at<uint32_t>(places[0])[l] = same[l]; });
    }
    default: {
      uint32_t result = reduced(i.group, group, a);
      each_lane(group, [&](uint32_t l) { w.at<uint32_t>(places[0])[l] = result; });
    }
  }
}
}  // namespace emu::ptx
