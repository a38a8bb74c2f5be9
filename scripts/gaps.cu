// Times of the gaps between the nodes of captured graphs, and of what a graph costs the host: what docs/results.md
// assumes, beside what it measured. It needs nothing else of the project.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90,code=sm_90 -o gaps scripts/gaps.cu
//   gaps              prints a table
//   gaps --ceilings   only barriers, and ways to ask for the next kernel
//   gaps --json       prints JSON, and the table to standard error
//
// A measurement captures one kind of node many times and replays the graph. It divides the time between the ends of
// two replays by the nodes of the main stream. A measurement that fails is named, and the others go on; the exit
// status is then 1.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

namespace {

constexpr int THREADS = 256;
constexpr int MOST_BLOCKS = 1056;
constexpr int LENGTH = 200;  // nodes of the main stream
constexpr int LONG = 4000;   // about as many as a graph of many training steps has
constexpr int ROUNDS = 1000;  // barriers of a kernel
constexpr int TIMINGS = 9;   // the median counts
constexpr int REPLAYS = 20;  // of one timing

// Why a measurement ended early.
struct Failed {
  std::string why;
};

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw Failed{std::string(call) + ": " + cudaGetErrorName(result)};
}
void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw Failed{std::string(call) + ": driver's result " + std::to_string(int(result))};
}
// Calls a function of CUDA; a failure has its name.
#define DO(function, ...) check(function(__VA_ARGS__), #function)

// The GPU with what the measurements use.
struct Device {
  cudaDeviceProp properties;
  int least_priority, most_priority;
  cudaStream_t main, side;  // the main stream has priority, as the stream of a step's critical path has
  cudaEvent_t order, timed;
  float* values;
  unsigned *host_word, *device_word;
  // By way of the runtime, so that linking needs no libcuda.
  CUresult (*memory_operations)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

  Device() {
    DO(cudaGetDeviceProperties, &properties, 0);
    DO(cudaDeviceGetStreamPriorityRange, &least_priority, &most_priority);
    DO(cudaStreamCreateWithPriority, &main, cudaStreamNonBlocking, most_priority);
    DO(cudaStreamCreateWithPriority, &side, cudaStreamNonBlocking, least_priority);
    DO(cudaEventCreateWithFlags, &order, cudaEventDisableTiming);
    DO(cudaEventCreate, &timed);
    size_t bytes = sizeof(float) * THREADS * MOST_BLOCKS;
    DO(cudaMalloc, &values, bytes);
    DO(cudaMemset, values, 0, bytes);
    DO(cudaMalloc, &device_word, sizeof(unsigned));
    DO(cudaHostAlloc, &host_word, sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable);
    cudaDriverEntryPointQueryResult found;
    auto address = reinterpret_cast<void**>(&memory_operations);
    DO(cudaGetDriverEntryPointByVersion, "cuStreamBatchMemOp", address, 12000, cudaEnableDefault, &found);
  }
};

// When a kernel asks for the next one: at its start, when only its stores are left, or, as tgnn does, never; then the
// next one is launched when all blocks have exited.
enum class Asks { START, EPILOGUE, NEVER };

__device__ void ask_for_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// It begins as every kernel of tgnn does.
__global__ void waits_then_works(float* values, int work, Asks asks) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (asks == Asks::START) ask_for_next_kernel();
  float* own = values + THREADS * blockIdx.x + threadIdx.x;
  float v = *own;
  for (int i = 0; i < work; i++) v = v * 0.999f + 1.f;
  if (asks == Asks::EPILOGUE) ask_for_next_kernel();
  *own = v;
}

__global__ void block_barriers(unsigned*, int rounds) {
  for (int round = 0; round < rounds; round++) __syncthreads();
}

__global__ void cluster_barriers(unsigned*, int rounds) {
#if __CUDA_ARCH__ >= 900
  for (int round = 0; round < rounds; round++)
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// All blocks have to run at the same time.
__global__ void grid_barriers(unsigned* arrived, int rounds) {
  for (unsigned round = 1; round <= unsigned(rounds); round++) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrived, 1u);
      while (*const_cast<volatile unsigned*>(arrived) < round * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }
}

// How a kernel is launched.
struct Kernel {
  int blocks = 132;
  bool early = false;  // before the previous one has ended
  int cluster = 1;
  int work = 0;
  Asks asks = Asks::START;
};

