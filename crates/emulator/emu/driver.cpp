// A replacement for the CUDA driver library: the same functions, over kernels compiled for the host, or over the PTX in
// their images.
//
// Nothing runs at submission. Work is queued with its dependencies until the program synchronises or queries; then
// ready work runs: in submission order (schedule seed 0), or in any order that streams, events and graphs allow (other
// seeds). So a missing event, a host buffer that is reused too early, or an unjustified assumption about the order
// shows as a wrong result. Every allocation ends at an inaccessible page, and is filled with NaN at first.
//
// A machine has eight devices, as many real ones have. Each has its own memory, streams, schedule, fault and lock, so
// threads that use different devices run in parallel. A context is its device. Every device may access the memory of
// the others.
#include "device.hpp"
#include "ptx/ptx.hpp"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace emu;
namespace {
// Never destroyed: a thread may still use a device when the program ends.
Device* const devices = new Device[DEVICES];
thread_local Device* current_context;

// The device of the calling thread's context.
Device& here() { return current_context ? *current_context : devices[0]; }
Stream& stream_of(Handle s) { return reinterpret_cast<uintptr_t>(s) < 3 ? here().null_stream : *static_cast<Stream*>(s); }

// Runs a kernel as the device's setting says. One that only a module of PTX has always runs as PTX.
std::string run(Device& d, const Function& f, dim3 grid, dim3 size, dim3 cluster, size_t shared, void** arguments,
                bool early) {
  if (f.host && d.code == Code::Host) {
    return emu::run({*f.host, grid, size, cluster, shared, arguments, d.schedule_seed, d.matrix});
  }
  if (!f.code) return "kernel " + f.name + " has no PTX: build with nvcc (scripts/fetch-nvcc)";
  bool weak = d.code == Code::Weak;
  return ptx::run({*f.code, grid, size, cluster, shared, arguments, d.schedule_seed, d.matrix, weak, early});
}
}  // namespace

