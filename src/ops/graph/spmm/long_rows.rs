//! A plan of the long rows of an adjacency and of the slices into which they are split, computed once with
//! the tables.
//!
//! On a device, a group of threads sums a short row, and a block sums a slice of a long one. On the host, a
//! task is a range of rows or a single slice. Slices depend on the adjacency alone, and their sums are added
//! in order, so results do not depend on which slice is finished first.

/// Maximum number of neighbours of a slice.
pub const SLICE: usize = 1024;
/// Approximate number of thread groups that a large device runs at a time: 8 blocks of 16 groups on each of
/// 132 multiprocessors.
const GROUPS: usize = 1 << 14;

/// The slices of the long rows of each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LongRows {
    /// `[t + 1]`: index of the first slice of each step; the last element is the number of slices.
    pub first: Vec<u32>,
    /// `[n, 4]`: for each slice the vertex, the index of the slice among those of the vertex, their number,
    /// and the index of the vertex among the long rows of the step.
    pub slices: Vec<u32>,
    /// Capacity that a step needs.
    pub most: Most,
}

/// Threshold of long rows, and maximum counts over all steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Maximum number of neighbours of a short row; rows with more are long.
    pub short: usize,
    /// Maximum number of slices of a step.
    pub slices: usize,
    /// Maximum number of long rows of a step.
    pub rows: usize,
    /// Maximum number of neighbours, over all rows of a step.
    pub neighbors: usize,
}

impl LongRows {
    /// Plans the long rows of an adjacency with `vertices` rows a step; `len` holds the number of neighbours
    /// of each row.
    ///
    /// A row is long if it has more neighbours than each group would get if those of the largest step were
    /// divided evenly among `GROUPS` groups. The threshold is at least 32 and at most `SLICE`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::spmm::LongRows;
    /// // One step of three vertices. A row with more than 32 neighbours is long; a slice has 1024.
    /// let plan = LongRows::new(&[32, 2048, 0], 3);
    /// assert_eq!((plan.most.short, plan.most.rows, plan.most.slices), (32, 1, 2));
    /// assert_eq!(plan.first, [0, 2]);
    /// assert_eq!(plan.slices, [1, 0, 2, 0, 1, 1, 2, 0]); // slices 0 and 1 of 2 of vertex 1
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn new(len: &[u32], vertices: usize) -> Self {
        let steps = || len.chunks(vertices.max(1));
        let count_neighbors = |len: &[u32]| len.iter().map(|&n| n as usize).sum::<usize>();
        let neighbors = steps().map(count_neighbors).max().unwrap_or(0);
        let short = (neighbors / GROUPS).clamp(32, SLICE);
        let mut plan = LongRows {
            first: vec![0],
            most: Most { short, neighbors, ..Most::default() },
            ..Self::default()
        };
        for step in steps() {
            let (mut rows, first) = (0, plan.slices.len() / 4);
            for (vertex, &n) in step.iter().enumerate().filter(|(_, n)| **n as usize > short) {
                let slices = (n as usize).div_ceil(SLICE) as u32;
                for index in 0..slices {
                    plan.slices.extend([vertex as u32, index, slices, rows]);
                }
                rows += 1;
            }
            let end = plan.slices.len() / 4;
            plan.first.push(end as u32);
            plan.most.slices = plan.most.slices.max(end - first);
            plan.most.rows = plan.most.rows.max(rows as usize);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_neighbor_of_a_long_row_is_in_one_slice_of_its_step() {
        // Two steps of three vertices.
        let plan = LongRows::new(&[32, 33, 2048, 0, 5000, 1], 3);
        assert_eq!(plan.first, [0, 3, 8]);
        let slices: Vec<&[u32]> = plan.slices.chunks_exact(4).collect();
        assert_eq!(slices[..3], [[1, 0, 1, 0], [2, 0, 2, 1], [2, 1, 2, 1]]);
        assert!(slices[3..].iter().enumerate().all(|(i, s)| **s == [1, i as u32, 5, 0]));
        assert_eq!(plan.most, Most { short: 32, slices: 5, rows: 2, neighbors: 5001 });
    }

    #[test]
    fn a_row_is_long_only_if_it_exceeds_an_even_split_over_the_groups() {
        let plan = LongRows::new(&[100; 1 << 15], 1 << 15);
        assert_eq!((plan.most.short, plan.first), (200, vec![0, 0]));
        assert_eq!(LongRows::new(&[], 0).first, [0]);
    }
}
