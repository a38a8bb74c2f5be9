// write_memory: new memory and new mails of the positive roots, in place
//
// shapes    memory, mail [v, d] f32 or of 16 bits, their times and events [v]; node, phi [n] u32, psi [stride b] u32, s [n, d]
//           f32; row [b] u32: rows of src by event
// grid      a warp a distinct positive root, lanes over the row's numbers (four a lane where rows are aligned)
// memory    reads 2 d words a row and writes 2 d numbers; the mean reads psi for each row, from L1, and a row for each event
// limiter   memory; latency for the mean
// backward  -
// source    TGN (Rossi et al. 2020), section 3; PyTorch Geometric's order of reading before writing
#include "stored.cuh"

// The root at the other end of the event of root `i`.
__device__ uint32_t other_end(uint32_t i, uint32_t stride) {
  uint32_t side = i % stride;
  return i - side + (1 - side);
}

template <class T, class In>
__device__ __forceinline__ void move_rows(T* memory, T* mail, const uint32_t* node, const uint32_t* phi, const uint32_t* psi,
                          const In* s, uint32_t positives, uint32_t n, uint32_t d, uint32_t stride) {
  for (uint32_t row = warp_row(); row < positives; row += warp_rows()) {
    uint64_t to = uint64_t(node[row]) * d;
    uint32_t from = psi[other_end(phi[row], stride)];
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      keep(memory[to + c], s[uint64_t(row) * d + c]);
      if (mail) keep(mail[to + c], from < n ? s[uint64_t(from) * d + c] : In{});
    }
  }
}

__device__ __forceinline__ void write_times(int64_t* memory_time, uint32_t* mail_event, int64_t* mail_time, const uint32_t* node,
                          const uint32_t* phi, const int64_t* time, const uint32_t* event, const int64_t* event_time,
                          uint32_t positives, uint32_t stride) {
  for (uint32_t row = uint32_t(thread_item()); row < positives; row += uint32_t(thread_items())) {
    uint32_t v = node[row], latest = phi[row] / stride;
    memory_time[v] = time[row], mail_event[v] = event[latest], mail_time[v] = event_time[latest];
  }
}

// Without `mail`, that is left to `write_memory_mean`.
extern "C" __global__ void __launch_bounds__(256, 6)
write_memory(float* memory, int64_t* memory_time, float* mail, uint32_t* mail_event, int64_t* mail_time,
             const uint32_t* node, const uint32_t* phi, const uint32_t* positives, const uint32_t* psi, const float* s,
             const int64_t* time, const uint32_t* event, const int64_t* event_time, Rows rows, uint32_t d, uint32_t stride) {
  uint32_t n = rows.live(), written = min(*positives, n);
  write_times(memory_time, mail_event, mail_time, node, phi, time, event, event_time, written, stride);
  if (by_four(memory, d) && by_four(mail, d) && by_four(s, d)) {
    move_rows(fours(memory), fours(mail), node, phi, psi, fours(s), written, n, d / 4, stride);
  } else {
    move_rows(memory, mail, node, phi, psi, s, written, n, d, stride);
  }
}

extern "C" __global__ void __launch_bounds__(256, 6)
write_half_memory(uint16_t* memory, uint32_t kind, int64_t* memory_time, uint16_t* mail, uint32_t* mail_event,
                  int64_t* mail_time, const uint32_t* node, const uint32_t* phi, const uint32_t* positives,
                  const uint32_t* psi, const float* s, const int64_t* time, const uint32_t* event,
                  const int64_t* event_time, Rows rows, uint32_t d, uint32_t stride) {
  uint32_t n = rows.live(), written = min(*positives, n);
  write_times(memory_time, mail_event, mail_time, node, phi, time, event, event_time, written, stride);
  as_kept(memory, kind, [=](auto* kept) {
    auto* mails = reinterpret_cast<decltype(kept)>(mail);
    if (by_four(memory, d) && by_four(mail, d) && by_four(s, d)) {
      move_rows(fours(kept), fours(mails), node, phi, psi, fours(s), written, n, d / 4, stride);
    } else {
      move_rows(kept, mails, node, phi, psi, s, written, n, d, stride);
    }
  });
}

template <class Out, class T>
__device__ __forceinline__ void mean_rows(Out* out, const T* src, const uint32_t* node, const uint32_t* phi, const uint32_t* psi,
                          const uint32_t* of, uint32_t positives, uint32_t from, uint32_t d, uint32_t stride) {
  for (uint32_t row = warp_row(); row < positives; row += warp_rows()) {
    uint32_t latest = phi[row], last = latest / stride * 2 + latest % stride;  // among the positive roots
    for (uint32_t left = 0; left < d; left += WARP) {
      uint32_t c = left + lane_id(), events = 0;
      T sum{};
      for (uint32_t base = 0; base <= last; base += WARP) {
        auto root = [=](uint32_t lane) { return (base + lane) / 2 * stride + (base + lane) % 2; };
        bool here = base + lane_id() <= last && psi[root(lane_id())] == row;
        unsigned lanes = __ballot_sync(ALL, here);
        events += __popc(lanes);
        add_in_order(sum, lanes, [&](int lane) {
          uint32_t i = root(uint32_t(lane)), r = of ? of[i / stride] : psi[other_end(i, stride)];
          return c < d && r < from ? src[uint64_t(r) * d + c] : T{};
        });
      }
      scale(sum, 1.f / float(events));
      if (c < d) keep(out[uint64_t(node[row]) * d + c], sum);
    }
  }
}

// Means over a node's events of the batch: of the rows `of` of src by event, or, without them, of those of the other ends.
extern "C" __global__ void __launch_bounds__(256, 8)
write_memory_mean(float* out, const float* src, const uint32_t* node, const uint32_t* phi, const uint32_t* positives,
                  const uint32_t* psi, const uint32_t* of, Rows rows, Rows from, uint32_t d, uint32_t stride) {
  uint32_t written = min(*positives, rows.live());
  if (by_four(out, d) && by_four(src, d)) {
    mean_rows(fours(out), fours(src), node, phi, psi, of, written, from.live(), d / 4, stride);
  } else {
    mean_rows(out, src, node, phi, psi, of, written, from.live(), d, stride);
  }
}

extern "C" __global__ void __launch_bounds__(256, 6)
write_half_memory_mean(uint16_t* out, uint32_t kind, const float* src, const uint32_t* node, const uint32_t* phi,
                       const uint32_t* positives, const uint32_t* psi, const uint32_t* of, Rows rows, Rows from, uint32_t d,
                       uint32_t stride) {
  uint32_t written = min(*positives, rows.live());
  as_kept(out, kind, [=](auto* kept) {
    if (by_four(out, d) && by_four(src, d)) {
      mean_rows(fours(kept), fours(src), node, phi, psi, of, written, from.live(), d / 4, stride);
    } else {
      mean_rows(kept, src, node, phi, psi, of, written, from.live(), d, stride);
    }
  });
}