extern "C" {
// ---- for tests; not in the real driver ----
// Sets the orders of a device's threads, blocks and streams from now on; 0 is the plain order. Clears the fault.
void tgnn_emu_schedule(int device, uint64_t seed) {
  Device& d = devices[device];
  Lock lock(d);
  d.schedule_seed = seed;
  d.random_state = seed + 1;
  d.fault = SUCCESS;
  d.fault_text.clear();
}
// Returns the number of kernels that a device was given to start before the previous one has ended.
uint64_t tgnn_emu_early(int device) { return devices[device].early_launches; }
// Returns the number of kernels that a device was given as clusters of several blocks.
uint64_t tgnn_emu_clustered(int device) { return devices[device].clustered_launches; }
// Sets the matrix units of a device from now on: "h100", "a100" or "exact". Returns whether there are such.
bool tgnn_emu_matrix(int device, const char* name) {
  Device& d = devices[device];
  Lock lock(d);
  std::string wanted = name;
  for (auto& [known, units] : {std::pair{"h100", H100}, {"a100", A100}, {"exact", EXACT}}) {
    if (wanted == known) return d.matrix = units, true;
  }
  return false;
}
// Sets what the kernels of a device run as from now on: "host", "ptx" or "weak". Returns whether there is such code.
bool tgnn_emu_code(int device, const char* name) {
  Device& d = devices[device];
  Lock lock(d);
  std::string wanted = name;
  for (auto& [known, code] : {std::pair{"host", Code::Host}, {"ptx", Code::Ptx}, {"weak", Code::Weak}}) {
    if (wanted == known) return d.code = code, true;
  }
  return false;
}
// Sets the number of connections of a device from now on; 0, the default: one for each stream. Called without work.
void tgnn_emu_connections(int device, unsigned number) {
  Device& d = devices[device];
  Lock lock(d);
  d.connections.assign(number, nullptr);
}
// The device's first fault since the last call of `tgnn_emu_schedule`, or an empty string.
const char* tgnn_emu_fault(int device) { return devices[device].fault_text.c_str(); }
unsigned tgnn_emu_blocks_at_once() { return blocks_at_once(); }

// Whether `TGNN_EMU_DEFECT` plants a defect, one of a list with commas: `skip:KERNEL`, its launches do nothing;
// `fault:KERNEL`, they access memory that is not theirs; `stall:KERNEL`, they never end; `hang:KERNEL`, the call that
// launches it never returns; `early`, a graph with early launches is refused; `unwaited:N`, the Nth wait of a stream for
// an event is ignored.
static bool defective(const std::string& wanted) {
  const char* text = getenv("TGNN_EMU_DEFECT");
  return text && ("," + std::string(text) + ",").find("," + wanted + ",") != std::string::npos;
}

// ---- device ----
Result cuInit(unsigned) {
  static Result result = []() -> Result {
    const char *seed = getenv("TGNN_EMU_SEED"), *matrix = getenv("TGNN_EMU_MATRIX"), *code = getenv("TGNN_EMU_CODE");
    // As many as a driver has: what CUDA_DEVICE_MAX_CONNECTIONS says, or 8.
    const char *connections = getenv("TGNN_EMU_CONNECTIONS"), *most = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (connections && !strcmp(connections, "cuda")) connections = most ? most : "8";
    // What `cuGetErrorString` says.
    auto refuse = [](const char* key, const char* value, const char* known) -> Result {
      devices[0].fault_text = std::string(key) + " is `" + value + "`, not " + known;
      return devices[0].fault = INVALID_VALUE;
    };
    for (int d = 0; d < DEVICES; d++) {
      if (seed) tgnn_emu_schedule(d, strtoull(seed, nullptr, 10));
      if (matrix && !tgnn_emu_matrix(d, matrix)) return refuse("TGNN_EMU_MATRIX", matrix, "h100, a100 or exact");
      if (connections) tgnn_emu_connections(d, unsigned(strtoul(connections, nullptr, 10)));
      if (code && !tgnn_emu_code(d, code)) return refuse("TGNN_EMU_CODE", code, "host, ptx or weak");
    }
    return SUCCESS;
  }();
  return result;
}
Result cuDriverGetVersion(int* v) {
  const char* version = getenv("TGNN_EMU_DRIVER");
  return *v = version ? atoi(version) : 13000, SUCCESS;
}
Result cuDeviceGetCount(int* n) { return *n = DEVICES, SUCCESS; }
Result cuDeviceGet(int* d, int ordinal) {
  return *d = ordinal, ordinal >= 0 && ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}
Result cuDeviceGetName(char* s, int n, int) { return snprintf(s, size_t(n), "emulated CUDA device"), SUCCESS; }
Result cuDeviceTotalMem_v2(size_t* n, int) { return *n = memory_size(), SUCCESS; }
Result cuDeviceGetAttribute(int* v, int attribute, int) {
  switch (attribute) {
    case 1: *v = 1024; break;                 // threads per block
    case 8: *v = PLAIN_SHARED; break;         // shared memory per block
    case 10: *v = 32; break;                  // threads per warp
    case 16: *v = 2; break;                   // multiprocessors
    case 38: *v = 1 << 20; break;             // bytes of L2
    case 75: *v = 9; break;                   // compute capability 9.0
    case 76: *v = 0; break;
    case 97: *v = MOST_SHARED; break;         // opt-in shared memory per block
    default: *v = 1;
  }
  return SUCCESS;
}
Result cuDevicePrimaryCtxRetain(Handle* c, int d) { return *c = &devices[d], SUCCESS; }
Result cuDeviceCanAccessPeer(int* can, int a, int b) { return *can = a != b, SUCCESS; }
Result cuCtxEnablePeerAccess(Handle peer, unsigned) { return peer == &here() ? INVALID_DEVICE : SUCCESS; }
Result cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
Result cuCtxGetDevice(int* d) { return *d = int(&here() - devices), SUCCESS; }
Result cuCtxGetCurrent(Handle* c) { return *c = current_context, SUCCESS; }
Result cuCtxSetCurrent(Handle c) { return current_context = static_cast<Device*>(c), SUCCESS; }
Result cuCtxSynchronize() {
  Device& d = here();
  Lock lock(d);
  return d.forbidden() ? CAPTURE_UNSUPPORTED : d.until_all();
}
Result cuGetErrorName(int code, const char** s) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
      {34, "CUDA_ERROR_STUB_LIBRARY"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {600, "CUDA_ERROR_NOT_READY"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"}, {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE"}};
  auto at = names.find(code);
  return *s = at == names.end() ? "CUDA_ERROR_UNKNOWN" : at->second, SUCCESS;
}
Result cuGetErrorString(int code, const char** s) {
  bool told = code != SUCCESS && code == here().fault;
  return told ? (*s = here().fault_text.c_str(), SUCCESS) : cuGetErrorName(code, s);
}

