#include "device.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <thread>

namespace emu {
size_t memory_size() {
  const char* text = getenv("TGNN_EMU_MEMORY");
  return text ? strtoull(text, nullptr, 10) : size_t(4) << 30;
}

Mark Device::add(const Stream& stream, std::function<void()> f, std::vector<Mark> after, Ready when) {
  auto w = std::make_shared<Work>();
  if (!connections.empty()) {
    Mark& last = connections[stream.number % connections.size()];
    after.push_back(last);
    last = w;
  }
  w->run = std::move(f);
  w->when = std::move(when);
  for (const Mark& m : after) {
    if (m && !m->done) m->next.push_back(w), w->unmet++;
  }
  if (!w->unmet) ready.push_back(w);
  return w;
}

// Appends work to a stream, or to the graph that the stream is being captured into.
Result Device::give(Stream& stream, std::function<void()> f, Ready when) {
  stream.after_kernel = false;
  if (stream.capture) {
    if (stream.capture->invalid) return CAPTURE_INVALIDATED;
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(f), stream.last_nodes, std::move(when), nullptr});
    stream.last_nodes = {nodes.size() - 1};
    return SUCCESS;
  }
  stream.last = {add(stream, std::move(f), stream.last, std::move(when))};
  return SUCCESS;
}

// Runs one piece of ready work; returns false if there is none, or all of it waits for values in memory.
bool Device::advance() {
  std::vector<size_t> able;
  for (size_t i = 0; i < ready.size(); i++) {
    if (!ready[i]->when || fault != SUCCESS || ready[i]->when()) able.push_back(i);
  }
  if (able.empty()) return false;
  auto last = std::stable_partition(able.begin(), able.end(), [&](size_t i) { return !ready[i]->last; });
  if (last != able.begin()) able.erase(last, able.end());
  size_t at = 0;
  if (schedule_seed) {
    random_state = random_state * 6364136223846793005ull + schedule_seed * 2 + 1;
    // Some seeds take the newest work first, most take any: a device may choose either order.
    at = schedule_seed % 4 == 1 ? able.size() - 1 : size_t(random_state >> 33) % able.size();
  }
  Mark w = ready[able[at]];
  ready.erase(ready.begin() + ptrdiff_t(able[at]));
  if (fault == SUCCESS) w->run();
  w->run = nullptr;
  w->done = true;
  for (Mark& n : w->next) {
    if (--n->unmet == 0) ready.push_back(n);
  }
  w->next.clear();
  return true;
}
// Runs ready work for a short time: a query does not wait.
void Device::advance_a_little() {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (advance() && std::chrono::steady_clock::now() < end) {}
}
// Called when no work can run: lets other threads use this device, which may write the values that work waits for.
// Returns false if there is no such work.
bool Device::wait() {
  if (ready.empty()) return false;
  guard.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  guard.lock();
  return true;
}
Result Device::until(std::vector<Mark> marks) {
  for (const Mark& m : marks) {
    while (m && !m->done) {
      if (!advance() && !wait()) return LAUNCH_FAILED;
    }
  }
  return fault;
}
Result Device::until_all() {
  while (advance() || wait()) {}
  return fault;
}
// Called for operations in which a driver may wait for all work of the device. Ours does so if streams share
// connections: then it is as strict as it may be.
void Device::may_wait() {
  if (!connections.empty()) until_all();
}
// Called for operations that are illegal during a capture: invalidates the captures that forbid it to this thread.
// Returns whether there were any.
bool Device::forbidden() {
  bool any = false;
  for (auto& c : captures) {
    bool forbids = c->thread == std::thread::id() || c->thread == std::this_thread::get_id();
    c->invalid |= forbids, any |= forbids;
  }
  return any;
}

// ---- memory ----
namespace {
// Never destroyed: a thread may still use a device when the program ends.
std::mutex& table_lock = *new std::mutex;
std::map<uint64_t, size_t>& table = *new std::map<uint64_t, size_t>;
}  // namespace
void add_allocation(uint64_t address, size_t bytes) {
  std::lock_guard<std::mutex> held(table_lock);
  table[address] = bytes;
}
void remove_allocation(uint64_t address) {
  std::lock_guard<std::mutex> held(table_lock);
  table.erase(address);
}
bool allocation_of(uint64_t address, uint64_t& begin, uint64_t& end) {
  std::lock_guard<std::mutex> held(table_lock);
  auto at = table.upper_bound(address);
  if (at == table.begin()) return false;
  --at;
  begin = at->first, end = at->first + at->second;
  return address < end;
}

Address Device::allocate(size_t n) {
  if (used + n > memory_size()) return 0;
  size_t data = (std::max<size_t>(n, 1) + ALIGN - 1) / ALIGN * ALIGN;
  size_t mapped = (data + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  char* end = static_cast<char*>(p) + mapped - PAGE;
  mprotect(p, PAGE, PROT_NONE);
  mprotect(end, PAGE, PROT_NONE);
  memset(end - data, 0xFF, data);
  Address a = reinterpret_cast<Address>(end - data);
  allocations[a] = {p, mapped, n};
  add_allocation(a, n);
  used += n;
  return a;
}
Result Device::release(Address a) {
  auto at = allocations.find(a);
  if (at == allocations.end()) return INVALID_VALUE;
  remove_allocation(a);
  munmap(at->second.base, at->second.mapped);
  used -= at->second.size;
  allocations.erase(at);
  return SUCCESS;
}
// Whether the `n` bytes at `a` are in one allocation.
bool Device::lies(Address a, size_t n) {
  auto at = allocations.upper_bound(a);
  if (at == allocations.begin()) return n == 0;
  --at;
  return a + n <= at->first + at->second.size;
}
bool Device::is_pinned(const void* p) {
  auto at = pinned.upper_bound(reinterpret_cast<uintptr_t>(p));
  return at != pinned.begin() && reinterpret_cast<uintptr_t>(p) < (--at)->first + at->second;
}
// Called for every kernel that a program launches, by itself or in a graph.
void Device::launched(const std::string& kernel) {
  if (profiled) profile.push_back(kernel);
}
void Device::failed(Result code, const std::string& text) {
  if (fault == SUCCESS) {
    fault = code;
    fault_text = text;
    fprintf(stderr, "emulated device: %s\n", text.c_str());
  }
}
}  // namespace emu
