// A stand-in for the CUDA driver: its names, over kernels compiled for the host.
//
// Nothing runs when it is given. Work waits, with what it depends on, until somebody synchronises or asks; then what may
// run does: in the order given (schedule seed 0), or in any order that streams, events and graphs allow (other seeds). So
// a missing event, a host buffer that is reused too early, or an order taken for granted shows as a wrong result.
// Every allocation ends at a page that nobody may touch, and is NaN when it is made.
#include "block.hpp"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <vector>
#undef gridDim
#undef blockDim

namespace {
using Result = int;
using Address = unsigned long long;
using Handle = void*;
enum : Result {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
};
constexpr size_t PAGE = 4096, ALIGN = 16, MOST_SHARED = 232448, PLAIN_SHARED = 48 << 10;

size_t memory_size() {
  const char* text = getenv("TGNN_EMU_MEMORY");
  return text ? strtoull(text, nullptr, 10) : size_t(4) << 30;
}

// ---- work ----
struct Work {
  std::function<void()> run;
  size_t unmet = 0;
  bool done = false;
  std::vector<std::shared_ptr<Work>> next;
};
using Mark = std::shared_ptr<Work>;
struct Node { std::function<void()> run; std::vector<size_t> after; };
struct Graph { std::vector<Node> nodes; };
struct Event;
struct Capture { Graph* graph; struct Stream* origin; std::set<struct Stream*> joined; bool invalid = false; };
struct Stream {
  std::vector<Mark> last;                 // what the next work waits for
  std::shared_ptr<Capture> capture;
  std::vector<size_t> last_nodes;         // the same, in a graph under capture
};
struct Event {
  Mark mark;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> nodes;
  std::chrono::steady_clock::time_point at;
};

std::recursive_mutex guard;
using Lock = std::lock_guard<std::recursive_mutex>;
std::vector<Mark> ready;  // in the order in which it became ready
uint64_t random_state = 1;
Result fault = SUCCESS;
std::string fault_text;
std::set<std::shared_ptr<Capture>> captures;
Stream null_stream;
std::set<Stream*> streams;

Stream& stream_of(Handle s) { return reinterpret_cast<uintptr_t>(s) < 3 ? null_stream : *static_cast<Stream*>(s); }

Mark add(std::function<void()> f, const std::vector<Mark>& after) {
  auto w = std::make_shared<Work>();
  w->run = std::move(f);
  for (const Mark& m : after) {
    if (m && !m->done) m->next.push_back(w), w->unmet++;
  }
  if (!w->unmet) ready.push_back(w);
  return w;
}

// Gives `f` to a stream, or to the graph it is being captured into.
Result give(Handle s, std::function<void()> f) {
  Stream& stream = stream_of(s);
  if (stream.capture) {
    if (stream.capture->invalid) return CAPTURE_INVALIDATED;
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(f), stream.last_nodes});
    stream.last_nodes = {nodes.size() - 1};
    return SUCCESS;
  }
  stream.last = {add(std::move(f), stream.last)};
  return SUCCESS;
}

// Runs one piece of work that may run; false where there is none.
bool advance() {
  if (ready.empty()) return false;
  size_t at = 0;
  if (emu::schedule_seed) {
    random_state = random_state * 6364136223846793005ull + emu::schedule_seed * 2 + 1;
    // Some seeds take the newest first, most any: both are orders that a device may choose.
    at = emu::schedule_seed % 4 == 1 ? ready.size() - 1 : size_t(random_state >> 33) % ready.size();
  }
  Mark w = ready[at];
  ready.erase(ready.begin() + ptrdiff_t(at));
  if (fault == SUCCESS) w->run();
  w->run = nullptr;
  w->done = true;
  for (Mark& n : w->next) {
    if (--n->unmet == 0) ready.push_back(n);
  }
  w->next.clear();
  return true;
}
Result until(const std::vector<Mark>& marks) {
  for (const Mark& m : marks) {
    while (m && !m->done) {
      if (!advance()) return LAUNCH_FAILED;
    }
  }
  return fault;
}
Result until_all() {
  while (advance()) {}
  return fault;
}
// What a thread may not do while it captures: the capture is lost.
bool forbidden() {
  for (auto& c : captures) c->invalid = true;
  return !captures.empty();
}