// ---- memory ----
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  Device& d = here();
  Lock lock(d);
  *total = memory_size();
  *free = *total - d.used;
  return SUCCESS;
}
Result cuMemAlloc_v2(Address* p, size_t n) {
  Device& d = here();
  Lock lock(d);
  if (n == 0) return INVALID_VALUE;
  if (d.forbidden()) return CAPTURE_UNSUPPORTED;
  d.may_wait();
  return (*p = d.allocate(n)) ? SUCCESS : OUT_OF_MEMORY;
}
Result cuMemFree_v2(Address p) {
  Device& d = here();
  Lock lock(d);
  if (d.forbidden()) return CAPTURE_UNSUPPORTED;
  d.until_all();
  return d.release(p);
}
Result cuMemHostAlloc(Handle* p, size_t n, unsigned) {
  Device& d = here();
  Lock lock(d);
  if (d.forbidden()) return CAPTURE_UNSUPPORTED;
  d.may_wait();
  if (posix_memalign(p, PAGE, std::max<size_t>(n, 1))) return OUT_OF_MEMORY;
  d.pinned[reinterpret_cast<uintptr_t>(*p)] = n;
  add_allocation(reinterpret_cast<uintptr_t>(*p), n);
  return SUCCESS;
}
Result cuMemFreeHost(Handle p) {
  Device& d = here();
  Lock lock(d);
  d.until_all();
  d.pinned.erase(reinterpret_cast<uintptr_t>(p));
  remove_allocation(reinterpret_cast<uintptr_t>(p));
  free(p);
  return SUCCESS;
}
Result cuMemsetD8Async(Address p, unsigned char v, size_t n, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (!d.lies(p, n)) return INVALID_VALUE;
  return d.give(stream, [=] { memset(reinterpret_cast<void*>(p), v, n); });
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (!d.lies(to, n)) return INVALID_VALUE;
  if (d.is_pinned(from)) return d.give(stream, [=] { memcpy(reinterpret_cast<void*>(to), from, n); });
  if (stream.capture) return d.forbidden(), CAPTURE_UNSUPPORTED;
  // Pageable memory is copied now, pinned memory when the copy runs.
  auto taken = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + n);
  return d.give(stream, [=] { memcpy(reinterpret_cast<void*>(to), taken->data(), n); });
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (!d.lies(from, n)) return INVALID_VALUE;
  if (!d.is_pinned(to) && stream.capture) return d.forbidden(), CAPTURE_UNSUPPORTED;
  Result given = d.give(stream, [=] { memcpy(to, reinterpret_cast<void*>(from), n); });
  return given || d.is_pinned(to) ? given : d.until(stream.last);
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (!d.lies(to, n) || !d.lies(from, n)) return INVALID_VALUE;
  return d.give(stream, [=] { memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}

// ---- streams and events ----
Result cuStreamCreate(Handle* s, unsigned) {
  Device& d = here();
  Lock lock(d);
  d.may_wait();
  auto* made = new Stream{d};
  made->number = d.made++;
  d.streams.insert(made);
  return *s = made, SUCCESS;
}
// Priorities change times alone, and the emulator has no times.
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, SUCCESS; }
Result cuStreamCreateWithPriority(Handle* s, unsigned flags, int) { return cuStreamCreate(s, flags); }
Result cuStreamDestroy_v2(Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  d.until(stream.last);
  d.streams.erase(static_cast<Stream*>(s));
  delete static_cast<Stream*>(s);
  return SUCCESS;
}
Result cuStreamSynchronize(Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (stream.capture) return d.forbidden(), CAPTURE_UNSUPPORTED;
  return d.until(stream.last);
}
Result cuStreamQuery(Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  d.advance_a_little();
  for (Mark& m : stream.last) {
    if (!m->done) return NOT_READY;
  }
  return d.fault;
}
// Lets a stream wait for an event of another device. That device gets on meanwhile, as all of them do by themselves:
// its own threads may be waiting for this one.
static Result wait_for_other(Stream& stream, Event& event) {
  Device& other = event.device;
  Mark mark;
  {
    Lock lock(other);
    if (event.capture) return INVALID_VALUE;
    mark = event.mark;
  }
  Lock lock(stream.device);
  if (stream.capture) return stream.device.forbidden(), CAPTURE_UNSUPPORTED;
  return stream.device.give(stream, [] {}, [=, &other] {
    thread_local bool helps = false;  // what the other device waits for is not helped in turn
    if (mark && !mark->done && !helps && other.guard.try_lock()) {
      helps = true;
      other.advance();
      helps = false;
      other.guard.unlock();
    }
    return !mark || mark->done;
  });
}
// Whether the next wait of a stream for an event of its device is to be ignored. What was waited for then runs when
// nothing else can: before it comes everything that no other wait holds back.
static bool unwaited(const Stream& stream, Event& event) {
  static std::atomic<size_t> waits = 0;
  size_t number = ++waits;
  if (!defective("unwaited:" + std::to_string(number))) return false;
  fprintf(stderr, "emulated device: wait %zu, of stream %zu for stream %zu, is ignored\n", number, stream.number,
          event.stream);
  for (size_t n : event.nodes) event.capture->graph->nodes[n].last = true;
  for (const Mark& m : event.before) m->last = true;
  return true;
}
Result cuStreamWaitEvent(Handle s, Handle e, unsigned) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Event& event = *static_cast<Event*>(e);
  if (&event.device != &d) return wait_for_other(stream, event);
  Lock lock(d);
  if (unwaited(stream, event)) return SUCCESS;
  stream.after_kernel = false;
  if (event.capture) {  // a stream that waits for captured work joins the capture
    if (!stream.capture) {
      stream.capture = event.capture;
      stream.last_nodes.clear();
      stream.capture->joined.insert(&stream);
    }
    if (stream.capture != event.capture) return INVALID_VALUE;
    stream.last_nodes.insert(stream.last_nodes.end(), event.nodes.begin(), event.nodes.end());
    return SUCCESS;
  }
  if (stream.capture) return d.forbidden(), CAPTURE_UNSUPPORTED;
  if (event.mark && !event.mark->done) stream.last.push_back(event.mark);
  return d.connections.empty() ? SUCCESS : d.give(stream, [] {});  // what waits holds up its connection
}
// Waits for values in memory and writes such values, in the order of the stream. The memory may be the host's, or
// another device's.
struct MemoryOp {
  unsigned operation;  // 1: wait for a value of 32 bits; 2: write it
  Address address;
  uint64_t value;
  unsigned flags;  // of a wait, 1: until it is equal
  uint64_t unused[2];
};
static_assert(sizeof(MemoryOp) == 48, "CUstreamBatchMemOpParams");
Result cuStreamBatchMemOp_v2(Handle s, unsigned count, const MemoryOp* ops, unsigned) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (count >= 256) return INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    auto* word = reinterpret_cast<uint32_t*>(ops[i].address);
    auto value = uint32_t(ops[i].value);
    bool waits = ops[i].operation == 1;
    if (!word || ops[i].address % 4 || ops[i].flags != unsigned(waits)) return INVALID_VALUE;
    Result given = waits ? d.give(stream, [] {}, [=] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value; })
                         : d.give(stream, [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
    if (given) return given;
  }
  return SUCCESS;
}
Result cuEventCreate(Handle* e, unsigned flags) {
  bool timed = !(flags & 2);  // CU_EVENT_DISABLE_TIMING
  return *e = new Event{here(), timed}, SUCCESS;
}
Result cuEventDestroy_v2(Handle e) {
  auto* event = static_cast<Event*>(e);
  Device& d = event->device;
  Lock lock(d);
  if (event->mark) d.until({event->mark});
  delete event;
  return SUCCESS;
}
Result cuEventRecord(Handle e, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  auto* event = static_cast<Event*>(e);
  event->capture = stream.capture;
  event->stream = stream.number;
  event->before.clear();
  event->nodes.clear();
  if (stream.capture) return event->nodes = stream.last_nodes, SUCCESS;
  event->before = stream.last;
  bool after_kernel = stream.after_kernel;
  d.give(stream, [=] { event->at = std::chrono::steady_clock::now(); });
  stream.after_kernel = after_kernel;
  event->mark = stream.last[0];
  return SUCCESS;
}
// Flag 1, CU_EVENT_RECORD_EXTERNAL: during a capture, adds a node that records the event in every launch of the graph.
Result cuEventRecordWithFlags(Handle e, Handle s, unsigned flags) {
  if (flags == 0) return cuEventRecord(e, s);
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (flags != 1 || !stream.capture) return INVALID_VALUE;
  auto* event = static_cast<Event*>(e);
  Result given = d.give(stream, [=] { event->at = std::chrono::steady_clock::now(); });
  if (!given) stream.capture->graph->nodes.back().recorded = event;
  return given;
}
Result cuEventSynchronize(Handle e) {
  auto* event = static_cast<Event*>(e);
  Device& d = event->device;
  Lock lock(d);
  if (event->capture) return CAPTURE_UNSUPPORTED;
  return event->mark ? d.until({event->mark}) : SUCCESS;
}
Result cuEventQuery(Handle e) {
  auto* event = static_cast<Event*>(e);
  Device& d = event->device;
  Lock lock(d);
  d.advance_a_little();
  return event->mark && !event->mark->done ? NOT_READY : d.fault;
}
Result cuEventElapsedTime_v2(float* ms, Handle a, Handle b) {
  auto *from = static_cast<Event*>(a), *to = static_cast<Event*>(b);
  if (!from->timed || !to->timed || !from->mark || !to->mark) return INVALID_HANDLE;
  if (!from->mark->done || !to->mark->done) return NOT_READY;
  return *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(), SUCCESS;
}
Result cuEventElapsedTime(float* ms, Handle a, Handle b) { return cuEventElapsedTime_v2(ms, a, b); }

