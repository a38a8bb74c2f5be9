// deliver_mails: writes the mails of a batch, one per recipient, into the next slot of the recipient's mailbox
//
// shapes    mail [v k, 2 d] f32 or 16-bit, mail event, time [v, k], next [v]; node, phi [n] u32, out [stride b, d] f32;
//           with the mean combiner: mail features [v k, f] of the mails' type, edge [e, f] f32, starts [n + 1], order,
//           row [b] u32
// grid      one warp per recipient, lanes over the numbers of its rows (four per lane if rows are aligned)
// memory    reads 2 d words per delivery used (f more with the mean), writes as many numbers per recipient; coalesced
// limiter   memory; latency for the mean
// backward  -
// source    APAN (Wang et al., SIGMOD 2021)
#include "stored.cuh"

// The mean of `n` rows of `src`: `row(at)` is the row of delivery `at`, NONE a row of zeros. For a whole warp.
template <class Out, class T, class F>
__device__ __forceinline__ void mean_of_rows(Out* to, const T* src, uint32_t width, uint32_t n, F row) {
  constexpr uint32_t AT_ONCE = 4;
  for (uint32_t left = 0; left < width; left += WARP) {
    uint32_t c = left + lane_id();
    T sum{};
    for (uint32_t base = 0; base < n; base += WARP) {
      uint32_t at = base + lane_id(), of_lane = at < n ? row(at) : NONE, until = min(WARP, n - base);
      for (uint32_t first = 0; first < until; first += AT_ONCE) {
        T v[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
          uint32_t r = __shfl_sync(ALL, of_lane, int(first + i));
          v[i] = r != NONE && c < width ? src[uint64_t(r) * width + c] : T{};
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) add_to(sum, v[i]);
      }
    }
    scale(sum, 1.f / float(n));
    if (c < width) keep(to[c], sum);
  }
}
// Groups of four 16-bit numbers need half the alignment of four words; unaligned rows are processed element by element.
template <class T, class F>
__device__ __forceinline__ void mean_row(T* to, const float* src, uint32_t width, uint32_t n, F row) {
  if (by_four(src, width) && reinterpret_cast<uintptr_t>(to) % (4 * sizeof(T)) == 0) {
    mean_of_rows(fours(to), fours(src), width / 4, n, row);
  } else {
    mean_of_rows(to, src, width, n, row);
  }
}

// Row counts and dimensions of the operands.
struct Room {
  Rows recipients, events, edges, listed;
  uint32_t nodes, k, d, f, each, stride;
};

template <class T>
__device__ __forceinline__ void deliver(T* mail, uint32_t* mail_event, int64_t* mail_time, uint32_t* next, const uint32_t* node,
                        const uint32_t* phi, const float* out, const uint32_t* event, const int64_t* event_time, T* features,
                        const float* edge, const uint32_t* starts, const uint32_t* order, const uint32_t* rows, Room room,
                        Status s) {
  uint32_t n = room.recipients.live(), k = room.k, d = room.d, f = room.f, each = room.each, stride = room.stride;
  uint32_t sent = uint32_t(min(uint64_t(2) * each * room.events.live(), uint64_t(NONE)));
  uint32_t edges = room.edges.live(), listed = room.listed.live();
  for (uint32_t to = warp_row(); to < n; to += warp_rows()) {
    uint32_t v = s.row_of(to, node[to], room.nodes), latest = s.row_of(to, phi[to], sent);
    uint32_t first = order ? starts[to] : 0, end = order ? starts[to + 1] : 1;
    if (order && (first > end || end > listed)) s.fault(to, first), v = NONE;
    if (v == NONE || latest == NONE) continue;  // the whole warp
    uint32_t slot = next[v] % k, count = end - first;
    const uint32_t* deliveries = order ? order + first : &phi[to];
    // For delivery `at`: the row of the root that sent it, of the root at the other end of its event, of the event's
    // features.
    auto root = [=](uint32_t at) {
      uint32_t delivery = s.row_of(to, deliveries[at], sent);
      return delivery == NONE ? NONE : delivery / each;
    };
    auto own = [=](uint32_t at) { uint32_t r = root(at); return r == NONE ? NONE : r / 2 * stride + r % 2; };
    auto other = [=](uint32_t at) { uint32_t r = root(at); return r == NONE ? NONE : r / 2 * stride + 1 - r % 2; };
    auto of_event = [=](uint32_t at) { uint32_t r = root(at); return r == NONE ? NONE : s.row_of(r / 2, rows[r / 2], edges); };
    uint64_t box = uint64_t(v) * k + slot;
    mean_row(mail + box * 2 * d, out, d, count, own);
    mean_row(mail + box * 2 * d + d, out, d, count, other);
    if (features) mean_row(features + box * f, edge, f, count, of_event);
    __syncwarp();  // every lane has read `next`
    if (lane_id() == 0) {
      uint32_t i = latest / each / 2;
      mail_event[box] = event[i], mail_time[box] = event_time[i], next[v] = (slot + 1) % k;
    }
  }
}

// Without `order` only the latest delivery of each recipient is used. `rows` maps events to rows of `edge`.
extern "C" __global__ void __launch_bounds__(256, 3)
deliver_mails(float* mail, uint32_t* mail_event, int64_t* mail_time, uint32_t* next, const uint32_t* node,
              const uint32_t* phi, const float* out, const uint32_t* event, const int64_t* event_time, float* features,
              const float* edge, const uint32_t* starts, const uint32_t* order, const uint32_t* rows, Rows recipients,
              Rows events, Rows edges, Rows listed, uint32_t nodes, uint32_t k, uint32_t d, uint32_t f, uint32_t each,
              uint32_t stride, Status s) {
  after_previous_kernel();
  deliver(mail, mail_event, mail_time, next, node, phi, out, event, event_time, features, edge, starts, order, rows,
          {recipients, events, edges, listed, nodes, k, d, f, each, stride}, s);
}

extern "C" __global__ void __launch_bounds__(256, 3)
deliver_half_mails(uint16_t* mail, uint32_t kind, uint32_t* mail_event, int64_t* mail_time, uint32_t* next,
                   const uint32_t* node, const uint32_t* phi, const float* out, const uint32_t* event,
                   const int64_t* event_time, uint16_t* features, const float* edge, const uint32_t* starts,
                   const uint32_t* order, const uint32_t* rows, Rows recipients, Rows events, Rows edges, Rows listed,
                   uint32_t nodes, uint32_t k, uint32_t d, uint32_t f, uint32_t each, uint32_t stride, Status s) {
  after_previous_kernel();
  as_kept(mail, kind, [=](auto* kept) {
    deliver(kept, mail_event, mail_time, next, node, phi, out, event, event_time,
            reinterpret_cast<decltype(kept)>(features), edge, starts, order, rows,
            {recipients, events, edges, listed, nodes, k, d, f, each, stride}, s);
  });
}
