// A launch that is being executed: its blocks, their warps, and what they do.
#pragma once
#include "code.hpp"
#include "ptx.hpp"
#include <unordered_map>

namespace emu::ptx {
// Lanes of a warp that stand at the same instruction.
enum class Waits : uint8_t { Nothing, ForLanes, ForBlock, ForCluster, ForGroup };
struct Fragment {
  uint32_t at, lanes;
  Waits waits;
};

// Bytes at an address that vector instructions like.
struct AlignedBytes {
  std::vector<char> bytes;
  char* data = nullptr;
  void resize(size_t n) {
    constexpr size_t ALIGNMENT = 128;
    bytes.resize(n + ALIGNMENT);
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  }
};

constexpr uint32_t COLUMNS = 64;  // of a product of wgmma
// A product that has been started, with its operands: registers of a, and columns of b.
struct Started {
  const Instruction* instruction = nullptr;
  std::array<std::array<uint32_t, LANES>, 4> a;
  uint64_t descriptor = 0;
  bool adds = false;
  uint32_t b[COLUMNS][8];
};

struct RunningBlock;
struct Warp {
  RunningBlock* block = nullptr;
  uint32_t number = 0;               // in its block
  uint32_t there = 0, exited = 0;    // lanes that exist, lanes that are done
  uint32_t waited = 0;               // lanes that know that the previous kernel has ended
  uint32_t meetings = 0;             // bar.warp.sync that it has passed
  // Lanes that have arrived at the barrier of the cluster: before it has opened, and since, without having waited.
  uint32_t arrived = 0, passed = 0;
  std::vector<Fragment> fragments;   // each live lane is in one of them, except those that are being executed
  AlignedBytes registers;
  const Function* registers_of = nullptr;  // the kernel whose constants are there
  std::vector<char> local;
  uint32_t barrier = 0;              // at which it waits for other warps
  std::vector<Started> products;
  size_t ended = 0;                  // products whose group has been ended
  bool may_multiply = false;         // there was a fence since it has waited for products

  template <class T> T* at(uint32_t place) { return reinterpret_cast<T*>(registers.data + place); }
  uint32_t alive() const { return there & ~exited; }
  bool can_run() const {
    for (const Fragment& f : fragments) {
      if (f.waits == Waits::Nothing) return true;
    }
    return false;
  }
};

// A store that other blocks do not see yet: two bytes, of which some are stored. It was made by a thread after so many
// barriers of its block and meetings of its warp.
struct HeldStore {
  uint8_t bytes[2];
  uint8_t stored;  // bit i: byte i
  uint32_t thread, barriers, meetings;
};
struct CachedLine { char bytes[16]; };

struct Cluster;
struct RunningBlock {
  uint3 index{};
  Cluster* cluster = nullptr;
  uint32_t rank = 0;       // in its cluster
  bool begun = false;      // an instruction has been executed
  std::vector<Warp> warps;
  AlignedBytes shared;
  uint32_t live = 0;       // threads
  uint32_t barriers = 0;   // that it has passed
  std::array<uint32_t, 16> at_barrier{};  // threads that wait, by barrier
  uint32_t sleeps = 0;     // turns that it leaves to others
  uint32_t idle_jumps = 0; // since it last changed anything that others can see
  Random random;
  // What the block has stored and nobody else sees, by half of the address; and what its L1 holds, by 16 bytes.
  std::unordered_map<uint64_t, HeldStore> held;
  std::unordered_map<uint64_t, CachedLine> l1;
};

// Blocks that run at the same time; one block in a launch without clusters. Blocks that are done stay until all are.
struct Cluster {
  std::vector<std::unique_ptr<RunningBlock>> kept;  // for this launch and others
  std::vector<RunningBlock*> blocks;                // of this launch, by rank
  uint32_t live = 0;
};

// Which words of memory a launch has read with .nc and written.
class Touched {
 public:
  // Notes an access of `bytes` at an address; returns whether the other kind of access was there before.
  bool read(uint64_t address, uint32_t bytes) { return note(address, bytes, 0); }
  bool wrote(uint64_t address, uint32_t bytes) { return note(address, bytes, 1); }

 private:
  static constexpr uint64_t WORDS = 4096;  // of a chunk of memory
  struct Chunk { uint64_t bits[2][WORDS / 64] = {}; };
  bool note(uint64_t address, uint32_t bytes, int kind);
  std::unordered_map<uint64_t, std::unique_ptr<Chunk>> chunks;
  uint64_t last_number = ~0ull;
  Chunk* last = nullptr;
};

class Run {
 public:
  explicit Run(const Launch&);
  void run();