// ---- profiler ----
// The range that a profiler would record. At its end, the names of the kernels that were launched in it are appended to
// the file that TGNN_EMU_PROFILE names, a line each.
Result cuProfilerStart() {
  Device& d = here();
  Lock lock(d);
  return d.profiled = true, SUCCESS;
}
Result cuProfilerStop() {
  Device& d = here();
  Lock lock(d);
  const char* path = getenv("TGNN_EMU_PROFILE");
  FILE* file = d.profiled && path ? fopen(path, "a") : nullptr;
  if (file) {
    for (auto& kernel : d.profile) fprintf(file, "%s\n", kernel.c_str());
    fclose(file);
  }
  d.profiled = false;
  d.profile.clear();
  return SUCCESS;
}

// ---- kernels ----
// No module (null) stands for the kernels of this library, as host code alone.
Result cuModuleLoadData(Handle* m, const void* image) {
  const auto* text = static_cast<const char*>(image);
  auto module = std::make_unique<Module>();
  if (!strncmp(text, "emu:", 4)) {
    void* library = dlopen(text + 4, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    module->host = static_cast<const Kernel*>(library ? dlsym(library, "tgnn_kernels") : nullptr);
    if (!module->host) return INVALID_IMAGE;
  } else if (std::string ptx = ptx::text_of(image); !ptx.empty()) {
    std::string wrong;
    module->code = ptx::module_of(ptx, wrong);
    if (!wrong.empty()) fprintf(stderr, "%s\n", wrong.c_str());
    if (!module->code) return INVALID_IMAGE;
    if (ptx == text) module->host = nullptr;  // a text has no kernels but its own
  }
  return *m = module.release(), SUCCESS;
}
Result cuModuleUnload(Handle) { return SUCCESS; }
Result cuModuleGetFunction(Handle* f, Handle m, const char* name) {
  static Module& own = *new Module;
  Module& module = m ? *static_cast<Module*>(m) : own;
  std::lock_guard<std::mutex> held(module.lock);
  auto found = module.functions.find(name);
  if (found != module.functions.end()) return *f = &found->second, SUCCESS;
  Function function{nullptr, module.code ? ptx::function_of(*module.code, name) : nullptr, name, {}};
  for (auto* k = module.host; k && k->name; k++) {
    if (!strcmp(k->name, name)) function.host = k;
  }
  if (!function.host && !function.code) return NOT_FOUND;
  if (function.host) function.sizes.assign(function.host->sizes, function.host->sizes + function.host->count);
  else function.sizes = ptx::parameter_sizes(*function.code);
  if (function.code && ptx::parameter_sizes(*function.code) != function.sizes) return INVALID_IMAGE;
  return *f = &module.functions.emplace(name, std::move(function)).first->second, SUCCESS;
}
Result cuFuncGetAttribute(int* value, int attribute, Handle) {
  return *value = attribute == 0 ? 1024 : 0, SUCCESS;  // threads per block
}
Result cuFuncSetAttribute(Handle f, int attribute, int value) {
  Device& d = here();
  Lock lock(d);
  if (attribute == 8) {  // dynamic shared memory
    if (value < 0 || size_t(value) > MOST_SHARED) return INVALID_VALUE;
    d.shared_limit[static_cast<Function*>(f)] = size_t(value);
  }
  return SUCCESS;
}
// `CUlaunchAttribute` and `CUlaunchConfig`
struct Attribute { int id; char unused[4]; union { int allowed; unsigned cluster[3]; char bytes[64]; }; };
struct Config { unsigned gx, gy, gz, bx, by, bz, shared; Handle stream; const Attribute* attributes; unsigned count; };
static Result read_attributes(const Config& config, bool& early, dim3& cluster) {
  constexpr int CLUSTER_DIMENSION = 4, PROGRAMMATIC_STREAM_SERIALIZATION = 6;
  for (unsigned i = 0; i < config.count; i++) {
    const Attribute& a = config.attributes[i];
    if (a.id == PROGRAMMATIC_STREAM_SERIALIZATION) early |= a.allowed != 0;
    else if (a.id == CLUSTER_DIMENSION) cluster = {a.cluster[0], a.cluster[1], a.cluster[2]};
    else return INVALID_VALUE;
  }
  auto [x, y, z] = cluster;
  if (!x || !y || !z || config.gx % x || config.gy % y || config.gz % z) return INVALID_VALUE;
  constexpr uint64_t PORTABLE = 8;  // blocks; more need an attribute of the kernel
  return uint64_t(x) * y * z > PORTABLE ? INVALID_CLUSTER_SIZE : SUCCESS;
}
Result cuLaunchKernelEx(const Config* config, Handle f, void** arguments, void**) {
  auto [gx, gy, gz, bx, by, bz, shared, s, attributes, count] = *config;
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  bool early = false;
  dim3 cluster;
  if (Result wrong = read_attributes(*config, early, cluster)) return wrong;
  if (early && !stream.after_kernel) return INVALID_VALUE;  // stricter than the driver: it may ignore this, or refuse it
  d.early_launches += early;
  d.clustered_launches += uint64_t(cluster.x) * cluster.y * cluster.z > 1;
  auto* function = static_cast<const Function*>(f);
  auto limit = d.shared_limit.find(function);
  bool fits = shared <= std::max(PLAIN_SHARED, limit == d.shared_limit.end() ? 0 : limit->second);
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || gx > 0x7fffffffu || !bx || !by || !bz ||
      uint64_t(bx) * by * bz > 1024 || bz > 64 || !fits) {
    return INVALID_VALUE;
  }
  size_t bytes = 0;  // the arguments are copied at the launch
  for (auto size : function->sizes) bytes += (size + 15u) / 16 * 16;
  auto taken = std::make_shared<std::vector<char>>(bytes);
  std::vector<size_t> offsets;
  for (size_t i = 0, at = 0; i < function->sizes.size(); i++) {
    memcpy(taken->data() + at, arguments[i], function->sizes[i]);
    offsets.push_back(at);
    at += (function->sizes[i] + 15u) / 16 * 16;
  }
  while (defective("hang:" + function->name)) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (stream.capture) stream.capture->graph->kernels.push_back(function->name);
  else d.launched(function->name);
  if (stream.capture) stream.capture->graph->early |= early;
  bool skipped = defective("skip:" + function->name), faulty = defective("fault:" + function->name);
  dim3 grid{gx, gy, gz}, size{bx, by, bz};
  Result given = d.give(stream, [=, &d, dynamic = shared] {
    if (faulty) return d.failed(ILLEGAL_ADDRESS, "planted in " + function->name);
    if (skipped) return;
    std::vector<void*> a;
    for (size_t at : offsets) a.push_back(taken->data() + at);
    std::string wrong = run(d, *function, grid, size, cluster, dynamic, a.data(), early);
    if (!wrong.empty()) d.failed(wrong.find("no allocation") != wrong.npos ? ILLEGAL_ADDRESS : LAUNCH_FAILED, wrong);
  }, defective("stall:" + function->name) ? Ready([] { return false; }) : Ready());
  stream.after_kernel = true;
  return given;
}
Result cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Handle s, void** arguments, void** extra) {
  Config config{gx, gy, gz, bx, by, bz, shared, s, nullptr, 0};
  return cuLaunchKernelEx(&config, f, arguments, extra);
}

