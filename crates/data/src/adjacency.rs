//! Adjacency of snapshots in the form that a graph convolution reads: with self-loops, rows in one pool, and
//! the inverse square roots of the degrees.
use super::Snapshots;
use rayon::prelude::*;
use std::cmp::Ordering::{Equal, Greater, Less};
use tgnn::error::{Error, Result};

/// Neighbours of every vertex in every step. The row of vertex `v` in step `s` is the `len[s * nodes + v]`
/// pool entries from `begin[s * nodes + v]` on, in ascending order of the neighbour; it includes `v` itself.
///
/// A row that equals the same vertex's row in the previous step, weights included, is not stored again: both
/// rows have the same `begin`. If a graph changes little from step to step, the pool is nearly as small as
/// that of a single step, and the rows that a step reads are likely to be in a cache since the previous step.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbors {
    /// `[steps * nodes]`: the pool index of each row's first entry.
    pub begin: Vec<u32>,
    /// `[steps * nodes]`: the number of entries of each row.
    pub len: Vec<u32>,
    /// The pool: neighbours, as vertex numbers.
    pub col: Vec<u32>,
    /// Weights of the pool's entries; `None` if all weights are 1.
    pub weight: Option<Vec<f32>>,
}

/// The adjacency of all steps with self-loops, `A + I`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjacency {
    /// Number of vertices.
    pub nodes: usize,
    /// Number of steps.
    pub steps: usize,
    /// The neighbours that each vertex aggregates from: the sources of its incoming edges; in an undirected
    /// graph the other ends of all its edges.
    pub from: Neighbors,
    /// The neighbours that aggregate from each vertex; `None` for an undirected graph, where they equal
    /// `from`.
    pub to: Option<Neighbors>,
    /// `[steps * nodes]`: `degree^-1/2` of every vertex in every step. The degree is the sum of the weights
    /// of the vertex's row in [`from`](Self::from); absent vertices have 0.
    pub scale: Vec<f32>,
}

impl Adjacency {
    /// Builds the adjacency of `snapshots`. Unless `directed`, each edge counts in both directions; if both
    /// directions have an edge, the greater weight counts. Self-loops keep their weights; vertices without
    /// one get a self-loop of weight 1, as in PyTorch Geometric's `add_remaining_self_loops`. Steps are built
    /// in parallel; the result does not depend on the number of threads.
    ///
    /// # Errors
    /// Data if the pool has 2^32 entries or more.
    pub fn from_snapshots(snapshots: &Snapshots, directed: bool) -> Result<Self> {
        let (nodes, steps) = (snapshots.nodes, snapshots.len());
        let (from, to): (Vec<Rows>, Vec<Rows>) = (0..steps)
            .into_par_iter()
            .map(|s| {
                let to = Rows::by_source(snapshots, s);
                let from = to.transposed();
                if directed { (from, to) } else { (from.united(&to), Rows::default()) }
            })
            .unzip();
        let mut scale = vec![0.0f32; steps * nodes];
        scale.par_chunks_mut(nodes.max(1)).zip(&from).for_each(|(scale, rows)| {
            for (i, scale) in scale.iter_mut().enumerate() {
                let degree: f64 = rows.row(i).iter().map(|&(_, w)| f64::from(w)).sum();
                *scale = if degree > 0.0 { (1.0 / degree.sqrt()) as f32 } else { 0.0 };
            }
        });
        let weighted = snapshots.weight.is_some();
        let pool = |rows: &[Rows]| {
            pooled(rows, nodes, weighted).ok_or_else(|| {
                let what = "all steps together have 2^32 neighbours or more";
                Error::data(&snapshots.name, what).remedy("use shorter or fewer steps")
            })
        };
        let to = if directed { Some(pool(&to)?) } else { None };
        Ok(Adjacency { nodes, steps, from: pool(&from)?, to, scale })
    }

    /// Returns the number of neighbours of all vertices in all steps, summed over the stored directions.
    pub fn entries(&self) -> usize {
        self.sides().map(|n| n.len.iter().map(|&len| len as usize).sum::<usize>()).sum()
    }

