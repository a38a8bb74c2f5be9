// append_history: appends the events of a batch to the lists of their nodes; a full list loses its earliest entries
//
// shapes    offsets [v + 1] i64, entries [n, 2] i64, node, starts by unique node, order [<= stride b], events [<= b]
// grid      one warp per unique positive root: its lanes move 32 entries at a time, then each lane appends one entry
// memory    reads and writes 16 bytes per entry of the lists; per new entry reads 24 bytes and writes 16; entries
//           coalesced
// limiter   latency: node, list and entries are dependent loads
// backward  -
// source    the ring of a mailbox, applied to the adjacency; ours
#include "common.cuh"

struct Entry {
  int64_t time;
  uint2 end;  // other end, event
};

extern "C" __global__ void __launch_bounds__(256, FULL)
append_history(const int64_t* offsets, int64_t* entries, const uint32_t* node, const uint32_t* positives,
               const uint32_t* starts, const uint32_t* order, const uint32_t* src, const uint32_t* dst,
               const int64_t* time, const uint32_t* event, Rows nodes, Rows listed, Rows events, uint32_t tables, uint32_t groups,
               uint64_t room, uint32_t stride, Status s) {
  after_previous_kernel();
  uint32_t n = min(min(*positives, nodes.live()), groups), in_order = listed.live();
  uint32_t roots = uint32_t(min(uint64_t(events.live()) * stride, uint64_t(NONE)));
  // Whether a root is an event end that gets an entry; a self-loop gets one entry, as the source.
  auto counts = [=](uint32_t row, uint32_t root) {
    if (s.row_of(row, root, roots) == NONE) return false;
    uint32_t i = root / stride, side = root % stride;
    return side == 0 || (side == 1 && src[i] != dst[i]);
  };
  for (uint32_t row = warp_row(); row < n; row += warp_rows()) {
    uint32_t v = s.row_of(row, node[row], tables), first = starts[row], past = starts[row + 1];
    if (v == NONE) continue;  // the whole warp; the same holds for an invalid list
    int64_t begin = offsets[v], end = offsets[v + 1];
    if (begin < 0 || end < begin || uint64_t(end) > room || first > past || past > in_order) {
      s.fault(row, v);
      continue;
    }
    Entry* list = reinterpret_cast<Entry*>(entries) + begin;
    uint32_t slots = uint32_t(end - begin), used = 0, fresh = 0;
    for (uint32_t base = 0; base < slots; base += WARP) {
      uint32_t i = base + lane_id();
      used += __popc(__ballot_sync(ALL, i < slots && list[i].end.y != NONE));
    }
    for (uint32_t base = first; base < past; base += WARP) {
      uint32_t at = base + lane_id();
      fresh += __popc(__ballot_sync(ALL, at < past && counts(row, order[at])));
    }
    // Of the old entries followed by the new ones, the first `lost` are discarded.
    uint32_t lost = used + fresh - min(used + fresh, slots), kept = used - min(used, lost);
    for (uint32_t base = 0; lost > 0 && base < kept; base += WARP) {
      uint32_t i = base + lane_id();
      Entry moved = {};
      if (i < kept) moved = list[lost + i];
      __syncwarp();  // all lanes have read the entries before any is overwritten
      if (i < kept) list[i] = moved;
      __syncwarp();  // all lanes have written before the next entries are read
    }
    uint32_t next = used;
    for (uint32_t base = first; base < past; base += WARP) {
      uint32_t at = base + lane_id(), root = at < past ? order[at] : 0;
      bool own = at < past && counts(row, root);
      unsigned lanes = __ballot_sync(ALL, own);
      uint32_t place = next + lanes_below(lanes), i = root / stride;
      if (own && place >= lost) {
        list[place - lost] = {time[i], make_uint2(root % stride ? src[i] : dst[i], event[i])};
      }
      next += __popc(lanes);
    }
  }
}