// ---- graphs ----
Result cuStreamBeginCapture_v2(Handle s, int mode) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (stream.capture || &stream == &d.null_stream) return CAPTURE_UNSUPPORTED;
  stream.capture = std::make_shared<Capture>();
  stream.capture->graph = new Graph{d, {}, {}, false};
  stream.capture->origin = &stream;
  constexpr int THREAD_LOCAL = 1;
  if (mode == THREAD_LOCAL) stream.capture->thread = std::this_thread::get_id();
  stream.capture->joined.insert(&stream);
  stream.last_nodes.clear();
  stream.after_kernel = false;
  d.captures.insert(stream.capture);
  return SUCCESS;
}
Result cuStreamIsCapturing(Handle s, int* status) {
  auto& capture = stream_of(s).capture;
  return *status = !capture ? 0 : capture->invalid ? 2 : 1, SUCCESS;
}
Result cuStreamEndCapture(Handle s, Handle* g) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  *g = nullptr;
  auto capture = stream.capture;
  if (!capture || capture->origin != &stream) return CAPTURE_UNMATCHED;
  // The last work of every joined stream must lead to the origin's last work.
  std::set<size_t> reached(stream.last_nodes.begin(), stream.last_nodes.end());
  for (size_t n = capture->graph->nodes.size(); n-- > 0;) {
    if (reached.count(n)) reached.insert(capture->graph->nodes[n].after.begin(), capture->graph->nodes[n].after.end());
  }
  bool joined = true;
  for (Stream* t : capture->joined) {
    if (!d.streams.count(t)) continue;
    for (size_t n : t->last_nodes) joined = joined && reached.count(n);
    t->capture.reset();
    t->last_nodes.clear();
  }
  d.captures.erase(capture);
  if (capture->invalid || !joined) {
    delete capture->graph;
    return capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_UNJOINED;
  }
  return *g = capture->graph, SUCCESS;
}
Result cuGraphInstantiateWithFlags(Handle* e, Handle g, unsigned long long) {
  if (static_cast<Graph*>(g)->early && defective("early")) return NOT_SUPPORTED;
  Device& d = static_cast<Graph*>(g)->device;
  Lock lock(d);
  d.may_wait();
  return *e = new Graph(*static_cast<Graph*>(g)), SUCCESS;
}
Result cuGraphUpload(Handle, Handle) { return SUCCESS; }
Result cuGraphLaunch(Handle e, Handle s) {
  Stream& stream = stream_of(s);
  Device& d = stream.device;
  Lock lock(d);
  if (stream.capture) return d.forbidden(), CAPTURE_UNSUPPORTED;
  auto* graph = static_cast<Graph*>(e);
  if (graph->nodes.empty()) return SUCCESS;
  for (auto& kernel : graph->kernels) d.launched(kernel);
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
    marks.push_back(d.add(stream, node.run, after, node.when));
    if (node.recorded) node.recorded->mark = marks.back();
    leaves.insert(n);
  }
  stream.last.clear();
  for (size_t n : leaves) stream.last.push_back(marks[n]);
  return SUCCESS;
}
Result cuGraphExecDestroy(Handle e) {
  auto* graph = static_cast<Graph*>(e);
  Device& d = graph->device;
  Lock lock(d);
  d.until_all();
  delete graph;
  return SUCCESS;
}
Result cuGraphDestroy(Handle g) { return delete static_cast<Graph*>(g), SUCCESS; }
}