 private:
  using Addresses = uint64_t[LANES];

  // ---- blocks (`blocks.cpp`) ----
  void begin(RunningBlock&);
  void begin(Warp&, uint32_t threads);
  void set_special(Warp&);
  RunningBlock* choose(const std::vector<RunningBlock*>& running);
  void go_on(RunningBlock&);
  void open_barrier(RunningBlock&);
  void tell_votes(Warp&, const Instruction&, uint32_t yes);
  [[noreturn]] void nothing_goes_on(RunningBlock&);
  [[noreturn]] void fault(const Warp&, const Instruction&, uint32_t lane, const std::string& what) const;
  [[noreturn]] void fault(const RunningBlock&, const std::string& what) const;
  std::string place_of(const Instruction&) const;

  // ---- clusters (`clusters.cpp`) ----
  void begin(Cluster&, uint64_t number);
  bool can_go_on(const RunningBlock&) const;
  bool leaves_to_cluster(RunningBlock&);
  void arrive(Warp&, const Instruction&, uint32_t lanes);
  bool passes(Warp&, const Instruction&, uint32_t lanes);
  void open_if_all_arrived(Cluster&);
  void map(Warp&, const Instruction&, uint32_t lanes);
  void locate_in_cluster(Warp&, const Instruction&, uint32_t lanes, Addresses&);
  const RunningBlock* peer_at(const Warp&, uint64_t address) const;
  uint64_t in_peer(const Warp&, const Instruction&, uint32_t lane, const RunningBlock& peer, uint64_t at) const;

  // ---- warps (`warp.cpp`) ----
  void run_warp(Warp&, uint32_t turns);
  bool execute(Warp&, Fragment&, uint32_t slice);
  void leave(Warp&, uint32_t lanes);
  bool gathers(Warp&, Fragment&);
  void all_take_part(const Warp&, const Instruction&, uint32_t lanes, uint32_t taking) const;

  // ---- groups of warps (`groups.cpp`) ----
  bool completes_group(Warp&, const Instruction&);
  void start_product(Warp&, const Instruction&);
  void finish_product(Warp&, const Started&);
  void multiply_as_group(Warp&, const Instruction&);

  // ---- collectives (`collective.cpp`) ----
  uint32_t together(Warp&, const Instruction&, uint32_t lanes);
  void meet(Warp&, const Instruction&, uint32_t group);
  void load_matrices(Warp&, const Instruction&);

  // ---- memory (`memory.cpp`) ----
  void load(Warp&, const Instruction&, uint32_t lanes);
  void store(Warp&, const Instruction&, uint32_t lanes);
  void update(Warp&, const Instruction&, uint32_t lanes);
  void locate(Warp&, const Instruction&, uint32_t lanes, bool writes, Addresses&);
  void locate_in(Warp&, const Instruction&, uint32_t lanes, char* begin, uint64_t bytes, uint64_t lane_bytes,
                 Addresses&);
  uint64_t locate_one(Warp&, const Instruction&, uint32_t lane, bool writes, uint64_t address);
  bool is_own(const Warp&, uint64_t address) const;
  bool is_late(const Warp&, const Access&, uint64_t address) const;
  bool is_of_thread(const Warp&, uint32_t lane, uint64_t address, uint64_t bytes) const;
  bool is_constant(uint64_t address, uint64_t bytes) const;
  void note(Warp&, const Instruction&, uint32_t lanes, bool writes, const Addresses&);
  uint32_t first_lane(Warp&);

  // ---- memory that other blocks see late (`weak.cpp`) ----
  void weak_read(RunningBlock&, uint64_t address, uint32_t bytes, bool past_l1, char* to);
  void weak_write(Warp&, uint32_t lane, uint64_t address, uint32_t bytes, const char* from);
  void weak_update(RunningBlock&, uint64_t address, uint32_t bytes);
  void fence(Warp&, uint32_t lanes);
  void forget_l1(RunningBlock&);
  void forget_all(RunningBlock&);
  void keep_held(RunningBlock&);
  void release_all();

  // The allocation that an access used last.
  struct Range { uint64_t begin = 0, end = 0; };

  const Launch& launch;
  Function& function;
  const bool random, weak;
  Random draws;
  uint32_t shared_bytes;
  std::vector<char> parameters;
  std::vector<Range> ranges;  // by the number of the access
  Touched touched;
  std::vector<std::pair<uint64_t, HeldStore>> left;  // what blocks that are done have stored last
};
}  // namespace emu::ptx