void launch(const Device& on, cudaStream_t stream, const Kernel& kernel) {
  std::vector<cudaLaunchAttribute> attributes;
  if (kernel.early) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    attributes.push_back(early);
  }
  if (kernel.cluster > 1) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(kernel.cluster), 1, 1};
    attributes.push_back(cluster);
  }
  cudaLaunchConfig_t how = {};
  how.gridDim = dim3(kernel.blocks);
  how.blockDim = dim3(THREADS);
  how.stream = stream;
  how.attrs = attributes.data();
  how.numAttrs = unsigned(attributes.size());
  cudaError_t launched = cudaLaunchKernelEx(&how, waits_then_works, on.values, kernel.work, kernel.asks);
  check(launched, "cudaLaunchKernelEx");
}

// ---- what is captured, on the main stream ----

void order(const Device& on, cudaStream_t before, cudaStream_t after) {
  DO(cudaEventRecord, on.order, before);
  DO(cudaStreamWaitEvent, after, on.order);
}

void chain(const Device& on, Kernel kernel) {
  bool early = kernel.early;
  for (int i = 0; i < LENGTH; i++) {
    kernel.early = early && i > 0;
    launch(on, on.main, kernel);
  }
}

// Each kernel follows the previous one, which is on the other stream.
void in_turn(const Device& on) {
  for (int i = 0; i < LENGTH; i++) {
    cudaStream_t own = i % 2 ? on.side : on.main, other = i % 2 ? on.main : on.side;
    if (i > 0) order(on, other, own);
    launch(on, own, Kernel{});
  }
  order(on, on.side, on.main);
}

// A chain of which every third kernel also releases one on the side stream, as in a step with the plan `overlap`.
void with_side_stream(const Device& on, bool early, int length) {
  for (int i = 0; i < length; i++) {
    Kernel kernel;
    kernel.early = early && i > 0;
    launch(on, on.main, kernel);
    if (i % 3 == 0) {
      order(on, on.main, on.side);
      launch(on, on.side, Kernel{});
    }
  }
  order(on, on.side, on.main);
}

