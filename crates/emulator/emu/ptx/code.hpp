// Kernels as the interpreter executes them: instructions whose operands are places in the registers of a warp.
#pragma once
#include "../block.hpp"
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace emu::ptx {
constexpr uint32_t LANES = 32, ALL = ~0u;
// Where there is no operand, no place and no label.
constexpr uint32_t NOWHERE = ~0u;

// Ends an execution; the text says why.
struct Fault {
  std::string text;
};

// Computes results from registers, for the lanes of a mask. `operands` are offsets from `registers`: of what is
// written, then of what is read.
using Compute = void (*)(char* registers, const uint32_t* operands, uint32_t lanes);

enum class Kind : uint8_t {
  Compute, Nothing, Jump, Return, Barrier, Collective, Load, Store, Atomic, Fence, Trap, WaitForPrevious,
  ClusterArrive, ClusterWait, MapShared, GroupBarrier, MatrixGroup,
};
// Cluster: shared memory of any block of the cluster (`clusters.cpp`).
enum class Space : uint8_t { Generic, Global, Shared, Cluster, Local, Parameter };
// What a barrier tells the threads of a block about a predicate.
enum class Told : uint8_t { None, Any, All, Count };
// What the lanes of a warp do together.
enum class Group : uint8_t {
  Sync, FromIndex, FromBelow, FromAbove, FromXor, Ballot, Any, All, Match,
  Add, Min, Max, MinSigned, MaxSigned, And, Or, Xor, Product,
  LoadMatrices,
};
// What a warp does for products that run while it goes on (wgmma).
enum class Matrix : uint8_t { Fence, Start, End, Wait };
enum class Update : uint8_t {
  Exchange, CompareExchange, Add, AddFloat, Increment, Decrement, Min, Max, MinSigned, MaxSigned, And, Or, Xor,
};

// An access to memory. Its first operand that is read is the address.
struct Access {
  Space space = Space::Generic;
  uint8_t bytes = 4, count = 1;  // of an element; elements
  bool is_signed = false;
  bool wide = false;             // the registers have 64 bits
  bool wide_address = false;
  bool constant = false;         // .nc: nobody may write there during the launch
  bool past_l1 = false;          // reads what other blocks have made visible
  bool acquires = false, releases = false;
  uint32_t place = 0;            // number of the access in its kernel
  int64_t offset = 0;
};

struct Instruction {
  Kind kind = Kind::Compute;
  uint8_t outs = 0, ins = 0;     // operands that it writes and reads
  bool labelled = false;         // a jump goes here
  bool negated = false;          // of the guard
  bool aligned = false;          // the whole warp executes it together
  bool releases = false;         // of an arrival at the cluster's barrier
  uint32_t guard = NOWHERE;
  uint32_t first = 0;            // of its operands in `Function::operands`
  uint32_t target = NOWHERE;     // of a jump
  Compute compute = nullptr;
  Told told = Told::None;
  Group group = Group::Sync;
  Update update = Update::Exchange;
  Matrix matrix = Matrix::Fence;
  uint32_t threads = 0;          // of a barrier for some of a block
  Access access;
  uint32_t line = 0;                      // of the PTX
  uint32_t source_file = 0, source_line = 0;  // `.loc`; 0 if there is none
};

// A register as the text names it, or a constant. Sizes: 'w' up to 32 bits, 'x' 64 bits, 'p' a predicate.
struct Register {
  char size;
  bool is_constant = false;
  uint64_t value = 0;  // of a constant
};
// Registers that have a value when a thread starts.
enum Special : uint8_t {
  TID_X, TID_Y, TID_Z, NTID_X, NTID_Y, NTID_Z, CTAID_X, CTAID_Y, CTAID_Z, NCTAID_X, NCTAID_Y, NCTAID_Z, LANEID, WARPID,
  CLUSTER_CTARANK, CLUSTER_NCTARANK, CLUSTER_CTAID_X, CLUSTER_CTAID_Y, CLUSTER_CTAID_Z, CLUSTER_NCTAID_X,
  CLUSTER_NCTAID_Y, CLUSTER_NCTAID_Z,
  SHARED_BASE, LOCAL_BASE,  // generic addresses of a thread's shared and local memory
  SPECIALS,
};

struct Module;
struct Parameter { std::string name; uint32_t bytes, offset; };
struct Function {
  Module* module = nullptr;
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t most_threads = 1024;    // of a block
  size_t body = 0, end = 0;        // in the module's text, between the braces
  uint32_t body_line = 0;

  // What follows is there once the body has been read.
  std::once_flag read;
  std::string unreadable;          // why the body cannot be read
  std::vector<Instruction> code;
  std::vector<uint32_t> operands;
  std::vector<Register> registers;
  std::array<uint32_t, SPECIALS> special;  // places of those that are used
  std::vector<char> initial;       // a warp's registers when it starts: constants, and ones elsewhere (NaN)
  uint32_t shared_bytes = 0;       // of the kernel's own arrays; dynamic shared memory comes behind
  uint32_t local_bytes = 0;        // of a thread
  uint32_t places = 0;             // accesses to memory
  bool has_constant_loads = false;
  bool reads_unset = false;        // a register may be read before it is written
  std::unique_ptr<std::atomic<bool>[]> ran;  // by instruction; with TGNN_EMU_COVERAGE

  // Where dynamic shared memory begins. The kernel's own arrays are declared before it is named.
  uint32_t dynamic_at() const { return (shared_bytes + 15) / 16 * 16; }
};

// A text and what it declares.
struct Module {
  std::string text;
  std::map<uint32_t, std::string> files;  // of `.loc`
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, std::vector<char>> constants;   // variables of the module, by name
  std::vector<std::string> dynamic;       // names of dynamic shared memory
  // Shared memory that several kernels declare together: a name, and the rest of the declaration.
  std::map<std::string, std::string> shared;
  std::string line(uint32_t number) const;
};

// Reads the body of a kernel when it is first needed (`reader.cpp`).
void read(Function&);
// Replaces the numbers of registers in `operands` by places that registers share (`registers.cpp`).
void place_registers(Function&);
// Whether it is noted which instructions are executed (`coverage.cpp`), and a kernel of which this is reported.
bool is_watched();
void watch(Function&);
}  // namespace emu::ptx
