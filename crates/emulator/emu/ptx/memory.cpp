// Loads, stores and atomics: where an address is, whether it may be used, and what goes there.
#include "../allocations.hpp"
#include <algorithm>
#include "numbers.hpp"
#include "run.hpp"

namespace emu::ptx {
// ---- addresses ----
static std::string hexadecimal(uint64_t x) {
  char text[24];
  snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(x));
  return text;
}

// The first lane of an access. The lanes have no order among each other.
uint32_t Run::first_lane(Warp& w) { return random ? w.block->random.below(LANES) : 0; }

// Whether any lane's `n` bytes are not in the `bytes` from `begin` on, or misaligned. All lanes are looked at, also
// those that take no part, since that is a loop of vector instructions.
static bool any_elsewhere(const uint64_t* addresses, uint64_t begin, uint64_t bytes, uint64_t n) {
  if (bytes < n) return true;
  uint64_t elsewhere = 0;
  for (uint32_t l = 0; l < LANES; l++) {
    uint64_t a = addresses[l] - begin;
    // The highest bit of one of them is set if `a` is beyond, as long as there are less than 2^63 bytes.
    elsewhere |= ((a | (bytes - n - a)) >> 63) | (addresses[l] & (n - 1));
  }
  return elsewhere != 0;
}

// Replaces addresses in shared, local or parameter memory by the host's. Each lane has `lane_bytes` of its own.
void Run::locate_in(Warp& w, const Instruction& i, uint32_t lanes, char* begin, uint64_t bytes, uint64_t lane_bytes,
                    Addresses& addresses) {
  uint64_t n = uint64_t(i.access.bytes) * i.access.count;
  if (any_elsewhere(addresses, 0, bytes, n)) {
    for (uint32_t m = lanes; m; m &= m - 1) {
      uint32_t lane = uint32_t(__builtin_ctz(m));
      uint64_t a = addresses[lane];
      const char* space = i.access.space == Space::Shared  ? " of shared memory, "
                          : i.access.space == Space::Local ? " of local memory, "
                                                           : " of the parameters, ";
      std::string what = "uses " + std::to_string(n) + " bytes at " + std::to_string(int64_t(a)) + space;
      if (a & (n - 1)) fault(w, i, lane, what + "which is misaligned");
      if (a > bytes || bytes - a < n) fault(w, i, lane, what + "of which there are " + std::to_string(bytes));
    }
  }
  for (uint32_t l = 0; l < LANES; l++) addresses[l] += uint64_t(begin) + l * lane_bytes;
}

// Whether a generic address is in the block's own shared or local memory.
bool Run::is_own(const Warp& w, uint64_t a) const {
  uint64_t shared = uint64_t(w.block->shared.data), local = uint64_t(w.local.data());
  return a - shared < shared_bytes || a - local < w.local.size();
}

// Whether other blocks see an access late: one of global memory.
bool Run::is_late(const Warp& w, const Access& access, uint64_t a) const {
  if (!weak || (access.space != Space::Global && access.space != Space::Generic)) return false;
  return access.space == Space::Global || !(is_own(w, a) || peer_at(w, a));
}

// Whether a generic address is one of the thread itself: in shared memory, or in its local memory.
bool Run::is_of_thread(const Warp& w, uint32_t lane, uint64_t a, uint64_t n) const {
  uint64_t in_shared = a - uint64_t(w.block->shared.data);
  uint64_t in_local = a - uint64_t(w.local.data()) - uint64_t(lane) * function.local_bytes;
  return (in_shared < shared_bytes && in_shared + n <= shared_bytes) ||
         (in_local < function.local_bytes && in_local + n <= function.local_bytes);
}
// Whether an address is in a variable of the module.
bool Run::is_constant(uint64_t a, uint64_t n) const {
  for (auto& [name, bytes] : function.module->constants) {
    uint64_t at = a - uint64_t(bytes.data());
    if (at < bytes.size() && at + n <= bytes.size()) return true;
  }
  return false;
}

// Checks one address of global memory, or a generic one.
uint64_t Run::locate_one(Warp& w, const Instruction& i, uint32_t lane, bool writes, uint64_t a) {
  uint64_t n = uint64_t(i.access.bytes) * i.access.count, begin, end;
  Range& range = ranges[i.access.place];
  auto wrong = [&](const std::string& what) {
    fault(w, i, lane, "touches the address " + hexadecimal(a) + ", " + what);
  };
  if (a >= range.begin && a < range.end && range.end - a >= n) {
    // As before.
  } else if (i.access.space == Space::Generic && is_own(w, a)) {
    if (!is_of_thread(w, lane, a, n)) wrong("which is beyond the end of shared memory or of the thread's local memory");
  } else if (const RunningBlock* peer = i.access.space == Space::Generic ? peer_at(w, a) : nullptr) {
    in_peer(w, i, lane, *peer, a - uint64_t(peer->shared.data));
  } else if (allocation_of(a, begin, end)) {
    range = {begin, end};
    if (end - a < n) {
      wrong("which is in no allocation: " + std::to_string(n) + " bytes there go beyond the end of one of " +
            std::to_string(end - begin));
    }
  } else if (!is_constant(a, n)) {
    wrong("which is in no allocation");
  } else if (writes) {
    wrong("which is a constant");
  }
  if (a & (n - 1)) wrong("which is misaligned for " + std::to_string(n) + " bytes");
  return a;
}