// ---- memory ----
struct Allocation { void* base; size_t mapped, size; };
std::map<Address, Allocation> allocations;
std::map<uintptr_t, size_t> pinned;
size_t used;

Address allocate(size_t n) {
  if (used + n > memory_size()) return 0;
  size_t data = (std::max<size_t>(n, 1) + ALIGN - 1) / ALIGN * ALIGN;
  size_t mapped = (data + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  char* end = static_cast<char*>(p) + mapped - PAGE;
  mprotect(p, PAGE, PROT_NONE);
  mprotect(end, PAGE, PROT_NONE);
  memset(end - data, 0xFF, data);
  Address a = reinterpret_cast<Address>(end - data);
  allocations[a] = {p, mapped, n};
  used += n;
  return a;
}
Result release(Address a) {
  auto at = allocations.find(a);
  if (at == allocations.end()) return INVALID_VALUE;
  munmap(at->second.base, at->second.mapped);
  used -= at->second.size;
  allocations.erase(at);
  return SUCCESS;
}
// Whether `n` bytes from `a` lie in one allocation.
bool lies(Address a, size_t n) {
  auto at = allocations.upper_bound(a);
  if (at == allocations.begin()) return n == 0;
  --at;
  return a + n <= at->first + at->second.size;
}
bool is_pinned(const void* p) {
  auto at = pinned.upper_bound(reinterpret_cast<uintptr_t>(p));
  return at != pinned.begin() && reinterpret_cast<uintptr_t>(p) < (--at)->first + at->second;
}
void failed(Result code, const std::string& text) {
  if (fault == SUCCESS) {
    fault = code;
    fault_text = text;
    fprintf(stderr, "emulated device: %s\n", text.c_str());
  }
}

std::map<const emu::Kernel*, size_t> shared_limit;
int context;
thread_local Handle current_context;
}  // namespace

extern "C" {
// ---- not in the driver: for tests ----
// Orders of threads, blocks and streams from now on; 0 is the plain order. Forgets a fault.
void tgnn_emu_schedule(uint64_t seed) {
  Lock lock(guard);
  emu::schedule_seed = seed;
  random_state = seed + 1;
  fault = SUCCESS;
  fault_text.clear();
}
// What the first fault since then was, or an empty text.
const char* tgnn_emu_fault() { return fault_text.c_str(); }

// ---- device ----
Result cuInit(unsigned) {
  const char* seed = getenv("TGNN_EMU_SEED");
  if (seed) tgnn_emu_schedule(strtoull(seed, nullptr, 10));
  return SUCCESS;
}
Result cuDriverGetVersion(int* v) { return *v = 13000, SUCCESS; }
Result cuDeviceGetCount(int* n) { return *n = 1, SUCCESS; }
Result cuDeviceGet(int* d, int ordinal) { return *d = ordinal, ordinal == 0 ? SUCCESS : INVALID_DEVICE; }
Result cuDeviceGetName(char* s, int n, int) { return snprintf(s, size_t(n), "emulated CUDA device"), SUCCESS; }
Result cuDeviceTotalMem_v2(size_t* n, int) { return *n = memory_size(), SUCCESS; }
Result cuDeviceGetAttribute(int* v, int attribute, int) {
  switch (attribute) {
    case 1: *v = 1024; break;                 // threads a block
    case 8: *v = PLAIN_SHARED; break;         // shared memory a block
    case 10: *v = 32; break;                  // threads a warp
    case 16: *v = 2; break;                   // multiprocessors
    case 75: *v = 9; break;                   // compute capability 9.0
    case 76: *v = 0; break;
    case 97: *v = MOST_SHARED; break;         // shared memory a block may ask for
    default: *v = 1;
  }
  return SUCCESS;
}
Result cuDevicePrimaryCtxRetain(Handle* c, int) { return *c = &context, SUCCESS; }
Result cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
Result cuCtxGetCurrent(Handle* c) { return *c = current_context, SUCCESS; }
Result cuCtxSetCurrent(Handle c) { return current_context = c, SUCCESS; }
Result cuCtxSynchronize() {
  Lock lock(guard);
  return forbidden() ? CAPTURE_UNSUPPORTED : until_all();
}
Result cuGetErrorName(int code, const char** s) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
      {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {600, "CUDA_ERROR_NOT_READY"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"}, {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"}};
  auto at = names.find(code);
  return *s = at == names.end() ? "CUDA_ERROR_UNKNOWN" : at->second, SUCCESS;
}
Result cuGetErrorString(int code, const char** s) {
  bool told = code != SUCCESS && code == fault;
  return told ? (*s = fault_text.c_str(), SUCCESS) : cuGetErrorName(code, s);
}