void words(const Device& on, unsigned* word, bool waits) {
  CUstreamBatchMemOpParams both[2] = {};
  both[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  both[0].writeValue.address = CUdeviceptr(word);
  both[0].writeValue.value = 1;
  both[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  both[1].waitValue.address = CUdeviceptr(word);
  both[1].waitValue.value = 1;
  both[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  for (int i = 0; i < LENGTH; i++) check(on.memory_operations(on.main, waits ? 2 : 1, both, 0), "cuStreamBatchMemOp");
}

// ---- measurements ----

// Microseconds: of a node of the main stream (median and least), of the call that launches the graph, and of what is
// done once, for each of all nodes.
struct Measured {
  std::string name;
  size_t nodes;
  double node, least, launch, capture, instantiate, upload;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)>;
using Ready = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, decltype(&cudaGraphExecDestroy)>;

Graph captured(const Device& on, const std::function<void()>& record) {
  DO(cudaStreamBeginCapture, on.main, cudaStreamCaptureModeThreadLocal);
  cudaGraph_t graph = nullptr;
  try {
    record();
  } catch (const Failed&) {
    // The stream must leave the capture, or all later measurements fail, too.
    cudaStreamEndCapture(on.main, &graph);
    cudaGetLastError();
    throw;
  }
  DO(cudaStreamEndCapture, on.main, &graph);
  return Graph(graph, cudaGraphDestroy);
}

Measured measure(const Device& on, int length, unsigned flags, const std::function<void()>& record) {
  Measured m = {};
  double started = seconds();
  Graph graph = captured(on, record);
  double was_captured = seconds();
  cudaGraphExec_t made = nullptr;
  DO(cudaGraphInstantiateWithFlags, &made, graph.get(), flags);
  Ready ready(made, cudaGraphExecDestroy);
  double was_made = seconds();
  DO(cudaGraphUpload, made, on.main);
  DO(cudaStreamSynchronize, on.main);
  double was_uploaded = seconds();
  DO(cudaGraphGetNodes, graph.get(), nullptr, &m.nodes);
  std::vector<double> of_node, of_launch;
  for (int timing = 0; timing < TIMINGS; timing++) {
    double from = seconds();
    DO(cudaGraphLaunch, made, on.main);
    of_launch.push_back(seconds() - from);
    DO(cudaStreamSynchronize, on.main);
    from = seconds();
    for (int replay = 0; replay < REPLAYS; replay++) DO(cudaGraphLaunch, made, on.main);
    DO(cudaStreamSynchronize, on.main);
    of_node.push_back((seconds() - from) / REPLAYS / length);
  }
  m.node = 1e6 * median(of_node);
  m.least = 1e6 * *std::min_element(of_node.begin(), of_node.end());
  m.launch = 1e6 * median(of_launch);
  m.capture = 1e6 * (was_captured - started) / double(m.nodes);
  m.instantiate = 1e6 * (was_made - was_captured) / double(m.nodes);
  m.upload = 1e6 * (was_uploaded - was_made) / double(m.nodes);
  return m;
}

// Returns the times of a barrier in a kernel whose threads do nothing else. A cooperative launch is refused if its blocks
// cannot run at the same time.
Measured barriers(const Device& on, void (*kernel)(unsigned*, int), int blocks, int cluster, bool all) {
  Measured m = {};
  m.nodes = 1;
  std::vector<double> of_barrier;
  for (int timing = 0; timing < TIMINGS; timing++) {
    DO(cudaMemsetAsync, on.device_word, 0, sizeof(unsigned), on.main);
    cudaLaunchAttribute attribute = {};
    if (all) {
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
    } else {
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {unsigned(cluster), 1, 1};
    }
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(blocks);
    how.blockDim = dim3(THREADS);
    how.stream = on.main;
    how.attrs = &attribute;
    how.numAttrs = 1;
    DO(cudaStreamSynchronize, on.main);
    double from = seconds();
    check(cudaLaunchKernelEx(&how, kernel, on.device_word, ROUNDS), "cudaLaunchKernelEx");
    DO(cudaStreamSynchronize, on.main);
    of_barrier.push_back((seconds() - from) / ROUNDS);
  }
  m.node = 1e6 * median(of_barrier);
  m.least = 1e6 * *std::min_element(of_barrier.begin(), of_barrier.end());
  return m;
}

// Measures one after the other; the table grows as it does so, because a later measurement may never end.
struct Table {
  const Device& on;
  FILE* out;
  std::vector<Measured> measured;
  std::vector<std::pair<std::string, std::string>> failed;

  Table(const Device& on, FILE* out) : on(on), out(out) {
    fprintf(out, "%s, %d multiprocessors, L2 of %d MiB, priorities %d to %d\n", on.properties.name,
            on.properties.multiProcessorCount, on.properties.l2CacheSize >> 20, on.least_priority, on.most_priority);
    fprintf(out, "%-40s%9s%9s%9s%11s%14s%13s%10s\n", "us", "a node", "least", "launch", "captured", "instantiated",
            "uploaded", "nodes");
  }

  void add(const std::string& name, const std::function<void()>& record, int length = LENGTH,
           unsigned flags = cudaGraphInstantiateFlagUseNodePriority) {
    measured_by(name, [&] { return measure(on, length, flags, record); });
  }

  void measured_by(const std::string& name, const std::function<Measured()>& measure) {
    try {
      Measured m = measure();
      m.name = name;
      fprintf(out, "%-40s%9.3f%9.3f%9.1f%11.2f%14.2f%13.2f%10zu\n", name.c_str(), m.node, m.least, m.launch, m.capture,
              m.instantiate, m.upload, m.nodes);
      measured.push_back(m);
    } catch (const Failed& e) {
      fprintf(out, "%-40s failed, %s\n", name.c_str(), e.why.c_str());
      failed.emplace_back(name, e.why);
    }
    fflush(out);
  }
};

void add_chains(Table& table) {
  const Device& on = table.on;
  for (int blocks : {1, 132, 264, MOST_BLOCKS}) {
    std::string name = "chain, " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks");
    table.add(name + ", late", [&] { chain(on, {blocks}); });
    table.add(name + ", early", [&] { chain(on, {blocks, true}); });
    if (blocks % 4 == 0) table.add(name + ", early, clusters", [&] { chain(on, {blocks, true, 4}); });
  }
  table.add("chain of 2 us of work, late", [&] { chain(on, {132, false, 1, 900}); });
  table.add("chain of 2 us of work, early", [&] { chain(on, {132, true, 1, 900}); });
}

// What changes of the kernels could reach at most.
void add_ceilings(Table& table) {
  const Device& on = table.on;
  std::pair<const char*, Asks> ways[] = {
      {"never", Asks::NEVER}, {"in the epilogue", Asks::EPILOGUE}, {"at the start", Asks::START}};
  for (auto [way, asks] : ways) {
    for (int blocks : {132, 264}) {
      std::string name = "chain of 2 us, " + std::to_string(blocks) + " blocks, asks " + way;
      table.add(name, [&, asks = asks] { chain(on, {blocks, true, 1, 900, asks}); });
    }
  }
  table.measured_by("barrier of a block", [&] { return barriers(on, block_barriers, 132, 1, false); });
  table.measured_by("barrier of 8 blocks, a cluster", [&] { return barriers(on, cluster_barriers, 128, 8, false); });
  table.measured_by("barrier of 132 blocks", [&] { return barriers(on, grid_barriers, 132, 1, true); });
}

void add_two_streams(Table& table) {
  const Device& on = table.on;
  table.add("two streams in turn", [&] { in_turn(on); });
  table.add("side stream, late", [&] { with_side_stream(on, false, LENGTH); });
  table.add("side stream, early", [&] { with_side_stream(on, true, LENGTH); });
  table.add("side stream, early, no priorities", [&] { with_side_stream(on, true, LENGTH); }, LENGTH, 0);
  table.add("side stream, early, 4000 kernels", [&] { with_side_stream(on, true, LONG); }, LONG);
}

void add_other_nodes(Table& table) {
  const Device& on = table.on;
  auto repeated = [](const std::function<void()>& node) {
    for (int i = 0; i < LENGTH; i++) node();
  };
  table.add("memset of 4 KB", [&] { repeated([&] { DO(cudaMemsetAsync, on.values, 0, 4096, on.main); }); });
  table.add("copy of 4 bytes", [&] {
    repeated([&] { DO(cudaMemcpyAsync, on.values, on.values + 64, 4, cudaMemcpyDeviceToDevice, on.main); });
  });
  table.add("word of the host, write", [&] { words(on, on.host_word, false); });
  table.add("word of the host, write and wait", [&] { words(on, on.host_word, true); });
  table.add("word of the device, write", [&] { words(on, on.device_word, false); });
  table.add("word of the device, write and wait", [&] { words(on, on.device_word, true); });
  table.add("event with time", [&] {
    repeated([&] { DO(cudaEventRecordWithFlags, on.timed, on.main, cudaEventRecordExternal); });
  });
}

// Names and reasons are plain words, which JSON need not escape.
void print_json(const Table& table) {
  const cudaDeviceProp& of = table.on.properties;
  printf("{\"schema\": 1, \"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %d, \"gaps\": [", of.name,
         of.multiProcessorCount, of.l2CacheSize);
  const char* between = "";
  for (const Measured& m : table.measured) {
    printf("%s\n  {\"name\": \"%s\", \"nodes\": %zu, \"us\": %.4f, \"least_us\": %.4f, \"launch_us\": %.3f, "
           "\"capture_us\": %.4f, \"instantiate_us\": %.4f, \"upload_us\": %.4f}",
           between, m.name.c_str(), m.nodes, m.node, m.least, m.launch, m.capture, m.instantiate, m.upload);
    between = ",";
  }
  printf("\n], \"failed\": [");
  between = "";
  for (const auto& [name, why] : table.failed) {
    printf("%s\n  {\"name\": \"%s\", \"why\": \"%s\"}", between, name.c_str(), why.c_str());
    between = ",";
  }
  printf("]}\n");
}

}  // namespace

int main(int count, char** arguments) {
  bool json = false, ceilings = false;
  for (int i = 1; i < count; i++) {
    json |= !strcmp(arguments[i], "--json");
    ceilings |= !strcmp(arguments[i], "--ceilings");
  }
  if (count - 1 != int(json) + int(ceilings)) {
    fprintf(stderr, "usage: gaps [--ceilings] [--json]\n");
    return 2;
  }
  try {
    Device device;
    Table table(device, json ? stderr : stdout);
    if (!ceilings) {
      add_chains(table);
      add_two_streams(table);
      add_other_nodes(table);
    }
    add_ceilings(table);
    if (json) print_json(table);
    return table.failed.empty() ? 0 : 1;
  } catch (const Failed& e) {
    fprintf(stderr, "gaps: no measurement is possible: %s\n", e.why.c_str());
    return 1;
  }
}
