// The interface of the PTX interpreter for the driver.
//
// The interpreter executes what nvcc makes of the kernels, as the specification of PTX (PTX ISA) says. It uses nothing
// of the emulation of CUDA C++ in `cuda.hpp`, so that a mistake in one of the two shows; only the sums of the matrix
// units are common. A warp executes an instruction for all its lanes that have reached it.
#pragma once
#include "../block.hpp"

namespace emu::ptx {
struct Module;
struct Function;

// Returns the PTX in an image: a fatbin that is not compressed, or a text; an empty string if there is none.
std::string text_of(const void* image);
// Returns the module of a text; equal texts give the same module, which is never freed. Sets `wrong` if the text
// cannot be read, and returns null.
Module* module_of(const std::string& text, std::string& wrong);
// Returns the kernel called `name`, or null.
Function* function_of(Module&, const std::string& name);
// The sizes of a kernel's parameters in bytes.
std::vector<unsigned short> parameter_sizes(const Function&);

struct Launch {
  Function& function;
  dim3 grid, size, cluster;  // blocks; threads of a block; blocks of a cluster
  size_t shared;     // dynamic, in bytes
  void** arguments;
  uint64_t seed;     // 0: in order
  MatrixUnits matrix;
  bool weak;         // blocks see each other's writes as late as they may
  bool early;        // launched before the previous kernel has ended
};
// Executes a launch on the calling thread; returns an error message, or an empty string.
std::string run(const Launch&);
}  // namespace emu::ptx