    /// Returns the number of pool entries. The difference to [`entries`](Self::entries) is shared with
    /// previous steps.
    pub fn stored(&self) -> usize {
        self.sides().map(|n| n.col.len()).sum()
    }

    fn sides(&self) -> impl Iterator<Item = &Neighbors> {
        std::iter::once(&self.from).chain(&self.to)
    }
}

/// The rows of one step: row `i` is `entries[start[i]..start[i + 1]]`, pairs of neighbour and weight,
/// ascending by neighbour.
#[derive(Default)]
struct Rows {
    start: Vec<usize>,
    entries: Vec<(u32, f32)>,
}

impl Rows {
    fn row(&self, i: usize) -> &[(u32, f32)] {
        &self.entries[self.start[i]..self.start[i + 1]]
    }
    /// Collects the destinations of every vertex's edges, and the vertex itself if it is present.
    fn by_source(data: &Snapshots, step: usize) -> Self {
        let mut edges = data.edges(step);
        let (mut start, mut entries) = (vec![0], Vec::with_capacity(edges.len() + data.nodes));
        for i in 0..data.nodes {
            let row = entries.len();
            while !edges.is_empty() && data.src[edges.start] as usize == i {
                let e = edges.start;
                entries.push((data.dst[e], data.weight.as_ref().map_or(1.0, |w| w[e])));
                edges.start += 1;
            }
            // The index of the self-loop in the row is an `Err` unless the vertex has one already.
            let loop_index = entries[row..].binary_search_by_key(&(i as u32), |e: &(u32, f32)| e.0);
            if let (true, Err(index)) = (data.has(step, i), loop_index) {
                entries.insert(row + index, (i as u32, 1.0));
            }
            start.push(entries.len());
        }
        Rows { start, entries }
    }
    fn transposed(&self) -> Self {
        let mut start = vec![0; self.start.len()];
        self.entries.iter().for_each(|&(j, _)| start[j as usize + 1] += 1);
        (1..start.len()).for_each(|i| start[i] += start[i - 1]);
        let (mut next, mut entries) = (start.clone(), vec![(0, 0.0); self.entries.len()]);
        for i in 0..start.len() - 1 {
            for &(j, w) in self.row(i) {
                entries[next[j as usize]] = (i as u32, w);
                next[j as usize] += 1;
            }
        }
        Rows { start, entries }
    }
    /// Merges two sets of rows; a neighbour that both rows have appears once, with the greater weight.
    fn united(&self, other: &Self) -> Self {
        let (mut start, mut entries) = (vec![0], Vec::with_capacity(2 * self.entries.len()));
        for i in 0..self.start.len() - 1 {
            let (mut a, mut b) = (self.row(i), other.row(i));
            while let (&[x, ..], &[y, ..]) = (a, b) {
                entries.push(match x.0.cmp(&y.0) {
                    Less => x,
                    Greater => y,
                    Equal => (x.0, x.1.max(y.1)),
                });
                (a, b) = (&a[usize::from(x.0 <= y.0)..], &b[usize::from(y.0 <= x.0)..]);
            }
            entries.extend(a.iter().chain(b));
            start.push(entries.len());
        }
        Rows { start, entries }
    }
}

