// append_mails: writes one mail into the next slot of each of a list of mailboxes
//
// shapes    mail [v k, c] f32 or 16-bit, mail event, time [v, k], next [v]; node, event, time [n], content [n, c] f32
// grid      one warp per recipient, lanes over the numbers of its mail
// memory    reads c words per recipient and writes as many numbers; coalesced
// limiter   memory
// backward  -
// source    APAN (Wang et al., SIGMOD 2021)
#include "stored.cuh"

template <class T>
__device__ __forceinline__ void append(T* mail, uint32_t* mail_event, int64_t* mail_time, uint32_t* next, const uint32_t* node,
                       const float* content, const uint32_t* event, const int64_t* event_time, Rows recipients,
                       uint32_t nodes, uint32_t k, uint32_t width, Status s) {
  uint32_t n = recipients.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t v = s.row_of(i, node[i], nodes);
    if (v == NONE) continue;  // the whole warp
    uint32_t slot = next[v] % k;
    uint64_t box = uint64_t(v) * k + slot;
    // A sum of one mail, as deliver_mails computes it: minus zero becomes zero.
    for (uint32_t c = lane_id(); c < width; c += WARP) keep(mail[box * width + c], 0.f + content[uint64_t(i) * width + c]);
    __syncwarp();  // every lane has read `next`
    if (lane_id() == 0) mail_event[box] = event[i], mail_time[box] = event_time[i], next[v] = (slot + 1) % k;
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
append_mails(float* mail, uint32_t* mail_event, int64_t* mail_time, uint32_t* next, const uint32_t* node,
             const float* content, const uint32_t* event, const int64_t* event_time, Rows recipients, uint32_t nodes,
             uint32_t k, uint32_t width, Status s) {
  after_previous_kernel();
  append(mail, mail_event, mail_time, next, node, content, event, event_time, recipients, nodes, k, width, s);
}

extern "C" __global__ void __launch_bounds__(256, FULL)
append_half_mails(uint16_t* mail, uint32_t kind, uint32_t* mail_event, int64_t* mail_time, uint32_t* next,
                  const uint32_t* node, const float* content, const uint32_t* event, const int64_t* event_time,
                  Rows recipients, uint32_t nodes, uint32_t k, uint32_t width, Status s) {
  after_previous_kernel();
  as_kept(mail, kind, [=](auto* kept) {
    append(kept, mail_event, mail_time, next, node, content, event, event_time, recipients, nodes, k, width, s);
  });
}
