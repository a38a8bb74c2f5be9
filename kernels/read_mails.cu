// read_mails: the mails of each query (node, time), latest first
//
// shapes    node [n] u32, time [n] i64; mail event, time [v, k], next [v] u32; row, event, dt [n, k], count [n]
// grid      one warp per query, lanes over the slots of its mailbox, starting at the latest and going round the ring
// memory    reads 20 n + 12 n k bytes, writes 12 n k + 4 n; coalesced within a mailbox
// limiter   latency: query, next slot and events are dependent loads
// backward  -
// source    APAN (Wang et al., SIGMOD 2021)
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
read_mails(const uint32_t* node, const int64_t* time, const uint32_t* mail_event, const int64_t* mail_time,
           const uint32_t* next, uint32_t* row, uint32_t* event, float* dt, uint32_t* count, Rows queries, uint32_t nodes,
           uint32_t k, Gaps gaps, Status s) {
  after_previous_kernel();
  uint32_t n = queries.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t v = s.row_of(i, node[i], nodes), newest = v == NONE ? 0 : next[v] % k + k - 1, mails = 0;
    int64_t now = time[i];
    bool all = v != NONE;  // whether every slot so far has a mail
    for (uint32_t base = 0; base < k; base += WARP) {
      uint32_t j = base + lane_id(), from = NONE, of = NONE;
      if (all && j < k) from = v * k + (newest - j) % k, of = mail_event[from];
      unsigned empty = __ballot_sync(ALL, of == NONE);
      uint32_t used = empty ? uint32_t(__ffs(int(empty))) - 1 : WARP;
      bool there = lane_id() < used;
      if (j < k) {
        uint64_t slot = uint64_t(i) * k + j;
        if (row) row[slot] = there ? from : NONE;
        if (event) event[slot] = there ? of : NONE;
        if (dt) dt[slot] = there ? gaps.seconds(mail_time[from], now) : 0.f;
      }
      mails += used, all = used == WARP;
    }
    if (count && lane_id() == 0) count[i] = mails;
  }
}