/// Stores the rows of all steps in one pool, without rows that equal the previous step's. `None` if the pool
/// has 2^32 entries or more.
fn pooled(steps: &[Rows], nodes: usize, weighted: bool) -> Option<Neighbors> {
    let changed = |s: usize, i: usize| s == 0 || steps[s].row(i) != steps[s - 1].row(i);
    let new: Vec<Vec<bool>> =
        (0..steps.len()).into_par_iter().map(|s| (0..nodes).map(|i| changed(s, i)).collect()).collect();
    let (mut begin, mut len, mut end) = (Vec::new(), Vec::new(), 0usize);
    for (rows, new) in steps.iter().zip(&new) {
        for (i, &new) in new.iter().enumerate() {
            begin.push(if new { end as u32 } else { begin[begin.len() - nodes] });
            len.push(rows.row(i).len() as u32);
            end += if new { rows.row(i).len() } else { 0 };
        }
    }
    if end > u32::MAX as usize {
        return None;
    }
    let stored = || {
        steps.par_iter().zip(&new).flat_map_iter(|(rows, new)| {
            (0..nodes).filter(|&i| new[i]).flat_map(|i| rows.row(i).iter().copied())
        })
    };
    let weight = weighted.then(|| stored().map(|(_, w)| w).collect());
    Some(Neighbors { begin, len, col: stored().map(|(j, _)| j).collect(), weight })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;

    /// Draws random snapshots of about `edges` edges per step, including self-loops. A step may equal the
    /// previous one or be empty. Some vertices have no edge; with `some_absent`, other vertices are absent.
    fn drawn(nodes: usize, steps: usize, edges: usize, weighted: bool, some_absent: bool) -> Snapshots {
        let (mut draws, mut present) = (Draws::new(nodes as u64), Vec::new());
        let mut data = Snapshots {
            name: "drawn".into(),
            nodes,
            offsets: vec![0],
            src: Vec::new(),
            dst: Vec::new(),
            weight: weighted.then(Vec::new),
            labels: (0..steps).map(|s| s.to_string()).collect(),
            present: None,
            features: None,
            targets: None,
            target_unit: 1.0,
            classes: None,
            encoding: None,
            class_values: None,
            ids: None,
            notes: Vec::new(),
        };
        let mut step_edges: Vec<(u32, u32, f32)> = Vec::new();
        for s in 0..steps {
            let step_present: Vec<bool> = (0..nodes).map(|_| !some_absent || draws.chance(0.8)).collect();
            step_edges.retain(|e| step_present[e.0 as usize] && step_present[e.1 as usize]);
            let fresh = if s % 3 == 1 { 0 } else { edges };
            step_edges = if s % 5 == 4 { Vec::new() } else { step_edges };
            for _ in 0..fresh {
                let (i, j) = (draws.below(nodes), draws.below(nodes.div_ceil(2)));
                if step_present[i] && step_present[j] {
                    step_edges.push((i as u32, j as u32, 0.25 + draws.unit() as f32));
                }
            }
            step_edges.sort_unstable_by_key(|e| (e.0, e.1));
            step_edges.dedup_by_key(|e| (e.0, e.1));
            data.src.extend(step_edges.iter().map(|e| e.0));
            data.dst.extend(step_edges.iter().map(|e| e.1));
            data.weight.iter_mut().for_each(|w| w.extend(step_edges.iter().map(|e| e.2)));
            data.offsets.push(data.src.len());
            present.extend(step_present);
        }
        data.present = some_absent.then_some(present);
        data.validate("drawn").unwrap();
        data
    }

    /// Computes `A + I` of a step by its definition, as a dense matrix `[to, from]`.
    fn dense(data: &Snapshots, step: usize, directed: bool) -> Vec<f64> {
        let v = data.nodes;
        let mut a = vec![0.0f64; v * v];
        for e in data.edges(step) {
            let (i, j) = (data.src[e] as usize, data.dst[e] as usize);
            let w = data.weight.as_ref().map_or(1.0, |w| f64::from(w[e]));
            a[j * v + i] = a[j * v + i].max(w);
            if !directed {
                a[i * v + j] = a[i * v + j].max(w);
            }
        }
        for i in (0..v).filter(|&i| data.has(step, i)) {
            let diagonal = &mut a[i * v + i];
            *diagonal = if *diagonal == 0.0 { 1.0 } else { *diagonal };
        }
        a
    }

    /// Returns the rows of a step as a dense matrix.
    fn expanded(n: &Neighbors, nodes: usize, step: usize) -> Vec<f64> {
        let mut a = vec![0.0; nodes * nodes];
        for i in 0..nodes {
            let (begin, len) = (n.begin[step * nodes + i] as usize, n.len[step * nodes + i] as usize);
            assert!(n.col[begin..begin + len].is_sorted_by(|a, b| a < b), "step {step}, vertex {i}");
            for e in begin..begin + len {
                a[i * nodes + n.col[e] as usize] = n.weight.as_ref().map_or(1.0, |w| f64::from(w[e]));
            }
        }
        a
    }

    #[test]
    fn every_step_matches_the_dense_matrix_of_its_edges_with_self_loops_and_inverse_root_degrees() {
        for (nodes, edges) in [(1, 0), (1, 2), (2, 3), (13, 30), (40, 25)] {
            for (weighted, some_absent, directed) in
                (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
            {
                let data = drawn(nodes, 7, edges, weighted, some_absent);
                let a = Adjacency::from_snapshots(&data, directed).unwrap();
                assert_eq!((a.nodes, a.steps, a.to.is_some()), (nodes, 7, directed));
                for s in 0..7 {
                    let want = dense(&data, s, directed);
                    assert!(expanded(&a.from, nodes, s) == want, "{nodes} vertices, step {s}, {directed}");
                    let to = expanded(a.to.as_ref().unwrap_or(&a.from), nodes, s);
                    for i in 0..nodes {
                        let row = &want[i * nodes..][..nodes];
                        assert!((0..nodes).all(|j| to[j * nodes + i] == row[j]), "the transpose");
                        let (degree, scale) = (row.iter().sum::<f64>(), f64::from(a.scale[s * nodes + i]));
                        let want = if degree > 0.0 { 1.0 / degree.sqrt() } else { 0.0 };
                        assert!((scale - want).abs() <= 6e-8 * want, "{scale} for a degree of {degree}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_is_stored_again_only_if_a_neighbour_or_a_weight_changes() {
        // The second step repeats the first without the edge (2, 3); the third changes a weight.
        let mut data = drawn(4, 3, 0, true, false);
        data.src = vec![0, 2, 0, 0];
        data.dst = vec![1, 3, 1, 1];
        data.weight = Some(vec![2.0, 3.0, 2.0, 4.0]);
        data.offsets = vec![0, 2, 3, 4];
        let a = Adjacency::from_snapshots(&data, false).unwrap();
        let begins = |v: usize| [0, 1, 2].map(|s| a.from.begin[s * 4 + v]);
        for v in 0..4 {
            let [first, second, third] = begins(v);
            assert_eq!((first == second, second == third), (v < 2, v >= 2), "vertex {v}");
        }
        assert_eq!((a.entries(), a.stored()), (8 + 6 + 6, 8 + 2 + 4));
        let both = Adjacency::from_snapshots(&data, true).unwrap();
        assert_eq!((both.entries(), both.stored()), (2 * (6 + 5 + 5), 2 * 6 + (1 + 1) + (2 + 2)));
    }

    #[test]
    fn scaled_by_both_ends_the_adjacency_is_the_normalised_one_of_pytorch_geometric() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/golden/gcn_norm.json")).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let triples =
                |name: &str| -> Vec<(u32, u32, f64)> { serde_json::from_value(case[name].clone()).unwrap() };
            let (edges, nodes) = (triples("edges"), case["nodes"].as_u64().unwrap() as usize);
            let mut data = drawn(nodes, 1, 0, true, false);
            data.offsets[1] = edges.len();
            data.src = edges.iter().map(|e| e.0).collect();
            data.dst = edges.iter().map(|e| e.1).collect();
            data.weight = Some(edges.iter().map(|e| e.2 as f32).collect());
            data.validate("golden").unwrap();
            let a = Adjacency::from_snapshots(&data, case["directed"].as_bool().unwrap()).unwrap();
            let mut found = expanded(&a.from, nodes, 0);
            for (at, value) in found.iter_mut().enumerate() {
                *value *= f64::from(a.scale[at / nodes]) * f64::from(a.scale[at % nodes]);
            }
            for (to, from, want) in triples("rows") {
                let value = std::mem::take(&mut found[to as usize * nodes + from as usize]);
                assert!((value - want).abs() < 2e-7, "{case}: {to}, {from}: {value}");
            }
            assert!(found.iter().all(|&rest| rest == 0.0), "{case}: {found:?}");
        }
    }
}
