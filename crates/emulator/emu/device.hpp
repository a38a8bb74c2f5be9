// A device of the emulated machine: its memory, and the pending work of its streams.
#pragma once
#include "allocations.hpp"
#include "block.hpp"
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace emu {
namespace ptx {
struct Function;
struct Module;
}  // namespace ptx
using Result = int;
using Address = unsigned long long;
using Handle = void*;
enum : Result {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  INVALID_CLUSTER_SIZE = 912,
};
constexpr size_t PAGE = 4096, ALIGN = 16, MOST_SHARED = 232448, PLAIN_SHARED = 48 << 10;
constexpr int DEVICES = 8;  // per machine

using Ready = std::function<bool()>;
struct Work {
  std::function<void()> run;
  Ready when;  // work that waits for a value in memory: whether it is there
  size_t unmet = 0;
  std::atomic<bool> done = false;  // other devices may ask
  bool last = false;               // runs when nothing else can
  std::vector<std::shared_ptr<Work>> next;
};
using Mark = std::shared_ptr<Work>;
struct Event;
// A node of a graph. A node that records an event names it; the event then counts as recorded by the graph's last launch.
struct Node {
  std::function<void()> run;
  std::vector<size_t> after;
  Ready when;
  Event* recorded = nullptr;
  bool last = false;
};
struct Device;
struct Graph { Device& device; std::vector<Node> nodes; std::vector<std::string> kernels; bool early; };
// `thread`: the one that captures, if others may meanwhile allocate (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
struct Capture { Graph* graph; struct Stream* origin; std::set<struct Stream*> joined; bool invalid = false; std::thread::id thread; };
struct Stream {
  Device& device;
  std::vector<Mark> last;                 // the next work waits for these
  std::shared_ptr<Capture> capture;
  std::vector<size_t> last_nodes;         // the same, in a graph under capture
  bool after_kernel = false;              // whether the last work is a kernel
  size_t number = 0;                      // of the streams of its device, in the order in which they were made
};
struct Event {
  Device& device;
  bool timed;
  Mark mark;
  std::vector<Mark> before;               // what its stream was given last before it
  size_t stream = 0;                      // the number of its stream
  std::shared_ptr<Capture> capture;
  std::vector<size_t> nodes;
  std::chrono::steady_clock::time_point at;
};

struct Allocation { void* base; size_t mapped, size; };

// What a kernel runs as: compiled for the host, or PTX, whose weak memory shows writes late.
enum class Code { Host, Ptx, Weak };

// A kernel: as host code, as PTX, or both.
struct Function {
  const Kernel* host;
  ptx::Function* code;
  std::string name;
  std::vector<unsigned short> sizes;  // of the arguments
};
// What was loaded: the host code is that of this library, or of the one that an image names.
struct Module {
  const Kernel* host = kernels;
  ptx::Module* code = nullptr;
  std::mutex lock;
  std::map<std::string, Function> functions;  // those that were asked for
};

struct Device {
  std::recursive_mutex guard;
  std::vector<Mark> ready;  // in the order in which it became ready
  uint64_t schedule_seed = 0, random_state = 1;
  MatrixUnits matrix = H100;
  Code code = Code::Host;
  Result fault = SUCCESS;
  std::string fault_text;
  std::set<std::shared_ptr<Capture>> captures;
  Stream null_stream{*this};
  std::set<Stream*> streams;
  std::map<Address, Allocation> allocations;
  std::map<uintptr_t, size_t> pinned;
  size_t used = 0;
  std::map<const Function*, size_t> shared_limit;
  uint64_t early_launches = 0;        // before the previous kernel had ended
  uint64_t clustered_launches = 0;    // as clusters of several blocks
  bool profiled = false;              // between cuProfilerStart and cuProfilerStop
  std::vector<std::string> profile;   // the kernels launched there
  size_t made = 0;                    // streams so far
  // By connection: the last work that was given to it. If there are any, a stream has one of them, and work waits for
  // all that was given to its connection before, of whatever stream.
  std::vector<Mark> connections;

  Mark add(const Stream&, std::function<void()>, std::vector<Mark> after, Ready when = {});
  Result give(Stream&, std::function<void()>, Ready when = {});
  bool advance();
  void advance_a_little();
  bool wait();
  Result until(std::vector<Mark>);
  Result until_all();
  void may_wait();
  bool forbidden();
  Address allocate(size_t n);
  Result release(Address);
  bool lies(Address, size_t n);
  bool is_pinned(const void*);
  void failed(Result, const std::string& text);
  void launched(const std::string& kernel);
};
struct Lock : std::lock_guard<std::recursive_mutex> {
  explicit Lock(Device& d) : std::lock_guard<std::recursive_mutex>(d.guard) {}
};

size_t memory_size();  // of a device, in bytes
}  // namespace emu
