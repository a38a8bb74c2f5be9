// Pieces of PTX text, shared by the readers of modules and of kernels.
#pragma once
#include "code.hpp"
#include <cctype>
#include <string_view>

namespace emu::ptx {
using Text = std::string_view;

inline bool is_space(char c) { return isspace(static_cast<unsigned char>(c)); }
inline Text trimmed(Text t) {
  while (!t.empty() && is_space(t.front())) t.remove_prefix(1);
  while (!t.empty() && is_space(t.back())) t.remove_suffix(1);
  return t;
}
inline bool starts_with(Text t, Text with) { return t.substr(0, with.size()) == with; }
// Takes the first word off a text.
inline Text take_word(Text& t) {
  t = trimmed(t);
  size_t n = 0;
  while (n < t.size() && !is_space(t[n])) n++;
  Text word = t.substr(0, n);
  t = trimmed(t.substr(n));
  return word;
}
// Splits at commas outside of braces and brackets.
std::vector<Text> operands_of(Text);
// Reads a number in decimal or hexadecimal, or the bits of a floating-point constant (0f..., 0d...).
bool number_of(Text, uint64_t& value);
inline uint32_t rounded_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

// The bytes of a type such as `.u32`; of a predicate, none.
uint32_t bytes_of_type(Text type);
// `.align 8 .b8 name[16] = {1, 2}`, as parameters, arrays and variables are declared.
struct Declaration {
  std::string name;
  uint32_t align = 0, element = 0, bytes = 0;
  std::vector<uint64_t> values;
};
Declaration declaration_of(Text);
}  // namespace emu::ptx
