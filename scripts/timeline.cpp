// Writes when every kernel of a program ran, also those within graphs. NVIDIA's driver loads this library into the
// program, and CUPTI, which PyTorch and the CUDA toolkit bring, records the times. It needs no headers of CUDA.
//
//   g++ -std=c++17 -O2 -shared -fPIC -o libtimeline.so scripts/timeline.cpp
//   CUDA_INJECTION64_PATH=$PWD/libtimeline.so TGNN_CUPTI=.../libcupti.so.13 TGNN_TIMELINE=kernels.csv PROGRAM
//
// A line of the file is a kernel: nanoseconds of start and end, stream, node of the graph (0: none), and name.
// benches/timeline.py reads it. What goes wrong is told on standard error, and the program runs on without a file.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

constexpr size_t BUFFER = 8 << 20;
constexpr uint32_t CONCURRENT_KERNEL = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: kernels still overlap
constexpr uint32_t FLUSH_FORCED = 1;        // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

// The beginning of CUpti_ActivityKernel4 and all later ones.
struct Kernel {
  uint32_t kind;
  uint8_t cache, shared;
  uint16_t registers;
  uint32_t partitioned_requested, partitioned_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], static_shared, dynamic_shared;
  uint32_t local_of_thread, local, correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout_requested, carveout, padding;
  uint32_t shared_executed;
  uint64_t graph_node;
};
static_assert(sizeof(Kernel) == 152, "CUPTI packs records to eight bytes");

using Requested = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

struct Cupti {
  int (*register_callbacks)(Requested, Completed);
  int (*enable)(uint32_t);
  int (*next_record)(uint8_t*, size_t, void**);
  int (*flush_all)(uint32_t);
};

Cupti cupti;
FILE* out;
std::mutex writing;

void requested(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, BUFFER));
  *size = *buffer ? BUFFER : 0;
  *most_records = 0;  // as many as fit
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  std::lock_guard<std::mutex> lock(writing);
  for (void* record = nullptr; cupti.next_record(buffer, valid, &record) == 0;) {
    const Kernel& k = *static_cast<Kernel*>(record);
    if (k.kind != CONCURRENT_KERNEL) continue;
    fprintf(out, "%llu,%llu,%u,%llu,%s\n", static_cast<unsigned long long>(k.start),
            static_cast<unsigned long long>(k.end), k.stream, static_cast<unsigned long long>(k.graph_node), k.name);
  }
  free(buffer);
}

void finish() {
  int result = cupti.flush_all(FLUSH_FORCED);
  if (result) fprintf(stderr, "timeline: cuptiActivityFlushAll failed, %d\n", result);
  fclose(out);
}

template <typename Function>
bool found(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) fprintf(stderr, "timeline: CUPTI has no %s\n", name);
  return function != nullptr;
}

bool done(int result, const char* call) {
  if (result) fprintf(stderr, "timeline: %s failed, %d\n", call, result);
  return result == 0;
}

}  // namespace

// The driver calls this when the program initialises it.
extern "C" int InitializeInjection() {
  const char *path = getenv("TGNN_CUPTI"), *file = getenv("TGNN_TIMELINE");
  void* library = dlopen(path ? path : "libcupti.so.13", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "timeline: %s\n", dlerror());
    return 1;
  }
  bool whole = found(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
               found(library, "cuptiActivityEnable", cupti.enable) &&
               found(library, "cuptiActivityGetNextRecord", cupti.next_record) &&
               found(library, "cuptiActivityFlushAll", cupti.flush_all);
  if (!whole) return 1;
  out = fopen(file ? file : "kernels.csv", "w");
  if (!out) {
    perror("timeline");
    return 1;
  }
  if (done(cupti.register_callbacks(requested, completed), "cuptiActivityRegisterCallbacks") &&
      done(cupti.enable(CONCURRENT_KERNEL), "cuptiActivityEnable"))
    atexit(finish);
  return 1;
}
