// Gives the registers of a kernel places. nvcc names thousands of registers, most for a few instructions each. Those
// that are never live together share a place, so that the registers of a block fit the host's caches.
#include "code.hpp"
#include <algorithm>

namespace emu::ptx {
namespace {
// Bytes of a register of every lane.
uint32_t bytes_of(char size) { return size == 'x' ? LANES * 8 : size == 'w' ? LANES * 4 : 4; }

struct Bits {
  std::vector<uint64_t> words;
  explicit Bits(size_t n = 0) : words((n + 63) / 64) {}
  void set(uint32_t i) { words[i / 64] |= 1ull << (i % 64); }
  void clear(uint32_t i) { words[i / 64] &= ~(1ull << (i % 64)); }
  template <class F> void each(F f) const {
    for (size_t w = 0; w < words.size(); w++) {
      for (uint64_t left = words[w]; left; left &= left - 1) f(uint32_t(w * 64) + uint32_t(__builtin_ctzll(left)));
    }
  }
};

// A run of instructions that is entered at its beginning only.
struct Stretch {
  uint32_t begin, end;
  std::vector<uint32_t> next;
  Bits live_in;
};

// The first and the last instruction at which a register is live.
struct Life {
  uint32_t begin = NOWHERE, end = 0;
  void covers(uint32_t at) { begin = std::min(begin, at), end = std::max(end, at); }
};

class Placing {
 public:
  explicit Placing(Function& f) : function(f), lives(f.registers.size()), places(f.registers.size(), NOWHERE) {}
  void run() {
    find_stretches();
    find_live();
    find_lives();
    place();
    replace();
  }

 private:
  Function& function;
  std::vector<Stretch> stretches;
  std::vector<Life> lives;
  std::vector<uint32_t> places;
  uint32_t bytes = 0;

  template <class F> void each_read(const Instruction& i, F f) const {
    for (uint32_t k = i.outs; k < uint32_t(i.outs + i.ins); k++) f(function.operands[i.first + k]);
    if (i.guard != NOWHERE) f(i.guard);
  }
  template <class F> void each_written(const Instruction& i, F f) const {
    for (uint32_t k = 0; k < i.outs; k++) f(function.operands[i.first + k]);
  }

  void find_stretches() {
    auto& code = function.code;
    std::vector<uint32_t> of(code.size());  // the stretch of an instruction
    auto ends = [](const Instruction& i) { return i.kind == Kind::Jump || i.kind == Kind::Return; };
    for (uint32_t i = 0; i < code.size(); i++) {
      if (i == 0 || code[i].labelled || ends(code[i - 1])) stretches.push_back({i, i, {}, Bits(lives.size())});
      of[i] = uint32_t(stretches.size() - 1);
      stretches.back().end = i + 1;
    }
    for (Stretch& s : stretches) {
      const Instruction& last = code[s.end - 1];
      bool goes_on = !ends(last) || last.guard != NOWHERE;
      if (goes_on && s.end < code.size()) s.next.push_back(of[s.end]);
      if (last.kind == Kind::Jump) s.next.push_back(of[last.target]);
    }
  }
  Bits live_out(const Stretch& s) const {
    Bits live(lives.size());
    for (uint32_t next : s.next) {
      for (size_t w = 0; w < live.words.size(); w++) live.words[w] |= stretches[next].live_in.words[w];
    }
    return live;
  }
  // Registers that are read at the beginning of a stretch or later, before they are written.
  void find_live() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t n = stretches.size(); n-- > 0;) {
        Stretch& s = stretches[n];
        Bits live = live_out(s);
        for (uint32_t i = s.end; i-- > s.begin;) {
          const Instruction& instruction = function.code[i];
          // A guarded instruction keeps what some lanes have.
          if (instruction.guard == NOWHERE) each_written(instruction, [&](uint32_t r) { live.clear(r); });
          each_read(instruction, [&](uint32_t r) { live.set(r); });
        }
        if (live.words != s.live_in.words) s.live_in = std::move(live), changed = true;
      }
    }
  }
  void find_lives() {
    for (const Stretch& s : stretches) {
      s.live_in.each([&](uint32_t r) { lives[r].covers(s.begin); });
      live_out(s).each([&](uint32_t r) { lives[r].covers(s.end - 1); });
      for (uint32_t i = s.begin; i < s.end; i++) {
        auto covers = [&](uint32_t r) { lives[r].covers(i); };
        each_read(function.code[i], covers);
        each_written(function.code[i], covers);
      }
    }
    // Constants, special registers, and what is read before it is written keep their places.
    auto always = [&](uint32_t r) { lives[r] = {0, uint32_t(function.code.size())}; };
    for (uint32_t r = 0; r < lives.size(); r++) {
      if (function.registers[r].is_constant) always(r);
    }
    for (uint32_t r : function.special) {
      if (r != NOWHERE) always(r);
    }
    stretches[0].live_in.each([&](uint32_t r) {
      function.reads_unset |= lives[r].end != function.code.size();
      always(r);
    });
  }
  // Places the registers in the order in which their lives begin.
  void place() {
    std::vector<uint32_t> order;
    for (uint32_t r = 0; r < lives.size(); r++) {
      if (lives[r].begin != NOWHERE) order.push_back(r);
    }
    auto is_always = [&](uint32_t r) { return lives[r].end == function.code.size(); };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::make_pair(lives[a].begin, !is_always(a)) < std::make_pair(lives[b].begin, !is_always(b));
    });
    std::multimap<uint32_t, uint32_t> taken;         // registers by the ends of their lives
    std::map<uint32_t, std::vector<uint32_t>> free;  // places by size
    for (uint32_t r : order) {
      while (!taken.empty() && taken.begin()->first < lives[r].begin) {
        uint32_t over = taken.begin()->second;
        free[bytes_of(function.registers[over].size)].push_back(places[over]);
        taken.erase(taken.begin());
      }
      uint32_t size = bytes_of(function.registers[r].size);
      std::vector<uint32_t>& of_size = free[size];
      if (of_size.empty()) {
        bytes = (bytes + std::min(size, 64u) - 1) / std::min(size, 64u) * std::min(size, 64u);
        places[r] = bytes;
        bytes += size;
      } else {
        places[r] = of_size.back();
        of_size.pop_back();
      }
      taken.insert({lives[r].end, r});
    }
  }
  void replace() {
    for (uint32_t& operand : function.operands) operand = places[operand];
    for (Instruction& i : function.code) {
      if (i.guard != NOWHERE) i.guard = places[i.guard];
    }
    for (uint32_t& r : function.special) {
      if (r != NOWHERE) r = places[r];
    }
    function.initial.assign((bytes + 63) / 64 * 64, char(0xFF));
    for (uint32_t r = 0; r < lives.size(); r++) {
      const Register& constant = function.registers[r];
      if (!constant.is_constant || places[r] == NOWHERE) continue;
      uint32_t each = constant.size == 'x' ? 8 : 4;
      for (uint32_t at = 0; at < bytes_of(constant.size); at += each) {
        memcpy(&function.initial[places[r] + at], &constant.value, each);
      }
    }
    function.registers.clear();
  }
};
}  // namespace

void place_registers(Function& f) { Placing(f).run(); }
}  // namespace emu::ptx
