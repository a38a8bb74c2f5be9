// Runs, on a GPU, the planted mistake that the given tool of compute-sanitizer must find. A tool that finds it can be
// trusted when it reports nothing elsewhere.
#include <cstdio>
#include <cstring>

#include "../crates/emulator/emu/planted.cu"

int main(int count, char** words) {
  const char* tool = count > 1 ? words[1] : "";
  float *x, *y;
  cudaMalloc(&x, 64 * sizeof(float));
  cudaMalloc(&y, 64 * sizeof(float));
  bool uninitialised = !strcmp(tool, "initcheck");
  if (!uninitialised) cudaMemset(x, 0, 64 * sizeof(float));
  if (!strcmp(tool, "memcheck")) planted_out_of_bounds<<<1, 96>>>(x, 64);
  else if (!strcmp(tool, "racecheck")) planted_missing_barrier<<<1, 64>>>(x, y);
  else if (uninitialised) passed_on<<<1, 64>>>(x, y);
  else if (!strcmp(tool, "synccheck")) planted_divergent_barrier<<<1, 32>>>(x);
  else return printf("give memcheck, racecheck, initcheck or synccheck\n"), 2;
  cudaDeviceSynchronize();
  return 0;
}
