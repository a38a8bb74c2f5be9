// Reads what a module declares: its kernels with their parameters, its variables, and the files of its lines. The
// bodies of kernels are left for `reader.cpp`.
#include "ptx.hpp"
#include "words.hpp"

namespace emu::ptx {
// ---- images ----
// A fatbin: a header, then one entry for every architecture.
struct FatbinHeader { uint32_t magic; uint16_t version, bytes; uint64_t content; };
struct EntryHeader { uint16_t kind, version; uint32_t bytes; uint64_t content; };
constexpr uint32_t FATBIN = 0xBA55ED50u;
constexpr uint16_t PTX_ENTRY = 1;

// The number in `.target sm_90a`, or 0.
static unsigned long target_of(Text text) {
  size_t at = text.find(".target sm_");
  return at == text.npos ? 0 : strtoul(std::string(text.substr(at + 11, 8)).c_str(), nullptr, 10);
}
static std::string text_of_fatbin(const char* image) {
  FatbinHeader header;
  memcpy(&header, image, sizeof header);
  Text best;
  const char *at = image + header.bytes, *end = at + header.content;
  while (size_t(end - at) >= sizeof(EntryHeader)) {
    EntryHeader entry;
    memcpy(&entry, at, sizeof entry);
    if (entry.bytes < sizeof entry || entry.bytes > size_t(end - at)) break;
    if (entry.content > size_t(end - at) - entry.bytes) break;
    Text content(at + entry.bytes, entry.content);
    // A compressed entry is no text.
    if (entry.kind == PTX_ENTRY && starts_with(trimmed(content), ".version") && target_of(content) >= target_of(best)) {
      best = content;
    }
    at += entry.bytes + entry.content;
  }
  return std::string(best.substr(0, best.find('\0')));
}
std::string text_of(const void* image) {
  const char* text = static_cast<const char*>(image);
  uint32_t magic;
  memcpy(&magic, text, sizeof magic);
  if (magic == FATBIN) return text_of_fatbin(text);
  Text start = trimmed(Text(text, strnlen(text, 256)));
  return starts_with(start, "//") || starts_with(start, ".version") ? text : "";
}

// ---- pieces of text ----
std::vector<Text> operands_of(Text text) {
  std::vector<Text> found;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '{' || text[i] == '[') depth++;
    if (text[i] == '}' || text[i] == ']') depth--;
    if (text[i] != ',' || depth) continue;
    found.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (!trimmed(text.substr(begin)).empty()) found.push_back(trimmed(text.substr(begin)));
  return found;
}
bool number_of(Text text, uint64_t& value) {
  std::string t(text);
  bool negative = !t.empty() && t[0] == '-';
  if (negative) t.erase(0, 1);
  if (t.empty() || !isdigit(static_cast<unsigned char>(t[0]))) return false;
  int base = 0;
  bool real = t[0] == '0' && t.size() > 1 && strchr("fFdD", t[1]);
  if (real) t.erase(0, 2), base = 16;
  if (!real && t.back() == 'U') t.pop_back();
  char* end;
  value = strtoull(t.c_str(), &end, base);
  if (negative) value = 0 - value;
  return *end == 0;
}
uint32_t bytes_of_type(Text type) {
  if (type == ".pred") return 0;
  for (auto& [bits, bytes] : {std::pair{"64", 8u}, {"32", 4u}, {"16", 2u}}) {
    if (type.find(bits) != type.npos) return bytes;
  }
  return 1;
}
Declaration declaration_of(Text text) {
  Declaration d;
  size_t equals = text.find('=');
  if (equals != text.npos) {
    Text list = trimmed(text.substr(equals + 1));
    if (starts_with(list, "{")) list = list.substr(1, list.rfind('}') - 1);
    for (Text value : operands_of(list)) d.values.push_back(0), number_of(value, d.values.back());
    text = text.substr(0, equals);
  }
  std::string name;
  for (Text word = take_word(text); !word.empty(); word = take_word(text)) {
    if (word == ".align") d.align = uint32_t(strtoul(std::string(take_word(text)).c_str(), nullptr, 10));
    else if (word[0] == '.') d.element = bytes_of_type(word);
    else name += word;
  }
  size_t bracket = name.find('[');
  uint64_t elements = 1;
  if (bracket != name.npos) {
    elements = strtoull(name.c_str() + bracket + 1, nullptr, 10);  // `name[]` has none
    name.resize(bracket);
  }
  d.name = name;
  d.bytes = uint32_t(d.element * elements);
  if (!d.align) d.align = std::max(d.element, 1u);
  return d;
}

// ---- modules ----
namespace {
class ModuleReader {
 public:
  explicit ModuleReader(Module& m) : module(m), text(m.text) {}
  void read() {
    for (skip(); at < text.size(); skip()) directive();
  }

 private:
  Module& module;
  Text text;
  size_t at = 0;
  uint32_t line = 1;

