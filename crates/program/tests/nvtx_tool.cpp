// What a profiler loads into the program, against NVIDIA's own headers: writes every range's begin and end to the file
// that RANGES names. Refuses, with a line there, where the program's tables are not those of the headers.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

static FILE* out;

static int push(const char* name) { return fprintf(out, "begin %s\n", name); }
static int pop() { return fprintf(out, "end\n"); }

static int refused(const char* why, int module) { return fprintf(out, "refused: %s, module %d\n", why, module), fflush(out), 0; }

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  out = fopen(getenv("RANGES"), "w");
  auto* version = static_cast<const NvtxExportTableVersionInfo*>(get(NVTX_ETID_VERSIONINFO));
  auto* tables = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  if (!version || version->struct_size != sizeof *version || version->version != NVTX_VERSION) return refused("version", 0);
  if (!tables || tables->struct_size != sizeof *tables || get(NVTX_ETID_SIZE)) return refused("export tables", 0);
  version->SetInjectionNvtxVersion(NVTX_VERSION);
  const unsigned ids[NVTX_CB_MODULE_SIZE] = {0,
                                             NVTX_CBID_CORE_SIZE,
                                             NVTX_CBID_CUDA_SIZE,
                                             NVTX_CBID_OPENCL_SIZE,
                                             NVTX_CBID_CUDART_SIZE,
                                             NVTX_CBID_CORE2_SIZE,
                                             NVTX_CBID_SYNC_SIZE};
  for (int module = 0; module <= NVTX_CB_MODULE_SIZE; module++) {
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    bool is_one = module > NVTX_CB_MODULE_INVALID && module < NVTX_CB_MODULE_SIZE;
    if (tables->GetModuleFunctionTable(NvtxCallbackModule(module), &table, &size) != is_one) return refused("is it one", module);
    if (!is_one) continue;
    if (size != ids[module] || table[0] || table[size]) return refused("size", module);
    for (unsigned id = 1; id < size; id++) {
      if (!table[id]) return refused("slot", module);
    }
    if (module != NVTX_CB_MODULE_CORE) continue;
    *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
    *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  }
  return 1;
}