// The addresses that lanes access, as the host's.
void Run::locate(Warp& w, const Instruction& i, uint32_t lanes, bool writes, Addresses& addresses) {
  const Access& access = i.access;
  uint32_t place = function.operands[i.first + i.outs];
  if (access.wide_address) {
    const uint64_t* base = w.at<const uint64_t>(place);
    for (uint32_t l = 0; l < LANES; l++) addresses[l] = base[l] + uint64_t(access.offset);
  } else {
    const uint32_t* base = w.at<const uint32_t>(place);
    for (uint32_t l = 0; l < LANES; l++) addresses[l] = uint32_t(base[l] + uint32_t(access.offset));
  }
  switch (access.space) {
    case Space::Shared: return locate_in(w, i, lanes, w.block->shared.data, shared_bytes, 0, addresses);
    case Space::Cluster: return locate_in_cluster(w, i, lanes, addresses);
    case Space::Local:
      return locate_in(w, i, lanes, w.local.data(), function.local_bytes, function.local_bytes, addresses);
    case Space::Parameter:
      if (writes) fault(w, i, uint32_t(__builtin_ctz(lanes)), "writes a parameter");
      return locate_in(w, i, lanes, parameters.data(), parameters.size(), 0, addresses);
    default: break;
  }
  if (launch.early && (lanes & ~w.waited)) {
    fault(w, i, uint32_t(__builtin_ctz(lanes & ~w.waited)), "touches memory before griddepcontrol.wait");
  }
  const Range range = ranges[access.place];
  uint64_t n = uint64_t(access.bytes) * access.count;
  if (!any_elsewhere(addresses, range.begin, range.end - range.begin, n)) return;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint32_t lane = uint32_t(__builtin_ctz(m));
    addresses[lane] = locate_one(w, i, lane, writes, addresses[lane]);
  }
}

// ---- reads with .nc of what the launch writes ----
bool Touched::note(uint64_t address, uint32_t bytes, int kind) {
  bool met = false;
  for (uint64_t word = address / 4, end = (address + bytes + 3) / 4; word < end; word++) {
    if (word / WORDS != last_number) {
      auto& chunk = chunks[last_number = word / WORDS];
      if (!chunk) chunk = std::make_unique<Chunk>();
      last = chunk.get();
    }
    uint64_t at = word % WORDS, bit = 1ull << (at % 64);
    last->bits[kind][at / 64] |= bit;
    met |= (last->bits[1 - kind][at / 64] & bit) != 0;
  }
  return met;
}
void Run::note(Warp& w, const Instruction& i, uint32_t lanes, bool writes, const Addresses& addresses) {
  uint32_t n = uint32_t(i.access.bytes) * i.access.count;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint32_t lane = uint32_t(__builtin_ctz(m));
    bool met = writes ? touched.wrote(addresses[lane], n) : touched.read(addresses[lane], n);
    if (!met) continue;
    fault(w, i, lane, writes ? "writes what the launch has read with ld.global.nc"
                             : "reads with ld.global.nc what the launch has written");
  }
}

// ---- values ----
namespace {
// registers[l] = what is at addresses[l].
template <class Stored, class In> void get(uint32_t lanes, In* registers, const uint64_t* addresses, uint64_t offset) {
  if (lanes == ALL) {
    for (uint32_t l = 0; l < LANES; l++) {
      Stored value;
      memcpy(&value, reinterpret_cast<const char*>(addresses[l] + offset), sizeof value);
      registers[l] = In(value);
    }
    return;
  }
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint32_t l = uint32_t(__builtin_ctz(m));
    Stored value;
    memcpy(&value, reinterpret_cast<const char*>(addresses[l] + offset), sizeof value);
    registers[l] = In(value);
  }
}
template <class In>
void get(const Access& access, uint32_t lanes, In* registers, const uint64_t* addresses, uint64_t offset) {
  auto as = [&](auto unsigned_one, auto signed_one) {
    if (access.is_signed) get<decltype(signed_one)>(lanes, registers, addresses, offset);
    else get<decltype(unsigned_one)>(lanes, registers, addresses, offset);
  };
  switch (access.bytes) {
    case 1: return as(uint8_t(), int8_t());
    case 2: return as(uint16_t(), int16_t());
    case 4: return as(uint32_t(), int32_t());
    default: return as(uint64_t(), int64_t());
  }
}
}  // namespace

