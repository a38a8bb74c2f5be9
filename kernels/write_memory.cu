// write_memory: writes the new memory and the new mails of the positive roots, in place
//
// shapes    memory, mail [v, d] f32 or 16-bit, their times and events [v]; node, phi [n] u32, psi [stride b] u32,
//           s [n, d] f32; content [2 b, d] f32 or null; row [b] u32: rows of src by event
// grid      one warp per unique positive root, lanes over the row's numbers (four per lane if rows are aligned)
// memory    reads 2 d words and writes 2 d numbers per row; the mean also scans psi for each row, from L1, and reads
//           one row per event
// limiter   memory; latency for the mean
// backward  -
// source    TGN (Rossi et al. 2020), section 3; reads come before writes, as in PyTorch Geometric
#include "stored.cuh"

// The roots of a batch, `stride` per event, and the number of rows of memory to write: those of the positive nodes.
struct Batch {
  const uint32_t *node, *phi, *psi;
  uint32_t n, roots, nodes, stride, written;
  Status s;
  __device__ __forceinline__ Batch(const uint32_t* node, const uint32_t* phi, const uint32_t* positives, const uint32_t* psi,
                                   Rows rows, Rows all, uint32_t nodes, uint32_t stride, Status s)
      : node(node), phi(phi), psi(psi), n(rows.live()), roots(all.live()), nodes(nodes), stride(stride),
        written(min(*positives, min(n, roots / stride * 2))), s(s) {}
  // Whether `row` has a node and a latest root that is an end of an event.
  __device__ __forceinline__ bool has(uint32_t row) const {
    return node[row] < nodes && phi[row] < roots && phi[row] % stride < 2;
  }
  // The same; also reports a fault if it does not.
  __device__ __forceinline__ bool check(uint32_t row) const {
    uint32_t latest = s.row_of(row, phi[row], roots);
    if (latest != NONE && latest % stride > 1) s.fault(row, latest);
    return s.row_of(row, node[row], nodes) != NONE && has(row);
  }
  // The root at the other end of the event of root `i`, which must be an end.
  __device__ __forceinline__ uint32_t other_end(uint32_t i) const { return i - i % stride + (1 - i % stride); }
  // The row of that root where the rows are those of the positive roots, two per event.
  __device__ __forceinline__ uint32_t other_positive(uint32_t i) const { return i / stride * 2 + (1 - i % stride); }
};

template <class T, class In>
__device__ __forceinline__ void move_rows(T* memory, T* mail, const Batch& batch, const In* s, const In* content, uint32_t d) {
  for (uint32_t row = warp_row(); row < batch.written; row += warp_rows()) {
    if (!batch.check(row)) continue;
    uint64_t to = uint64_t(batch.node[row]) * d;
    const In* held = content ? content : s;
    uint32_t from = NONE, latest = batch.phi[row];
    if (mail && content) from = batch.other_positive(latest);
    else if (mail) from = batch.s.row_of(row, batch.psi[batch.other_end(latest)], batch.n);
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      keep(memory[to + c], s[uint64_t(row) * d + c]);
      if (mail) keep(mail[to + c], from != NONE ? held[uint64_t(from) * d + c] : In{});
    }
  }
}

__device__ __forceinline__ void write_times(int64_t* memory_time, uint32_t* mail_event, int64_t* mail_time, const Batch& batch,
                                            const int64_t* time, const uint32_t* event, const int64_t* event_time) {
  for (uint32_t row = uint32_t(thread_item()); row < batch.written; row += uint32_t(thread_items())) {
    if (!batch.has(row)) continue;  // `move_rows` reports it
    uint32_t v = batch.node[row], latest = batch.phi[row] / batch.stride;
    memory_time[v] = time[row], mail_event[v] = event[latest], mail_time[v] = event_time[latest];
  }
}

// Without `content`, a mail holds a row of s. Without `mail`, the contents of the mails are left to `write_memory_mean`.
extern "C" __global__ void __launch_bounds__(256, 6)
write_memory(float* memory, int64_t* memory_time, float* mail, uint32_t* mail_event, int64_t* mail_time,
             const uint32_t* node, const uint32_t* phi, const uint32_t* positives, const uint32_t* psi, const float* s,
             const float* content, const int64_t* time, const uint32_t* event, const int64_t* event_time, Rows rows,
             Rows roots, uint32_t nodes, uint32_t d, uint32_t stride, Status status) {
  after_previous_kernel();
  Batch batch(node, phi, positives, psi, rows, roots, nodes, stride, status);
  write_times(memory_time, mail_event, mail_time, batch, time, event, event_time);
  if (by_four(memory, d) && by_four(mail, d) && by_four(s, d) && by_four(content, d)) {
    move_rows(fours(memory), fours(mail), batch, fours(s), fours(content), d / 4);
  } else {
    move_rows(memory, mail, batch, s, content, d);
  }
}

