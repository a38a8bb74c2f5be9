// Reads the body of a kernel to code.
#pragma once
#include "words.hpp"
#include <unordered_map>

namespace emu::ptx {
class Reader {
 public:
  explicit Reader(Function& f) : function(f), module(*f.module) {}
  void read();

 private:
  // Registers that one declaration names: `name` (count 0), or `name0` to `name<count - 1>`.
  struct Named { uint32_t first, count; };
  using Names = std::unordered_map<std::string, uint32_t>;
  using Scope = std::unordered_map<std::string, Named>;

  // ---- text (`reader.cpp`) ----
  [[noreturn]] void wrong(const std::string& what) const;
  void text();
  void location(Text);
  void statement(Text);
  void declare_registers(Text);
  void declare_memory(Text, Names&, uint32_t& bytes);
  void finish();
  // ---- operands ----
  uint32_t new_register(char size);
  const Register* register_of(Text, uint32_t& id) const;
  bool symbol(Text, uint64_t& value) const;
  uint32_t constant(char size, uint64_t value);
  uint32_t special(Special);
  void out(Text, char size);
  void in(Text, char size);
  bool any(Text, bool out);
  void address(Text, Access&);
  void need(size_t operands) const;
  bool has(const char* word) const;

  // ---- instructions (`instructions.cpp`) ----
  void instruction();
  void jump();
  void barrier();
  void cluster_barrier();
  void shuffle();
  void vote();
  void match();
  void reduce();
  void product();
  void matrix_group();
  void load_matrices();
  void load_or_store(bool load);
  void update();
  void fence();
  void map();
  void pack();
  void convert_address();
  void compute();
  Space space() const;
  std::vector<Text> elements(Text) const;

  Function& function;
  Module& module;
  std::vector<Scope> scopes;
  Names shared, local, labels;
  std::vector<std::pair<size_t, std::string>> jumps;  // from an instruction to a label
  std::map<std::pair<char, uint64_t>, uint32_t> constants;
  std::array<uint32_t, SPECIALS> specials;
  uint32_t line = 0, source_file = 0, source_line = 0;

  // The instruction that is being read.
  Instruction now;
  std::string opcode;
  std::vector<std::string> words;  // of the opcode
  std::vector<Text> given;         // its operands
};
}  // namespace emu::ptx
