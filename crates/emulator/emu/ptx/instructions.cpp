// Reads one instruction. What is not read here is an entry of the table of arithmetic (`arithmetic.hpp`); everything
// else is refused with its line.
#include "arithmetic.hpp"
#include "reader.hpp"
#include <set>

namespace emu::ptx {
// Hints, and instructions that change nothing that a result shows. Kernels never overlap here; whether one waits
// before it uses memory is checked at each access (`Run::locate`).
static bool changes_nothing(const std::string& word) {
  static const std::set<std::string> known = {"nanosleep", "griddepcontrol.launch_dependents",
                                              "prefetch", "prefetchu", "fence.proxy.async.shared::cta"};
  return known.count(word) != 0;
}

void Reader::instruction() {
  const std::string& first = words[0];
  if (first == "bra") return jump();
  if (opcode == "ret" || opcode == "exit") return void(now.kind = Kind::Return);
  if (first == "trap") return void(now.kind = Kind::Trap);
  if (changes_nothing(opcode)) return void(now.kind = Kind::Nothing);
  if (first == "membar" || first == "fence") return fence();
  if (opcode.rfind("barrier.cluster.", 0) == 0) return cluster_barrier();
  if (opcode != "bar.warp.sync" && (first == "bar" || first == "barrier")) return barrier();
  if (first == "shfl") return shuffle();
  if (first == "vote" || opcode == "bar.warp.sync") return vote();
  if (first == "match") return match();
  if (first == "redux") return reduce();
  if (first == "mma") return product();
  if (first == "wgmma") return matrix_group();
  if (first == "ldmatrix") return load_matrices();
  if (first == "ld" || first == "st") return load_or_store(first == "ld");
  if (first == "atom" || first == "red") return update();
  if (first == "mov" && given.size() == 2 && (given[0][0] == '{' || given[1][0] == '{')) return pack();
  if (first == "cvta") return convert_address();
  if (first == "mapa") return map();
  if (opcode == "griddepcontrol.wait") return void(now.kind = Kind::WaitForPrevious);
  if (changes_nothing(first) || changes_nothing(opcode)) return void(now.kind = Kind::Nothing);
  compute();
}

// ---- the flow of control ----
void Reader::jump() {
  need(1);
  now.kind = Kind::Jump;
  jumps.push_back({function.code.size(), std::string(given[0])});
}
void Reader::barrier() {
  static const std::map<std::string, Told> known = {
      {"bar.sync", Told::None}, {"barrier.sync", Told::None}, {"barrier.sync.aligned", Told::None},
      {"bar.red.or.pred", Told::Any}, {"bar.red.and.pred", Told::All}, {"bar.red.popc.u32", Told::Count}};
  auto found = known.find(opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  now.kind = Kind::Barrier;
  now.told = found->second;
  bool votes = now.told != Told::None;
  if (!votes && given.size() == 2) {  // for some of the block's threads
    uint64_t threads;
    if (!number_of(given[1], threads) || threads == 0 || threads % LANES) wrong("a barrier is for whole warps");
    now.kind = Kind::GroupBarrier;
    now.threads = uint32_t(threads);
    return in(given[0], 'w');
  }
  need(votes ? 3 : 1);
  if (given[votes] != "0") wrong("only barrier 0 is for all threads");
  if (!votes) return;
  out(given[0], now.told == Told::Count ? 'w' : 'p');
  in(given[2], 'p');
}

void Reader::cluster_barrier() {
  static const std::map<std::string, std::pair<Kind, bool>> known = {  // whether it releases
      {"barrier.cluster.arrive", {Kind::ClusterArrive, true}},
      {"barrier.cluster.arrive.release", {Kind::ClusterArrive, true}},
      {"barrier.cluster.arrive.relaxed", {Kind::ClusterArrive, false}},
      {"barrier.cluster.wait", {Kind::ClusterWait, false}},
      {"barrier.cluster.wait.acquire", {Kind::ClusterWait, false}}};
  now.aligned = words.back() == "aligned";
  auto found = known.find(now.aligned ? opcode.substr(0, opcode.rfind('.')) : opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  need(0);
  std::tie(now.kind, now.releases) = found->second;
}

// ---- what the lanes of a warp do together; the last operand that is read is the mask of the lanes ----
void Reader::shuffle() {
  static const std::map<std::string, Group> known = {
      {"shfl.sync.idx.b32", Group::FromIndex}, {"shfl.sync.up.b32", Group::FromBelow},
      {"shfl.sync.down.b32", Group::FromAbove}, {"shfl.sync.bfly.b32", Group::FromXor}};
  auto found = known.find(opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  need(5);
  now.kind = Kind::Collective;
  now.group = found->second;
  size_t bar = given[0].find('|');  // `value|predicate`
  out(trimmed(given[0].substr(0, bar)), 'w');
  if (bar != given[0].npos) out(trimmed(given[0].substr(bar + 1)), 'p');
  for (int i = 1; i < 5; i++) in(given[i], 'w');
}
void Reader::vote() {
  static const std::map<std::string, Group> known = {
      {"bar.warp.sync", Group::Sync}, {"vote.sync.ballot.b32", Group::Ballot}, {"vote.sync.any.pred", Group::Any},
      {"vote.sync.all.pred", Group::All}};
  auto found = known.find(opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  now.kind = Kind::Collective;
  now.group = found->second;
  bool votes = now.group != Group::Sync;
  need(votes ? 3 : 1);
  if (votes) out(given[0], now.group == Group::Ballot ? 'w' : 'p'), in(given[1], 'p');
  in(given.back(), 'w');
}
void Reader::match() {
  if (opcode != "match.any.sync.b32") wrong("no such instruction: " + opcode);
  need(3);
  now.kind = Kind::Collective;
  now.group = Group::Match;
  out(given[0], 'w'), in(given[1], 'w'), in(given[2], 'w');
}
void Reader::reduce() {
  static const std::map<std::string, Group> known = {
      {"redux.sync.add.u32", Group::Add}, {"redux.sync.add.s32", Group::Add}, {"redux.sync.min.u32", Group::Min},
      {"redux.sync.max.u32", Group::Max}, {"redux.sync.min.s32", Group::MinSigned},
      {"redux.sync.max.s32", Group::MaxSigned}, {"redux.sync.and.b32", Group::And}, {"redux.sync.or.b32", Group::Or},
      {"redux.sync.xor.b32", Group::Xor}};
  auto found = known.find(opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  need(3);
  now.kind = Kind::Collective;
  now.group = found->second;
  out(given[0], 'w'), in(given[1], 'w'), in(given[2], 'w');
}
// d = a b + c; a has four registers, b two, c and d four.
void Reader::product() {
  if (opcode != "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") wrong("no such instruction: " + opcode);
  need(4);
  now.kind = Kind::Collective;
  now.group = Group::Product;
  const size_t wanted[4] = {4, 4, 2, 4};
  for (int i = 0; i < 4; i++) {
    auto fragment = elements(given[i]);
    if (fragment.size() != wanted[i]) wrong("operand " + std::to_string(i) + " has not as many registers as it needs");
    for (Text r : fragment) i == 0 ? out(r, 'w') : in(r, 'w');
  }
  in("-1", 'w');
}

// Products of a group of four warps, which run while they go on. d has 32 registers, which are also read, a has four;
// behind the columns of b in shared memory comes whether to add to d.
void Reader::matrix_group() {
  now.kind = Kind::MatrixGroup;
  if (opcode == "wgmma.fence.sync.aligned") return need(0), void(now.matrix = Matrix::Fence);
  if (opcode == "wgmma.commit_group.sync.aligned") return need(0), void(now.matrix = Matrix::End);
  if (opcode == "wgmma.wait_group.sync.aligned") {
    need(1);
    if (given[0] != "0") wrong("waits for all groups alone");
    return void(now.matrix = Matrix::Wait);
  }
  if (opcode != "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32") wrong("no such instruction: " + opcode);
  need(6);
  if (given[4] != "1" || given[5] != "1") wrong("the operands have other factors than 1");
  now.matrix = Matrix::Start;
  auto d = elements(given[0]), a = elements(given[1]);
  if (d.size() != 32 || a.size() != 4) wrong("the operands have not as many registers as they need");
  for (Text r : d) out(r, 'w');
  for (Text r : d) in(r, 'w');
  for (Text r : a) in(r, 'w');
  in(given[2], 'x'), in(given[3], 'p');
}

// ---- memory ----
// Four matrices of 8 rows of 16 bytes, of which each lane gives one address.
void Reader::load_matrices() {
  if (opcode != "ldmatrix.sync.aligned.m8n8.x4.shared.b16") wrong("no such instruction: " + opcode);
  need(2);
  now.kind = Kind::Collective;
  now.group = Group::LoadMatrices;
  now.access.space = Space::Shared, now.access.count = 4;
  auto list = elements(given[0]);
  if (list.size() != 4) wrong("the vector has " + std::to_string(list.size()) + " registers");
  for (Text r : list) out(r, 'w');
  address(given[1], now.access);
  in("-1", 'w');
}
Space Reader::space() const {
  if (has("global")) return Space::Global;
  if (has("shared") || has("shared::cta")) return Space::Shared;
  if (has("shared::cluster")) return Space::Cluster;
  if (has("local")) return Space::Local;
  return has("param") ? Space::Parameter : Space::Generic;
}
void Reader::load_or_store(bool load) {
  static const std::set<std::string> known = {"global", "shared", "shared::cta", "shared::cluster", "local", "param", "nc", "ca", "cg", "cs", "cv", "wb",
                                              "wt", "v2", "v4", "weak", "volatile", "relaxed", "acquire", "release",
                                              "cta", "gpu", "sys"};
  for (size_t i = 1; i + 1 < words.size(); i++) {
    if (!known.count(words[i])) wrong("no such instruction: " + opcode);
  }
  need(2);
  now.kind = load ? Kind::Load : Kind::Store;
  Access& access = now.access;
  access.space = space();
  access.bytes = uint8_t(bytes_of_type("." + words.back()));
  access.count = has("v4") ? 4 : has("v2") ? 2 : 1;
  access.is_signed = words.back()[0] == 's';
  access.constant = has("nc");
  access.past_l1 = has("cg") || has("cv") || has("volatile") || has("relaxed") || has("acquire");
  access.acquires = has("acquire"), access.releases = has("release");
  function.has_constant_loads |= access.constant;
  auto list = elements(given[load ? 0 : 1]);
  if (list.size() != access.count) wrong("the vector has " + std::to_string(list.size()) + " registers");
  if (!load) address(given[0], access);
  for (size_t i = 0; i < list.size(); i++) {
    bool wide = any(list[i], load);
    if (i > 0 && wide != access.wide) wrong("the registers have two sizes");
    access.wide = wide;
  }
  if (load) address(given[1], access);
  if (access.bytes == 8 && !access.wide) wrong("the register is smaller than the value");
}
void Reader::update() {
  static const std::map<std::string, Update> known = {
      {"exch", Update::Exchange}, {"cas", Update::CompareExchange}, {"add", Update::Add}, {"inc", Update::Increment},
      {"dec", Update::Decrement}, {"min", Update::Min}, {"max", Update::Max}, {"and", Update::And}, {"or", Update::Or},
      {"xor", Update::Xor}};
  auto found = words.size() < 3 ? known.end() : known.find(words[words.size() - 2]);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  const std::string& type = words.back();
  now.kind = Kind::Atomic;
  now.update = found->second;
  if (type == "s32" && now.update == Update::Min) now.update = Update::MinSigned;
  if (type == "s32" && now.update == Update::Max) now.update = Update::MaxSigned;
  if (type == "f32" && now.update == Update::Add) now.update = Update::AddFloat;
  bool is_word = type == "b32" || type == "u32" || type == "s32" || type == "b64" || type == "u64";
  if (!is_word && now.update != Update::AddFloat) wrong("no such instruction: " + opcode);
  now.access.space = space();
  now.access.bytes = uint8_t(bytes_of_type("." + type));
  char size = now.access.bytes == 8 ? 'x' : 'w';
  bool keeps = words[0] == "atom";  // the value before
  need((keeps ? 3u : 2u) + (now.update == Update::CompareExchange));
  if (keeps) out(given[0], size);
  address(given[keeps], now.access);
  for (size_t i = keeps + 1; i < given.size(); i++) in(given[i], size);
}

// Shared memory is never late, so a fence of nothing else has nothing to do.
void Reader::fence() {
  bool of_shared = has("sync_restrict::shared::cta") || has("sync_restrict::shared::cluster");
  now.kind = of_shared ? Kind::Nothing : Kind::Fence;
}
// The address of the same place in the shared memory of another block: `mapa.shared::cluster` of an address in shared
// memory, or `mapa` of a generic one.
void Reader::map() {
  static const std::map<std::string, Space> known = {{"mapa.u64", Space::Generic},
                                                     {"mapa.shared::cluster.u32", Space::Cluster},
                                                     {"mapa.shared::cluster.u64", Space::Cluster}};
  auto found = known.find(opcode);
  if (found == known.end()) wrong("no such instruction: " + opcode);
  need(3);
  now.kind = Kind::MapShared;
  now.access.space = found->second;
  now.access.wide_address = words.back() == "u64";
  char size = now.access.wide_address ? 'x' : 'w';
  out(given[0], size), in(given[1], size), in(given[2], 'w');
}

// ---- registers ----
// `{a, b}`, or a single operand.
std::vector<Text> Reader::elements(Text t) const {
  if (t[0] != '{') return {t};
  return operands_of(t.substr(1, t.rfind('}') - 1));
}
// `mov.b64 x, {a, b}` and `mov.b64 {a, b}, x`.
void Reader::pack() {
  bool apart = given[0][0] == '{';
  auto halves = elements(given[apart ? 0 : 1]);
  if (halves.size() != 2 || (opcode != "mov.b32" && opcode != "mov.b64")) wrong("no such instruction: " + opcode);
  char whole = opcode == "mov.b64" ? 'x' : 'w';
  if (apart) out(halves[0], 'w'), out(halves[1], 'w'), in(given[1], whole);
  else out(given[0], whole), in(halves[0], 'w'), in(halves[1], 'w');
  now.compute = computation(opcode + (apart ? ".apart" : ".together"))->compute;
}
// Addresses of global memory are generic ones. Shared and local memory begin somewhere among them.
void Reader::convert_address() {
  need(2);
  bool to = has("to");
  out(given[0], 'x'), in(given[1], 'x');
  if (has("global")) return void(now.compute = computation("mov.u64")->compute);
  if (!has("shared") && !has("local")) wrong("no such instruction: " + opcode);
  function.operands.push_back(special(has("shared") ? SHARED_BASE : LOCAL_BASE));
  now.ins++;
  now.compute = computation(to ? "sub.u64" : "add.u64")->compute;
}
void Reader::compute() {
  const Computation* found = computation(opcode);
  if (!found) wrong("no such instruction: " + opcode);
  size_t count = strlen(found->operands);
  need(count);
  out(given[0], found->operands[0]);
  for (size_t i = 1; i < count; i++) in(given[i], found->operands[i]);
  now.compute = found->compute;
}
}  // namespace emu::ptx
