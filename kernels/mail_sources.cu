// mail_sources: the rows from which the mails of a list of nodes are made
//
// shapes    node_row [n], phi [u], psi [stride b] u32; pair [n, 2], partner_row, end, event [n] u32
// grid      one thread per node, grid-stride loop
// memory    reads 3 n words, two of them scattered; writes up to 5 n
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

// `each`: deliveries per root, or 0 if phi holds roots. The outputs may be null.
extern "C" __global__ void __launch_bounds__(256, FULL)
mail_sources(const uint32_t* node_row, const uint32_t* phi, const uint32_t* psi, uint32_t* pair, uint32_t* partner_row,
             uint32_t* end, uint32_t* event, Rows rows, Rows known, Rows roots, uint32_t stride, uint32_t each, Status s) {
  after_previous_kernel();
  uint32_t n = rows.live(), u = known.live(), r = roots.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    uint32_t row = s.row_of(i, node_row[i], u), latest = row == NONE ? NONE : phi[row];
    uint32_t of = each ? latest / each / 2 : latest / stride, side = each ? latest / each % 2 : latest % stride;
    bool there = latest != NONE && side < 2 && (uint64_t(of) + 1) * stride <= r;
    if (!there && row != NONE) s.fault(i, latest);
    uint32_t first = of * stride, other = 1 - side;
    if (pair) pair[2 * i] = there ? first + side : NONE, pair[2 * i + 1] = there ? first + other : NONE;
    if (partner_row) partner_row[i] = there ? psi[first + other] : NONE;
    if (end) end[i] = there ? 2 * of + other : NONE;
    if (event) event[i] = there ? of : NONE;
  }
}