// ---- memory ----
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  Lock lock(guard);
  *total = memory_size();
  *free = *total - used;
  return SUCCESS;
}
Result cuMemAlloc_v2(Address* p, size_t n) {
  Lock lock(guard);
  if (n == 0) return INVALID_VALUE;
  if (forbidden()) return CAPTURE_UNSUPPORTED;
  return (*p = allocate(n)) ? SUCCESS : OUT_OF_MEMORY;
}
Result cuMemFree_v2(Address p) {
  Lock lock(guard);
  if (forbidden()) return CAPTURE_UNSUPPORTED;
  until_all();
  return release(p);
}
Result cuMemHostAlloc(Handle* p, size_t n, unsigned) {
  Lock lock(guard);
  if (forbidden()) return CAPTURE_UNSUPPORTED;
  if (posix_memalign(p, PAGE, std::max<size_t>(n, 1))) return OUT_OF_MEMORY;
  pinned[reinterpret_cast<uintptr_t>(*p)] = n;
  return SUCCESS;
}
Result cuMemFreeHost(Handle p) {
  Lock lock(guard);
  until_all();
  pinned.erase(reinterpret_cast<uintptr_t>(p));
  free(p);
  return SUCCESS;
}
Result cuMemsetD8Async(Address p, unsigned char v, size_t n, Handle s) {
  Lock lock(guard);
  if (!lies(p, n)) return INVALID_VALUE;
  return give(s, [=] { memset(reinterpret_cast<void*>(p), v, n); });
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, Handle s) {
  Lock lock(guard);
  if (!lies(to, n)) return INVALID_VALUE;
  if (is_pinned(from)) return give(s, [=] { memcpy(reinterpret_cast<void*>(to), from, n); });
  if (stream_of(s).capture) return forbidden(), CAPTURE_UNSUPPORTED;
  // Pageable memory is taken at once; what is pinned, when the copy runs.
  auto taken = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + n);
  return give(s, [=] { memcpy(reinterpret_cast<void*>(to), taken->data(), n); });
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, Handle s) {
  Lock lock(guard);
  if (!lies(from, n)) return INVALID_VALUE;
  Stream& stream = stream_of(s);
  if (!is_pinned(to) && stream.capture) return forbidden(), CAPTURE_UNSUPPORTED;
  Result given = give(s, [=] { memcpy(to, reinterpret_cast<void*>(from), n); });
  return given || is_pinned(to) ? given : until(stream.last);
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, Handle s) {
  Lock lock(guard);
  if (!lies(to, n) || !lies(from, n)) return INVALID_VALUE;
  return give(s, [=] { memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}

// ---- streams and events ----
Result cuStreamCreate(Handle* s, unsigned) {
  Lock lock(guard);
  auto* made = new Stream;
  streams.insert(made);
  return *s = made, SUCCESS;
}
Result cuStreamCreateWithPriority(Handle* s, unsigned flags, int) { return cuStreamCreate(s, flags); }
Result cuStreamDestroy_v2(Handle s) {
  Lock lock(guard);
  until(stream_of(s).last);
  streams.erase(static_cast<Stream*>(s));
  delete static_cast<Stream*>(s);
  return SUCCESS;
}
Result cuStreamSynchronize(Handle s) {
  Lock lock(guard);
  Stream& stream = stream_of(s);
  if (stream.capture) return forbidden(), CAPTURE_UNSUPPORTED;
  return until(stream.last);
}
Result cuStreamQuery(Handle s) {
  Lock lock(guard);
  advance();
  for (Mark& m : stream_of(s).last) {
    if (!m->done) return NOT_READY;
  }
  return fault;
}
Result cuStreamWaitEvent(Handle s, Handle e, unsigned) {
  Lock lock(guard);
  Stream& stream = stream_of(s);
  Event& event = *static_cast<Event*>(e);
  if (event.capture) {  // a stream that waits for what is being captured joins the capture
    if (!stream.capture) {
      stream.capture = event.capture;
      stream.last_nodes.clear();
      stream.capture->joined.insert(&stream);
    }
    if (stream.capture != event.capture) return INVALID_VALUE;
    stream.last_nodes.insert(stream.last_nodes.end(), event.nodes.begin(), event.nodes.end());
    return SUCCESS;
  }
  if (stream.capture) return forbidden(), CAPTURE_UNSUPPORTED;
  if (event.mark && !event.mark->done) stream.last.push_back(event.mark);
  return SUCCESS;
}
Result cuEventCreate(Handle* e, unsigned) { return *e = new Event, SUCCESS; }
Result cuEventDestroy_v2(Handle e) {
  Lock lock(guard);
  auto* event = static_cast<Event*>(e);
  if (event->mark) until({event->mark});
  delete event;
  return SUCCESS;
}
Result cuEventRecord(Handle e, Handle s) {
  Lock lock(guard);
  auto* event = static_cast<Event*>(e);
  Stream& stream = stream_of(s);
  event->capture = stream.capture;
  if (stream.capture) return event->nodes = stream.last_nodes, SUCCESS;
  give(s, [=] { event->at = std::chrono::steady_clock::now(); });
  event->mark = stream.last[0];
  return SUCCESS;
}
Result cuEventSynchronize(Handle e) {
  Lock lock(guard);
  auto* event = static_cast<Event*>(e);
  if (event->capture) return CAPTURE_UNSUPPORTED;
  return event->mark ? until({event->mark}) : SUCCESS;
}
Result cuEventQuery(Handle e) {
  Lock lock(guard);
  auto* event = static_cast<Event*>(e);
  advance();
  return event->mark && !event->mark->done ? NOT_READY : fault;
}
Result cuEventElapsedTime_v2(float* ms, Handle a, Handle b) {
  *ms = std::chrono::duration<float, std::milli>(static_cast<Event*>(b)->at - static_cast<Event*>(a)->at).count();
  return SUCCESS;
}
Result cuEventElapsedTime(float* ms, Handle a, Handle b) { return cuEventElapsedTime_v2(ms, a, b); }

// ---- kernels ----
Result cuModuleLoadData(Handle* m, const void*) { return *m = &context, SUCCESS; }
Result cuModuleUnload(Handle) { return SUCCESS; }
Result cuModuleGetFunction(Handle* f, Handle, const char* name) {
  for (const emu::Kernel* k = emu::kernels; k->name; k++) {
    if (!strcmp(k->name, name)) return *f = const_cast<emu::Kernel*>(k), SUCCESS;
  }
  return NOT_FOUND;
}
Result cuFuncGetAttribute(int* value, int attribute, Handle) {
  return *value = attribute == 0 ? 1024 : 0, SUCCESS;  // threads a block
}
Result cuFuncSetAttribute(Handle f, int attribute, int value) {
  Lock lock(guard);
  if (attribute == 8) {  // dynamic shared memory
    if (value < 0 || size_t(value) > MOST_SHARED) return INVALID_VALUE;
    shared_limit[static_cast<emu::Kernel*>(f)] = size_t(value);
  }
  return SUCCESS;
}
Result cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Handle s, void** arguments, void**) {
  Lock lock(guard);
  auto* k = static_cast<const emu::Kernel*>(f);
  auto limit = shared_limit.find(k);
  bool fits = shared <= std::max(PLAIN_SHARED, limit == shared_limit.end() ? 0 : limit->second);
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || gx > 0x7fffffffu || !bx || !by || !bz ||
      uint64_t(bx) * by * bz > 1024 || bz > 64 || !fits) {
    return INVALID_VALUE;
  }
  size_t bytes = 0;  // arguments are taken at the launch
  for (int i = 0; i < k->count; i++) bytes += (k->sizes[i] + 15u) / 16 * 16;
  auto taken = std::make_shared<std::vector<char>>(bytes);
  std::vector<size_t> offsets;
  for (size_t i = 0, at = 0; i < size_t(k->count); i++) {
    memcpy(taken->data() + at, arguments[i], k->sizes[i]);
    offsets.push_back(at);
    at += (k->sizes[i] + 15u) / 16 * 16;
  }
  return give(s, [=] {
    std::vector<void*> a;
    for (size_t at : offsets) a.push_back(taken->data() + at);
    std::string wrong = emu::run(*k, {gx, gy, gz}, {bx, by, bz}, shared, a.data());
    if (!wrong.empty()) failed(wrong.find("no allocation") != wrong.npos ? ILLEGAL_ADDRESS : LAUNCH_FAILED, wrong);
  });
}