  [[noreturn]] void wrong(const std::string& what) const {
    throw Fault{"PTX line " + std::to_string(line) + ": " + what};
  }
  void step() { line += text[at++] == '\n'; }
  // Skips space and comments.
  void skip() {
    while (at < text.size()) {
      if (is_space(text[at])) step();
      else if (starts_with(text.substr(at), "//")) until('\n');
      else if (starts_with(text.substr(at), "/*")) while (at < text.size() && text.substr(at, 2) != "*/") step();
      else if (starts_with(text.substr(at), "*/")) at += 2;
      else return;
    }
  }
  // Takes the text up to a character, and the character.
  Text until(char c) {
    size_t begin = at;
    while (at < text.size() && text[at] != c) step();
    if (at == text.size()) return text.substr(begin);
    step();
    return text.substr(begin, at - 1 - begin);
  }
  Text word() {
    skip();
    size_t begin = at;
    while (at < text.size() && !is_space(text[at]) && !strchr("(){};,", text[at])) at++;
    return text.substr(begin, at - begin);
  }
  // Takes what is between braces; returns where it begins and ends.
  std::pair<size_t, size_t> braces() {
    until('{');
    size_t begin = at;
    for (int depth = 1; at < text.size(); step()) {
      if (text[at] == '{') depth++;
      if (text[at] == '}' && --depth == 0) return {begin, at++};
    }
    wrong("a brace is not closed");
  }
  void directive() {
    Text name = word();
    if (name == ".version" || name == ".target" || name == ".address_size") until('\n');
    else if (name == ".visible" || name == ".weak" || name == ".extern" || name == ".common") return;
    else if (name == ".file") file(until('\n'));
    else if (name == ".section" || name == ".func") braces();
    else if (name == ".shared") shared(until(';'));
    else if (name == ".global" || name == ".const") variable(declaration_of(until(';')));
    else if (name == ".entry") entry();
    else wrong("`" + std::string(name.empty() ? text.substr(at, 20) : name) + "` is not understood");
  }
  // `1 "/path/linear.cu"`: the name without the folder.
  void file(Text rest) {
    size_t open = rest.find('"'), close = rest.rfind('"');
    if (open == rest.npos || close <= open) wrong("a file has no name");
    Text path = rest.substr(open + 1, close - open - 1);
    size_t slash = path.rfind('/');
    module.files[uint32_t(atoi(std::string(rest).c_str()))] = path.substr(slash == path.npos ? 0 : slash + 1);
  }
  void shared(Text declaration) {
    Declaration d = declaration_of(declaration);
    if (d.bytes) module.shared[d.name] = declaration;
    else module.dynamic.push_back(d.name);
  }
  void variable(const Declaration& d) {
    std::vector<char>& bytes = module.constants[d.name];
    bytes.resize(d.bytes);
    for (size_t i = 0; i < d.values.size() && (i + 1) * d.element <= d.bytes; i++) {
      memcpy(&bytes[i * d.element], &d.values[i], d.element);
    }
  }
  void entry() {
    auto function = std::make_unique<Function>();
    Function& f = *function;
    f.module = &module;
    f.name = word();
    skip();
    if (at < text.size() && text[at] == '(') {
      step();
      for (Text parameter : operands_of(until(')'))) {
        if (!starts_with(parameter, ".param")) wrong("a parameter is no .param");
        Declaration d = declaration_of(parameter.substr(6));
        f.parameter_bytes = rounded_up(f.parameter_bytes, d.align);
        f.parameters.push_back({d.name, d.bytes, f.parameter_bytes});
        f.parameter_bytes += d.bytes;
      }
    }
    for (Text name = word(); !name.empty(); name = word()) {
      if (name != ".maxntid") continue;
      f.most_threads = 1;
      for (Text size : operands_of(until('\n'))) f.most_threads *= unsigned(atoi(std::string(size).c_str()));
    }
    f.body_line = line;
    std::tie(f.body, f.end) = braces();
    if (!module.functions.emplace(f.name, std::move(function)).second) wrong("there are two kernels " + f.name);
  }
};
}  // namespace

std::string Module::line(uint32_t number) const {
  size_t at = 0;
  for (uint32_t n = 1; n < number && at != text.npos; n++) at = text.find('\n', at) + 1;
  Text found = Text(text).substr(std::min(at, text.size()));
  return std::string(trimmed(found.substr(0, found.find('\n'))));
}

Module* module_of(const std::string& text, std::string& wrong) {
  // Never destroyed: threads may still use them when the program ends.
  static std::mutex& lock = *new std::mutex;
  static auto& known = *new std::map<Text, std::unique_ptr<Module>>;  // by their texts
  std::lock_guard<std::mutex> held(lock);
  auto found = known.find(text);
  if (found != known.end()) return found->second.get();
  auto made = std::make_unique<Module>();
  made->text = text;
  try {
    ModuleReader(*made).read();
  } catch (const Fault& fault) {
    return wrong = fault.text, nullptr;
  }
  for (auto& [name, function] : made->functions) watch(*function);
  Text key = made->text;
  return (known[key] = std::move(made)).get();
}
Function* function_of(Module& module, const std::string& name) {
  auto at = module.functions.find(name);
  return at == module.functions.end() ? nullptr : at->second.get();
}
std::vector<unsigned short> parameter_sizes(const Function& f) {
  std::vector<unsigned short> sizes;
  for (auto& p : f.parameters) sizes.push_back((unsigned short)(p.bytes));
  return sizes;
}
}  // namespace emu::ptx