void Run::load(Warp& w, const Instruction& i, uint32_t lanes) {
  const Access& access = i.access;
  Addresses addresses;
  locate(w, i, lanes, false, addresses);
  if (access.constant) note(w, i, lanes, false, addresses);
  char seen[LANES][16];
  if (weak) {
    for (uint32_t m = lanes; m; m &= m - 1) {
      uint32_t lane = uint32_t(__builtin_ctz(m));
      if (!is_late(w, access, addresses[lane])) continue;
      weak_read(*w.block, addresses[lane], uint32_t(access.bytes) * access.count, access.past_l1, seen[lane]);
      addresses[lane] = uint64_t(seen[lane]);
    }
  }
  const uint32_t* to = &function.operands[i.first];
  for (uint32_t k = 0; k < access.count; k++) {
    uint64_t offset = uint64_t(k) * access.bytes;
    if (access.wide) get(access, lanes, w.at<uint64_t>(to[k]), addresses, offset);
    else get(access, lanes, w.at<uint32_t>(to[k]), addresses, offset);
  }
  if (weak && access.acquires) forget_l1(*w.block);
}

void Run::store(Warp& w, const Instruction& i, uint32_t lanes) {
  const Access& access = i.access;
  w.block->idle_jumps = 0;
  Addresses addresses;
  locate(w, i, lanes, true, addresses);
  bool global = access.space == Space::Global || access.space == Space::Generic;
  if (function.has_constant_loads && global) note(w, i, lanes, true, addresses);
  if (weak && access.releases) fence(w, lanes);
  const uint32_t* from = &function.operands[i.first + 1];
  // Lanes that store to one address: any of them may be the last.
  for (uint32_t n = 0, lane = first_lane(w); n < LANES; n++, lane = (lane + 1) % LANES) {
    if (!(lanes >> lane & 1)) continue;
    bool late = is_late(w, access, addresses[lane]);
    for (uint32_t k = 0; k < access.count; k++) {
      uint64_t value = access.wide ? w.at<uint64_t>(from[k])[lane] : w.at<uint32_t>(from[k])[lane];
      uint64_t address = addresses[lane] + uint64_t(k) * access.bytes;
      const char* bytes = reinterpret_cast<const char*>(&value);
      if (late) weak_write(w, lane, address, access.bytes, bytes);
      else memcpy(reinterpret_cast<char*>(address), bytes, access.bytes);
    }
  }
}

// ---- atomics ----
// The new value, of the old one and the operands.
template <class T> static T updated(Update how, T old, T b, T c) {
  using Signed = std::make_signed_t<T>;
  switch (how) {
    case Update::Exchange: return b;
    case Update::CompareExchange: return old == b ? c : old;
    case Update::Add: return old + b;
    case Update::Increment: return old >= b ? 0 : old + 1;
    case Update::Decrement: return old == 0 || old > b ? b : old - 1;
    case Update::Min: return std::min(old, b);
    case Update::Max: return std::max(old, b);
    case Update::MinSigned: return T(std::min(Signed(old), Signed(b)));
    case Update::MaxSigned: return T(std::max(Signed(old), Signed(b)));
    case Update::And: return old & b;
    case Update::Or: return old | b;
    case Update::Xor: return old ^ b;
    case Update::AddFloat: return T(bits_of(bits_as<float>(uint32_t(old)) + bits_as<float>(uint32_t(b))));
  }
  return old;
}
// Updates the word at an address; `operands` are its register for the old value, if it has one, and the values.
template <class T>
static bool update_one(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, const uint32_t* operands) {
  T* word = reinterpret_cast<T*>(address);
  const uint32_t* values = operands + i.outs + 1;
  T b = w.at<T>(values[0])[lane], c = i.update == Update::CompareExchange ? w.at<T>(values[1])[lane] : 0;
  // Another device may use the word at the same time.
  T old = __atomic_load_n(word, __ATOMIC_RELAXED), now;
  do now = updated(i.update, old, b, c);
  while (!__atomic_compare_exchange_n(word, &old, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  if (i.outs) w.at<T>(operands[0])[lane] = old;
  return old != now;
}

void Run::update(Warp& w, const Instruction& i, uint32_t lanes) {
  const Access& access = i.access;
  Addresses addresses;
  locate(w, i, lanes, true, addresses);
  bool global = access.space == Space::Global || access.space == Space::Generic;
  if (function.has_constant_loads && global) note(w, i, lanes, true, addresses);
  const uint32_t* operands = &function.operands[i.first];
  bool changed = false;
  for (uint32_t n = 0, lane = first_lane(w); n < LANES; n++, lane = (lane + 1) % LANES) {
    if (!(lanes >> lane & 1)) continue;
    if (weak && global) weak_update(*w.block, addresses[lane], access.bytes);
    changed |= access.bytes == 8 ? update_one<uint64_t>(w, i, lane, addresses[lane], operands)
                                 : update_one<uint32_t>(w, i, lane, addresses[lane], operands);
  }
  if (changed) w.block->idle_jumps = 0;
}
}  // namespace emu::ptx
