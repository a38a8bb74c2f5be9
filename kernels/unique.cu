// unique: the unique nodes of a batch, the index of each occurrence's node among them, and each node's latest event
//
// shapes    stamp [v] u32, all zero between runs; roots and others, any number of ids; unique, phi [<= v] u32
// grid      three kernels, one thread per occurrence; the second has one block per tile of occurrences, for a prefix
//           sum
// memory    reads the occurrences three times and a stamp for each twice, writes the rows twice; ids coalesced
// limiter   latency
// backward  -
// source    Sven, Algorithm 2 (V_u, Phi, Psi); the order of the classes is ours
//
// The key of an occurrence is its index in the order in which nodes get rows: positive roots, negatives, then the
// others. The first occurrence of a node, with the largest `total - key`, wins the node's stamp; the node's row is the
// number of first occurrences before that key. If nodes are listed repeatedly, every occurrence is a first one.
#include "common.cuh"

constexpr unsigned THREADS = 256;
constexpr unsigned MOST_TILES = 1024;

struct Occurrence {
  uint32_t list, at;
};

__device__ uint32_t positives(const IdLists& ids) {
  uint32_t n = ids.of[0].live(), both = min(ids.stride, 2u);
  return n / ids.stride * both + min(n % ids.stride, both);
}
__device__ uint32_t total(const IdLists& ids) {
  uint32_t n = 0;
  for (uint32_t l = 0; l < ids.lists; l++) n += ids.of[l].live();
  return n;
}
__device__ Occurrence occurrence(const IdLists& ids, uint32_t key) {
  uint32_t n = ids.of[0].live(), both = min(ids.stride, 2u), rest = ids.stride - both, first = positives(ids);
  if (key < first) return {0, key / both * ids.stride + key % both};
  if (key < n) return {0, (key - first) / rest * ids.stride + both + (key - first) % rest};
  uint32_t list = 0;
  while (key >= n) key -= n, n = ids.of[++list].live();
  return {list, key};
}

extern "C" __global__ void __launch_bounds__(256, FULL) unique_mark(IdLists ids, uint32_t* stamp, uint32_t nodes, Status s) {
  after_previous_kernel();
  uint32_t all = total(ids);
  for (uint32_t key = uint32_t(thread_item()); key < all; key += uint32_t(thread_items())) {
    Occurrence o = occurrence(ids, key);
    uint32_t v = s.row_of(o.at, ids.of[o.list].ids[o.at], nodes);
    if (v != NONE && !ids.repeated) atomicMax(&stamp[v], all - key);
  }
}

// Stores in psi the key of the node's first occurrence; and for every 32 keys, a mask of the first occurrences and the
// number of first occurrences before them in the tile.
extern "C" __global__ void __launch_bounds__(256, FULL)
unique_first(IdLists ids, const uint32_t* stamp, uint32_t nodes, uint32_t* phi, uint32_t capacity, uint32_t* firsts,
               uint32_t* before, uint32_t* tiles, uint32_t rounds) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t all = total(ids), found = 0;
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t key = (blockIdx.x * rounds + round) * THREADS + threadIdx.x, first = NONE;
    if (key < all) {
      Occurrence o = occurrence(ids, key);
      uint32_t v = ids.of[o.list].ids[o.at];
      if (v < nodes) first = ids.repeated ? key : all - stamp[v];
      ids.of[o.list].psi[o.at] = first;
      if (key < capacity) phi[key] = NONE;
    }
    uint32_t word = __ballot_sync(ALL, key < all && first == key), here;
    uint32_t rank = found + block_scan(first == key, sums, here);
    if (lane_id() == 0 && key < all) firsts[key / WARP] = word, before[key / WARP] = rank;
    found += here;
  }
  if (threadIdx.x == 0) tiles[blockIdx.x] = found;
}

extern "C" __global__ void __launch_bounds__(256, FULL)
unique_rows(IdLists ids, uint32_t* stamp, const uint32_t* firsts, const uint32_t* before, const uint32_t* tiles,
              uint32_t n_tiles, uint32_t tile, uint32_t* node, uint32_t* phi, uint32_t* n_nodes, uint32_t* n_roots,
              uint32_t* n_positives, Status s) {
  after_previous_kernel();
  constexpr unsigned EACH = MOST_TILES / THREADS;
  __shared__ uint32_t sums[WARP], start[MOST_TILES];
  uint32_t own[EACH], sum = 0, found;
#pragma unroll
  for (unsigned j = 0; j < EACH; j++) {
    uint32_t t = threadIdx.x * EACH + j;
    own[j] = t < n_tiles ? tiles[t] : 0, sum += own[j];
  }
  uint32_t at = block_scan(sum, sums, found);
#pragma unroll
  for (unsigned j = 0; j < EACH; j++) start[threadIdx.x * EACH + j] = at, at += own[j];
  __syncthreads();  // the starts of all tiles have been written

  uint32_t all = total(ids);
  auto row_of = [&](uint32_t key) {
    return key < all ? start[key / tile] + before[key / WARP] + __popc(firsts[key / WARP] & ((1u << key % WARP) - 1)) : found;
  };
  if (thread_item() == 0) *n_nodes = found, *n_roots = row_of(ids.of[0].live()), *n_positives = row_of(positives(ids));
  for (uint32_t key = uint32_t(thread_item()); key < all; key += uint32_t(thread_items())) {
    Occurrence o = occurrence(ids, key);
    uint32_t* psi = &ids.of[o.list].psi[o.at];
    uint32_t first = *psi;
    if (first == NONE) continue;
    // Not a first occurrence: the stamp was not zero before the run.
    if (first >= all || !(firsts[first / WARP] >> first % WARP & 1)) {
      s.fault(o.at, first);
      *psi = NONE;
      continue;
    }
    uint32_t row = row_of(first);
    *psi = row;
    if (first == key) {
      uint32_t v = ids.of[o.list].ids[o.at];
      node[row] = v;
      if (!ids.repeated) stamp[v] = 0;
    }
    // As a signed number, NONE, which the second kernel stored there, is less than any root.
    if (o.list == 0 && o.at % ids.stride < 2) atomicMax(reinterpret_cast<int*>(&phi[row]), int(o.at));
  }
}
