// A replacement for NCCL over emulated devices: the functions that the program uses, with NCCL's rules. Ranks may be
// threads or processes of one computer.
//
// A communicator is identified by the name of files. In its n-th collective, every rank posts what it sends as a file
// (written under another name and renamed, so that it appears at once), waits until all ranks have done so, and reads
// the others'. A rank has read the files of a collective when it posts that of the next one, so each rank deletes its
// own file of collective n - 1 after collective n. All of it is work of the stream; only the initialisation blocks.
#include "device.hpp"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

using namespace emu;
extern "C" Result cuCtxGetDevice(int*);

namespace {
enum NcclResult { OK = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
struct UniqueId { char name[128]; };

thread_local std::string last_error;
NcclResult failed(NcclResult code, const std::string& text) { return last_error = text, code; }

std::string folder() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }
void post(const std::string& path, const void* data, size_t bytes) {
  std::string hidden = path + ".part";
  FILE* file = fopen(hidden.c_str(), "wb");
  if (!file) return;
  fwrite(data, 1, bytes, file);
  fclose(file);
  rename(hidden.c_str(), path.c_str());
}
bool is_posted(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
// Reads a file of exactly this size.
bool take(const std::string& path, void* data, size_t bytes) {
  FILE* file = fopen(path.c_str(), "rb");
  if (!file) return false;
  bool whole = fread(data, 1, bytes, file) == bytes && fgetc(file) == EOF;
  fclose(file);
  return whole;
}
}  // namespace

struct ncclComm {
  std::string name;
  int ranks, rank, device;
  uint64_t done = 0;  // collectives
  std::map<int, uint64_t> sent, received;  // messages, by the other rank
  std::atomic<bool> aborted{false};
  std::string file(uint64_t nth, int r) const { return name + "-" + std::to_string(nth) + "-" + std::to_string(r); }
  std::string message(int from, int to, uint64_t nth) const {
    return name + "-" + std::to_string(from) + "to" + std::to_string(to) + "-" + std::to_string(nth);
  }
  bool all_posted(uint64_t nth) const {
    for (int r = 0; r < ranks; r++) {
      if (!is_posted(file(nth, r))) return false;
    }
    return true;
  }
  // Says that this rank is done. Others may still read its last files: whoever comes last removes all.
  void end() const {
    auto end_of = [this](int r) { return name + "-end-" + std::to_string(r); };
    post(end_of(rank), "", 0);
    bool last = true;
    for (int r = 0; r < ranks; r++) last = last && is_posted(end_of(r));
    for (int r = 0; last && r < ranks; r++) {
      unlink(end_of(r).c_str());
      for (uint64_t nth = done ? done - 1 : 0; nth <= done + 1; nth++) unlink(file(nth, r).c_str());
    }
  }
  void finish() {
    if (done) unlink(file(done - 1, rank).c_str());
    done++;
  }
};

namespace {
// A message of a group.
struct Message { ncclComm* comm; int peer; void* data; size_t bytes; bool sends; Stream* stream; };
thread_local std::vector<Message> group;
thread_local int depth = 0;
}  // namespace

extern "C" {
NcclResult ncclGetVersion(int* version) { return *version = 22700, OK; }
const char* ncclGetErrorString(NcclResult code) {
  switch (code) {
    case OK: return "no error";
    case CUDA_ERROR: return "unhandled cuda error";
    case SYSTEM_ERROR: return "unhandled system error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    default: return "remote process exited or there was a network error";
  }
}
const char* ncclGetLastError(ncclComm*) { return last_error.c_str(); }

NcclResult ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  snprintf(id->name, sizeof id->name, "%s/tgnn-nccl-%d-%d", folder().c_str(), int(getpid()), made++);
  return OK;
}

NcclResult ncclCommDestroy(ncclComm*);
// Blocks until all ranks have called it. Every rank must have a device of its own.
NcclResult ncclCommInitRank(ncclComm** comm, int ranks, UniqueId id, int rank) {
  int device = 0;
  cuCtxGetDevice(&device);
  if (rank < 0 || rank >= ranks) return failed(INVALID_ARGUMENT, "rank is not below the number of ranks");
  auto* c = new ncclComm{id.name, ranks, rank, device};
  post(c->file(0, rank), &device, sizeof device);
  auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!c->all_posted(0)) {
    if (std::chrono::steady_clock::now() > limit) {
      delete c;
      return failed(SYSTEM_ERROR, "not all ranks have come");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  int found = 0;
  std::set<int> devices;
  for (int r = 0; r < ranks; r++) {
    take(c->file(0, r), &found, sizeof found);
    devices.insert(found);
  }
  c->finish();
  if (int(devices.size()) < ranks) {
    ncclCommDestroy(c);
    return failed(INVALID_USAGE, "Duplicate GPU detected: two ranks have the same device");
  }
  return *comm = c, OK;
}
NcclResult ncclCommAbort(ncclComm* c) {
  c->aborted = true;
  return c->end(), OK;  // pending work may still refer to it
}
NcclResult ncclCommDestroy(ncclComm* c) { return c->end(), delete c, OK; }
NcclResult ncclCommGetAsyncError(ncclComm*, NcclResult* state) { return *state = OK, OK; }

// Messages are submitted when the group ends. A rank reads and removes the files that it receives.
NcclResult ncclGroupStart() { return depth++, OK; }
NcclResult ncclGroupEnd() {
  if (depth == 0) return failed(INVALID_USAGE, "there is no group to end");
  if (--depth > 0 || group.empty()) return OK;
  std::vector<Message> messages = std::move(group);
  group.clear();
  Stream& stream = *messages[0].stream;
  ncclComm* c = messages[0].comm;
  Device& d = stream.device;
  Lock lock(d);
  for (const Message& m : messages) {
    if (m.comm != c || m.stream != &stream) return failed(INVALID_USAGE, "a group of several streams is not supported");
    if (!d.lies(Address(m.data), m.bytes)) return failed(INVALID_ARGUMENT, "a buffer is not in the memory of the device");
  }
  auto nth_of = [](const std::vector<Message>& all, size_t at, std::map<int, uint64_t>& counted) {
    uint64_t nth = counted[all[at].peer];
    for (size_t i = 0; i < at; i++) nth += all[i].peer == all[at].peer && all[i].sends == all[at].sends;
    return nth;
  };
  Result given = d.give(stream, [=] {
    for (const Message& m : messages) {
      if (m.sends && !c->aborted) post(c->message(c->rank, m.peer, c->sent[m.peer]++), m.data, m.bytes);
    }
  });
  given = given ? given : d.give(stream, [=, &d] {
    for (const Message& m : messages) {
      if (m.sends || c->aborted) continue;
      std::string file = c->message(m.peer, c->rank, c->received[m.peer]++);
      if (!take(file, m.data, m.bytes)) d.failed(LAUNCH_FAILED, "ncclRecv: ranks differ in the number of bytes");
      unlink(file.c_str());
    }
  }, [=] {
    for (size_t i = 0; i < messages.size(); i++) {
      const Message& m = messages[i];
      if (!m.sends && !c->aborted && !is_posted(c->message(m.peer, c->rank, nth_of(messages, i, c->received)))) return false;
    }
    return true;
  });
  return given ? failed(CUDA_ERROR, "the stream refuses work") : OK;
}
NcclResult ncclSend(const void* data, size_t count, int type, int peer, ncclComm* c, void* stream) {
  if (type != 1 || peer < 0 || peer >= c->ranks) return failed(INVALID_ARGUMENT, "only bytes, and to a rank");
  ncclGroupStart();
  group.push_back({c, peer, const_cast<void*>(data), count, true, static_cast<Stream*>(stream)});
  return ncclGroupEnd();
}
NcclResult ncclRecv(void* data, size_t count, int type, int peer, ncclComm* c, void* stream) {
  if (type != 1 || peer < 0 || peer >= c->ranks) return failed(INVALID_ARGUMENT, "only bytes, and from a rank");
  ncclGroupStart();
  group.push_back({c, peer, data, count, false, static_cast<Stream*>(stream)});
  return ncclGroupEnd();
}
NcclResult ncclAllGather(const void* send, void* recv, size_t count, int type, ncclComm* c, void* handle) {
  auto& stream = *static_cast<Stream*>(handle);
  Device& d = stream.device;
  Lock lock(d);
  if (type != 1) return failed(INVALID_ARGUMENT, "only bytes are supported");
  size_t all = count * size_t(c->ranks);
  if (!d.lies(Address(send), count) || !d.lies(Address(recv), all)) {
    return failed(INVALID_ARGUMENT, "a buffer is not in the memory of the stream's device");
  }
  int device = 0;
  cuCtxGetDevice(&device);
  if (device != c->device) return failed(INVALID_USAGE, "the communicator is of another device");
  Result given = d.give(stream, [=] {
    if (!c->aborted) post(c->file(c->done, c->rank), send, count);
  });
  given = given ? given : d.give(stream, [=, &d] {
    for (int r = 0; r < c->ranks && !c->aborted; r++) {
      if (!take(c->file(c->done, r), static_cast<char*>(recv) + size_t(r) * count, count)) {
        d.failed(LAUNCH_FAILED, "ncclAllGather: ranks differ in the number of bytes");
      }
    }
    c->finish();
  }, [=] { return c->aborted || c->all_posted(c->done); });
  return given ? failed(CUDA_ERROR, "the stream refuses work") : OK;
}
}