// ---- graphs ----
Result cuStreamBeginCapture_v2(Handle s, int) {
  Lock lock(guard);
  Stream& stream = stream_of(s);
  if (stream.capture || &stream == &null_stream) return CAPTURE_UNSUPPORTED;
  stream.capture = std::make_shared<Capture>();
  stream.capture->graph = new Graph;
  stream.capture->origin = &stream;
  stream.capture->joined.insert(&stream);
  stream.last_nodes.clear();
  captures.insert(stream.capture);
  return SUCCESS;
}
Result cuStreamIsCapturing(Handle s, int* status) {
  auto& capture = stream_of(s).capture;
  return *status = !capture ? 0 : capture->invalid ? 2 : 1, SUCCESS;
}
Result cuStreamEndCapture(Handle s, Handle* g) {
  Lock lock(guard);
  *g = nullptr;
  Stream& stream = stream_of(s);
  auto capture = stream.capture;
  if (!capture || capture->origin != &stream) return CAPTURE_UNMATCHED;
  // Every joined stream's last work must lead to the origin's.
  std::set<size_t> reached(stream.last_nodes.begin(), stream.last_nodes.end());
  for (size_t n = capture->graph->nodes.size(); n-- > 0;) {
    if (reached.count(n)) reached.insert(capture->graph->nodes[n].after.begin(), capture->graph->nodes[n].after.end());
  }
  bool joined = true;
  for (Stream* t : capture->joined) {
    if (!streams.count(t)) continue;
    for (size_t n : t->last_nodes) joined = joined && reached.count(n);
    t->capture.reset();
    t->last_nodes.clear();
  }
  captures.erase(capture);
  if (capture->invalid || !joined) {
    delete capture->graph;
    return capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_UNJOINED;
  }
  return *g = capture->graph, SUCCESS;
}
Result cuGraphInstantiateWithFlags(Handle* e, Handle g, unsigned long long) {
  return *e = new Graph(*static_cast<Graph*>(g)), SUCCESS;
}
Result cuGraphUpload(Handle, Handle) { return SUCCESS; }
Result cuGraphLaunch(Handle e, Handle s) {
  Lock lock(guard);
  Stream& stream = stream_of(s);
  if (stream.capture) return forbidden(), CAPTURE_UNSUPPORTED;
  auto* graph = static_cast<Graph*>(e);
  if (graph->nodes.empty()) return SUCCESS;
  std::vector<Mark> marks;
  std::set<size_t> leaves;
  for (size_t n = 0; n < graph->nodes.size(); n++) {
    auto& node = graph->nodes[n];
    std::vector<Mark> after;
    for (size_t a : node.after) {
      after.push_back(marks[a]);
      leaves.erase(a);
    }
    if (node.after.empty()) after = stream.last;
    marks.push_back(add(node.run, after));
    leaves.insert(n);
  }
  stream.last.clear();
  for (size_t n : leaves) stream.last.push_back(marks[n]);
  return SUCCESS;
}
Result cuGraphExecDestroy(Handle e) {
  Lock lock(guard);
  until_all();
  delete static_cast<Graph*>(e);
  return SUCCESS;
}
Result cuGraphDestroy(Handle g) { return delete static_cast<Graph*>(g), SUCCESS; }
}