extern "C" __global__ void __launch_bounds__(256, 6)
write_half_memory(uint16_t* memory, uint32_t kind, int64_t* memory_time, uint16_t* mail, uint32_t* mail_event,
                  int64_t* mail_time, const uint32_t* node, const uint32_t* phi, const uint32_t* positives,
                  const uint32_t* psi, const float* s, const float* content, const int64_t* time,
                  const uint32_t* event, const int64_t* event_time, Rows rows, Rows roots, uint32_t nodes, uint32_t d,
                  uint32_t stride, Status status) {
  after_previous_kernel();
  Batch batch(node, phi, positives, psi, rows, roots, nodes, stride, status);
  write_times(memory_time, mail_event, mail_time, batch, time, event, event_time);
  as_kept(memory, kind, [=](auto* kept) {
    auto* mails = reinterpret_cast<decltype(kept)>(mail);
    if (by_four(memory, d) && by_four(mail, d) && by_four(s, d) && by_four(content, d)) {
      move_rows(fours(kept), fours(mails), batch, fours(s), fours(content), d / 4);
    } else {
      move_rows(kept, mails, batch, s, content, d);
    }
  });
}

template <class Out, class T>
__device__ __forceinline__ void mean_rows(Out* out, const T* src, const Batch& batch, const uint32_t* of, bool by_root,
                                          uint32_t from, uint32_t d) {
  for (uint32_t row = warp_row(); row < batch.written; row += warp_rows()) {
    if (!batch.has(row)) continue;  // `move_rows` has reported it
    // `last` is the index of the latest root among the positive roots.
    uint32_t stride = batch.stride, latest = batch.phi[row], last = latest / stride * 2 + latest % stride;
    for (uint32_t left = 0; left < d; left += WARP) {
      uint32_t c = left + lane_id(), events = 0;
      T sum{};
      for (uint32_t base = 0; base <= last; base += WARP) {
        auto root = [=](uint32_t lane) { return (base + lane) / 2 * stride + (base + lane) % 2; };
        uint32_t i = root(lane_id()), of_lane = NONE;
        bool here = base + lane_id() <= last && batch.psi[i] == row;
        if (here) of_lane = of ? of[i / stride] : by_root ? batch.other_positive(i) : batch.psi[batch.other_end(i)];
        of_lane = batch.s.row_of(row, of_lane, from);
        unsigned lanes = __ballot_sync(ALL, here);
        events += __popc(lanes);
        add_in_order(sum, lanes, [&](int lane) {
          uint32_t r = __shfl_sync(ALL, of_lane, lane);
          return c < d && r != NONE ? src[uint64_t(r) * d + c] : T{};
        });
      }
      scale(sum, 1.f / float(max(events, 1u)));
      if (c < d) keep(out[uint64_t(batch.node[row]) * d + c], sum);
    }
  }
}

// Means over a node's events of the batch: of the rows `of` of src by event or, without `of`, of the rows of the other
// ends. With `by_root` src has one row per positive root.
extern "C" __global__ void __launch_bounds__(256, 5)
write_memory_mean(float* out, const float* src, const uint32_t* node, const uint32_t* phi, const uint32_t* positives,
                  const uint32_t* psi, const uint32_t* of, uint32_t by_root, Rows rows, Rows from, Rows roots, uint32_t nodes,
                  uint32_t d, uint32_t stride, Status status) {
  after_previous_kernel();
  Batch batch(node, phi, positives, psi, rows, roots, nodes, stride, status);
  if (by_four(out, d) && by_four(src, d)) {
    mean_rows(fours(out), fours(src), batch, of, by_root, from.live(), d / 4);
  } else {
    mean_rows(out, src, batch, of, by_root, from.live(), d);
  }
}

extern "C" __global__ void __launch_bounds__(256, 5)
write_half_memory_mean(uint16_t* out, uint32_t kind, const float* src, const uint32_t* node, const uint32_t* phi,
                       const uint32_t* positives, const uint32_t* psi, const uint32_t* of, uint32_t by_root, Rows rows,
                       Rows from, Rows roots, uint32_t nodes, uint32_t d, uint32_t stride, Status status) {
  after_previous_kernel();
  Batch batch(node, phi, positives, psi, rows, roots, nodes, stride, status);
  as_kept(out, kind, [=](auto* kept) {
    if (by_four(out, d) && by_four(src, d)) {
      mean_rows(fours(kept), fours(src), batch, of, by_root, from.live(), d / 4);
    } else {
      mean_rows(kept, src, batch, of, by_root, from.live(), d);
    }
  });
}
