// exchange_rows: rows of tables to other ranks, through windows (runtime/cuda/windows.rs)
//
// A window begins with its head, words that say for each rank the first of its rows, then the number of rows, then for
// each table where its rows begin, in 16 bytes. Ranks may differ in how many rows they have memory for.
// `exchange_ids` uses the same kernels.
//
// shapes    table [v, d] and index [n] u32 or null; out [<= m, d]; d 16-bit units a row, of any type
// grid      count_rows one thread; write_rows_to_window and read_rows_from_windows one warp per row, lanes over
//           the row's units, 16 bytes at a time if rows are aligned
// memory    write: reads and writes n d units; read: reads m d units, of which those of other ranks cross the link
//           between the devices, and writes m d units (twice as many if 16-bit numbers become f32); coalesced
// limiter   the link between the devices; memory on one device
// backward  exchange_rows, with the counts in reverse
// source    Sven, section 3.1
#include "stored.cuh"

constexpr uint32_t MOST_RANKS = 256, ALIGNED = 16;

// Copies row `from` of `d` units to row `to` with the lanes of a warp; zeros if `from` is NONE.
template <class T>
__device__ __forceinline__ void copy_row(const void* table, uint32_t from, void* out, uint32_t to, uint32_t d) {
  const T* x = static_cast<const T*>(table) + uint64_t(from) * d;
  T* y = static_cast<T*>(out) + uint64_t(to) * d;
  for (uint32_t c = lane_id(); c < d; c += WARP) y[c] = from == NONE ? T{} : x[c];
}
__device__ __forceinline__ void copy_units(const void* table, uint32_t from, void* out, uint32_t to, uint32_t units) {
  uint64_t lies = reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(out) | uint64_t(units) * 2;
  if (lies % 16 == 0) copy_row<uint4>(table, from, out, to, units / 8);
  else if (lies % 4 == 0) copy_row<uint32_t>(table, from, out, to, units / 2);
  else copy_row<uint16_t>(table, from, out, to, units);
}

// Writes the head of the window: `counts` rows for each rank, or all rows for every rank if it is null. Adds what
// leaves this rank to `sent`: rows, and bytes of `width` a row and `extra` in total.
extern "C" __global__ void __launch_bounds__(32, 1)
count_rows(const uint32_t* counts, Rows rows, uint32_t* head, Windows windows, uint64_t* sent, uint32_t width,
           uint32_t extra, Status s) {
  after_previous_kernel();
  if (threadIdx.x) return;
  uint32_t n = rows.live(), first = 0, others = 0;
  for (uint32_t r = 0; r < windows.ranks; r++) {
    uint32_t part = counts ? counts[r] : n;
    head[r] = counts ? first : 0;
    first += part;
    if (r != windows.rank) others += part;
  }
  head[windows.ranks] = counts ? first : n;
  if (counts && first != n) s.fault(n, first);  // the counts are not those of the list
  sent[0] += others;
  sent[1] += uint64_t(others) * width + extra;
}

// Writes the rows of a table at 16 `begin` bytes of the window, and `begin` to word `at` of its head.
extern "C" __global__ void __launch_bounds__(256, 4)
write_rows_to_window(const uint16_t* table, const uint32_t* index, uint32_t* head, uint32_t at, uint32_t begin,
                     Rows rows, Rows from, uint32_t units, Status s) {
  after_previous_kernel();
  uint32_t n = rows.live(), v = from.live();
  void* out = reinterpret_cast<char*>(head) + uint64_t(begin) * ALIGNED;
  if (thread_item() == 0) head[at] = begin;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    copy_units(table, index ? s.row_of(i, index[i], v) : i, out, i, units);
  }
}

// Reads this rank's parts of the rows of table `table` in all windows. `to_all` says that every rank reads all rows.
// `kind` is 0 for units, else 1 + the format of 16-bit numbers, which become f32. `expected` rows arrive from each rank, or, if it is null, `counts` and `count` receive how many. `progress`
// is null, or that of the last kernel of a collective.
extern "C" __global__ void __launch_bounds__(256, 4)
read_rows_from_windows(Windows windows, uint32_t table, uint32_t to_all, const uint32_t* expected,
                       uint32_t* counts, uint32_t* count, uint16_t* out, uint32_t capacity, uint32_t units, uint32_t kind,
                       uint64_t* progress, Status s) {
  after_previous_kernel();
  // Of the rows from each rank: where they begin there, and the end here.
  __shared__ const uint16_t* begin[MOST_RANKS];
  __shared__ uint32_t end[MOST_RANKS];
  for (uint32_t r = threadIdx.x; r < windows.ranks; r += blockDim.x) {
    const uint32_t* head = windows.at<uint32_t>(r, 0);
    uint32_t from = to_all ? 0 : head[windows.rank], to = head[to_all ? windows.ranks : windows.rank + 1];
    // A lost rank may leave anything in its window.
    uint64_t at = uint64_t(head[windows.ranks + 1 + table]) * ALIGNED, bytes = windows.bytes(r);
    uint64_t most = at < bytes && units ? (bytes - at) / (2 * units) : 0;
    if (units == 0) most = NONE;
    bool valid = from <= to && to <= most;
    begin[r] = windows.at<uint16_t>(r, valid ? at + uint64_t(from) * units * 2 : 0);
    end[r] = valid ? to - from : 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    bool reports = blockIdx.x == 0;
    uint32_t sum = 0;
    for (uint32_t r = 0; r < windows.ranks; r++) {
      if (reports && expected && end[r] != expected[r]) s.fault(r, end[r]);
      uint32_t part = min(end[r], capacity - sum);
      if (reports && part < end[r]) s.fault(r, end[r]);  // there is no memory for so many
      if (reports && counts) counts[r] = part;
      end[r] = sum += part;
    }
    if (reports && count) *count = sum;
    if (reports && progress) *progress += 1;
  }
  __syncthreads();
  uint32_t n = end[windows.ranks - 1];
  for (uint32_t i = warp_row(), r = 0; i < n; i += warp_rows()) {
    while (i >= end[r]) r++;
    uint32_t row = i - (r ? end[r - 1] : 0);
    if (kind == 0) {
      copy_units(begin[r], row, out, i, units);
    } else {
      as_kept(begin[r], kind - 1, [=](auto* kept) {
        auto* x = kept + uint64_t(row) * units;
        float* y = reinterpret_cast<float*>(out) + uint64_t(i) * units;
        for (uint32_t c = lane_id(); c < units; c += WARP) y[c] = real(x[c]);
      });
    }
  }
}
