// Writes which lines of the kernels' sources have PTX that was never executed: `TGNN_EMU_COVERAGE=FILE`.
#include "code.hpp"
#include <cstdio>
#include <cstdlib>
#include <set>

namespace emu::ptx {
namespace {
std::mutex& lock = *new std::mutex;
std::vector<Function*>& watched = *new std::vector<Function*>;

void write() {
  std::lock_guard<std::mutex> held(lock);
  std::set<std::pair<std::string, uint32_t>> all, ran;
  for (Function* f : watched) {
    for (size_t i = 0; f->ran && i < f->code.size(); i++) {
      const Instruction& instruction = f->code[i];
      auto file = f->module->files.find(instruction.source_file);
      // Line 0: instructions of no line.
      if (file == f->module->files.end() || !instruction.source_line) continue;
      all.insert({file->second, instruction.source_line});
      if (f->ran[i]) ran.insert({file->second, instruction.source_line});
    }
  }
  FILE* out = fopen(getenv("TGNN_EMU_COVERAGE"), "w");
  if (!out) return perror("TGNN_EMU_COVERAGE");
  for (auto& place : all) {
    if (!ran.count(place)) fprintf(out, "%s:%u\n", place.first.c_str(), place.second);
  }
  fclose(out);
}
}  // namespace

bool is_watched() {
  static bool wanted = getenv("TGNN_EMU_COVERAGE") && !atexit(write);
  return wanted;
}
void watch(Function& f) {
  if (!is_watched()) return;
  read(f);  // now: at the end of the program, the reader's tables may be gone
  std::lock_guard<std::mutex> held(lock);
  watched.push_back(&f);
}
}  // namespace emu::ptx
