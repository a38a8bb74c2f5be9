// Takes the body of a kernel apart into statements, and their operands.
#include "reader.hpp"
#include <algorithm>

namespace emu::ptx {
void Reader::wrong(const std::string& what) const {
  throw Fault{"kernel " + function.name + ", PTX line " + std::to_string(line) + ": " + what};
}

void Reader::read() {
  scopes.emplace_back();
  specials.fill(NOWHERE);
  text();
  finish();
  place_registers(function);
}

// Takes the body apart into labels, braces and statements.
void Reader::text() {
  Text body = Text(module.text).substr(function.body, function.end - function.body);
  line = function.body_line;
  for (auto& [name, declaration] : module.shared) {
    if (body.find(name) != body.npos) declare_memory(declaration, shared, function.shared_bytes);
  }
  size_t at = 0;
  auto step = [&] { line += body[at++] == '\n'; };
  auto rest = [&] { return body.substr(at); };
  while (at < body.size()) {
    if (is_space(body[at])) {
      step();
    } else if (starts_with(rest(), "//") || starts_with(rest(), ".loc\t") || starts_with(rest(), ".loc ")) {
      Text whole = rest().substr(0, rest().find('\n'));
      if (whole[0] == '.') location(whole.substr(4));
      at += whole.size();
    } else if (body[at] == '{') {
      scopes.emplace_back(), at++;
    } else if (body[at] == '}') {
      scopes.pop_back(), at++;
    } else {
      size_t end = body.find_first_of(";:", at);
      // A colon behind anything but a name is part of a statement.
      bool label = end != body.npos && body[end] == ':' && rest().find_first_of(" \t\n@.{;") > end - at;
      if (!label) end = body.find(';', at);
      if (end == body.npos) wrong("a statement does not end");
      Text found = body.substr(at, end - at);
      if (label) labels[std::string(found)] = uint32_t(function.code.size());
      else statement(trimmed(found));
      while (at <= end) step();
    }
  }
}
// `.loc 1 19 5, ...`: the file and the line of what follows.
void Reader::location(Text t) {
  std::string numbers(t);
  if (sscanf(numbers.c_str(), "%u %u", &source_file, &source_line) != 2) wrong("`.loc" + numbers + "` has no line");
}

void Reader::statement(Text t) {
  if (t.empty() || starts_with(t, ".pragma")) return;
  if (starts_with(t, ".reg")) return declare_registers(t.substr(4));
  if (starts_with(t, ".shared")) return declare_memory(t.substr(7), shared, function.shared_bytes);
  if (starts_with(t, ".local")) return declare_memory(t.substr(6), local, function.local_bytes);
  now = {};
  now.line = line, now.source_file = source_file, now.source_line = source_line;
  now.first = uint32_t(function.operands.size());
  if (t[0] == '@') {
    Text guard = take_word(t).substr(1);
    now.negated = starts_with(guard, "!");
    if (now.negated) guard.remove_prefix(1);
    const Register* r = register_of(guard, now.guard);
    if (!r || r->size != 'p') wrong("`" + std::string(guard) + "` is no predicate");
  }
  opcode = take_word(t);
  given = operands_of(t);
  words.clear();
  for (size_t begin = 0; begin <= opcode.size();) {
    size_t end = std::min(opcode.find('.', begin), opcode.size());
    words.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  instruction();
  function.code.push_back(now);
}
// ` .b32 %r<10>` or ` .pred %p, %q`.
void Reader::declare_registers(Text t) {
  Text type = take_word(t);
  uint32_t bytes = bytes_of_type(type);
  char size = bytes == 0 ? 'p' : bytes == 8 ? 'x' : 'w';
  for (Text name : operands_of(t)) {
    size_t open = name.find('<');
    uint32_t count = open == name.npos ? 1 : uint32_t(atoi(std::string(name.substr(open + 1)).c_str()));
    Named& named = scopes.back()[std::string(name.substr(0, open))];
    named = {uint32_t(function.registers.size()), open == name.npos ? 0 : count};
    for (uint32_t i = 0; i < count; i++) new_register(size);
  }
}
// `.align 16 .b8 name[64]` behind the name of a space, of which `bytes` are taken.
void Reader::declare_memory(Text t, Names& names, uint32_t& bytes) {
  Declaration d = declaration_of(t);
  names[d.name] = rounded_up(bytes, d.align);
  bytes = names[d.name] + d.bytes;
}

// Resolves labels. A thread that reaches the end returns.
void Reader::finish() {
  now = {};
  now.kind = Kind::Return;
  now.line = line;
  function.code.push_back(now);
  for (auto& [from, label] : jumps) {
    auto found = labels.find(label);
    line = function.code[from].line;
    if (found == labels.end()) wrong("there is no label " + label);
    function.code[from].target = found->second;
    function.code[found->second].labelled = true;
  }
  function.special = specials;
}

// ---- operands ----
uint32_t Reader::new_register(char size) {
  function.registers.push_back({size});
  return uint32_t(function.registers.size() - 1);
}
const Register* Reader::register_of(Text name, uint32_t& id) const {
  size_t digits = name.size();
  while (digits > 0 && isdigit(static_cast<unsigned char>(name[digits - 1]))) digits--;
  std::string whole(name), stem(name.substr(0, digits));
  for (size_t i = scopes.size(); i-- > 0;) {
    auto found = scopes[i].find(whole);
    if (found != scopes[i].end() && found->second.count == 0) return &function.registers[id = found->second.first];
    found = scopes[i].find(stem);
    uint32_t number = digits < name.size() ? uint32_t(strtoul(whole.c_str() + digits, nullptr, 10)) : NOWHERE;
    if (found != scopes[i].end() && number < found->second.count) {
      return &function.registers[id = found->second.first + number];
    }
  }
  return nullptr;
}
// The value of a name: an address in its space.
bool Reader::symbol(Text name, uint64_t& value) const {
  std::string text(name);
  for (auto* space : {&shared, &local}) {
    auto found = space->find(text);
    if (found != space->end()) return value = found->second, true;
  }
  for (const std::string& dynamic : module.dynamic) {
    if (dynamic == text) return value = function.dynamic_at(), true;
  }
  auto variable = module.constants.find(text);
  if (variable != module.constants.end()) return value = uint64_t(variable->second.data()), true;
  for (auto& p : function.parameters) {
    if (p.name == text) return value = p.offset, true;
  }
  return number_of(name, value);
}
uint32_t Reader::constant(char size, uint64_t value) {
  if (size == 'w') value = uint32_t(value);
  if (size == 'p') value = value ? ALL : 0;
  auto [found, is_new] = constants.insert({{size, value}, uint32_t(function.registers.size())});
  if (is_new) function.registers.push_back({size, true, value});
  return found->second;
}
uint32_t Reader::special(Special which) {
  bool base = which == SHARED_BASE || which == LOCAL_BASE;
  if (specials[which] == NOWHERE) specials[which] = new_register(base ? 'x' : 'w');
  return specials[which];
}
void Reader::out(Text name, char size) {
  uint32_t id;
  const Register* r = register_of(name, id);
  if (!r) wrong("`" + std::string(name) + "` is no register");
  if (r->size != size) wrong("`" + std::string(name) + "` has another size than " + opcode);
  now.outs++;
  function.operands.push_back(id);
}
void Reader::in(Text name, char size) {
  static const std::unordered_map<std::string, Special> known = {
      {"%tid.x", TID_X}, {"%tid.y", TID_Y}, {"%tid.z", TID_Z}, {"%ntid.x", NTID_X}, {"%ntid.y", NTID_Y},
      {"%ntid.z", NTID_Z}, {"%ctaid.x", CTAID_X}, {"%ctaid.y", CTAID_Y}, {"%ctaid.z", CTAID_Z},
      {"%nctaid.x", NCTAID_X}, {"%nctaid.y", NCTAID_Y}, {"%nctaid.z", NCTAID_Z}, {"%laneid", LANEID},
      {"%warpid", WARPID}, {"%cluster_ctarank", CLUSTER_CTARANK}, {"%cluster_nctarank", CLUSTER_NCTARANK},
      {"%cluster_ctaid.x", CLUSTER_CTAID_X}, {"%cluster_ctaid.y", CLUSTER_CTAID_Y},
      {"%cluster_ctaid.z", CLUSTER_CTAID_Z}, {"%cluster_nctaid.x", CLUSTER_NCTAID_X},
      {"%cluster_nctaid.y", CLUSTER_NCTAID_Y}, {"%cluster_nctaid.z", CLUSTER_NCTAID_Z}};
  uint32_t id;
  uint64_t value;
  now.ins++;
  if (const Register* r = register_of(name, id)) {
    if (r->size != size) wrong("`" + std::string(name) + "` has another size than " + opcode);
  } else if (size == 'w' && known.count(std::string(name))) {
    id = special(known.at(std::string(name)));
  } else if (symbol(name, value)) {
    id = constant(size, value);
  } else {
    wrong("`" + std::string(name) + "` is not understood");
  }
  function.operands.push_back(id);
}
// Takes an operand whose size the register determines; returns whether it has 64 bits.
bool Reader::any(Text name, bool written) {
  uint32_t id;
  const Register* r = register_of(name, id);
  char size = r ? r->size : now.access.bytes == 8 ? 'x' : 'w';
  if (written) out(name, size);
  else in(name, size);
  return size == 'x';
}
// `[register + offset]`, `[name + offset]` or `[number]`.
void Reader::address(Text t, Access& access) {
  if (t.size() < 3 || t.front() != '[' || t.back() != ']') wrong("`" + std::string(t) + "` is no address");
  Text base = trimmed(t.substr(1, t.size() - 2));
  size_t plus = base.find('+');
  if (plus != base.npos) {
    uint64_t offset;
    if (!number_of(trimmed(base.substr(plus + 1)), offset)) wrong("`" + std::string(t) + "` is no address");
    access.offset = int64_t(offset);
    base = trimmed(base.substr(0, plus));
  }
  uint32_t id;
  const Register* r = register_of(base, id);
  access.wide_address = !r || r->size == 'x';
  access.place = function.places++;
  in(base, access.wide_address ? 'x' : 'w');
}
void Reader::need(size_t operands) const {
  if (given.size() != operands) wrong(opcode + " takes " + std::to_string(operands) + " operands");
}
bool Reader::has(const char* word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

void read(Function& f) {
  std::call_once(f.read, [&] {
    try {
      Reader(f).read();
      if (is_watched()) f.ran.reset(new std::atomic<bool>[f.code.size()]());
    } catch (const Fault& fault) {
      f.unreadable = fault.text;
    }
  });
}
}  // namespace emu::ptx
