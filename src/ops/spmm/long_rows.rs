//! Which rows of an adjacency are long, and the slices that they are cut into: a plan, made once with the tables.
//!
//! A group of lanes works on a short row, a block on a slice of a long one; on the host, a thread on runs of rows and on single
//! slices. Slices depend on the adjacency alone, and their sums are added in order: results do not depend on who is done first.

/// Most neighbours of a slice.
pub const SLICE: usize = 1024;
/// Groups of lanes that a large device keeps busy at a time, about: 8 blocks of 16 groups on each of 132 multiprocessors.
const GROUPS: usize = 1 << 14;

/// Where the slices of each step are, and what each is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LongRows {
    /// `[t + 1]`: where the slices of each step begin, and where those of the last end.
    pub first: Vec<u32>,
    /// `[n, 4]`: of each slice the vertex, its place among the vertex's slices, how many these are, and the vertex's place among
    /// the long rows of the step.
    pub slices: Vec<u32>,
    /// What room a step needs.
    pub most: Most,
}

/// The most that any step has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// A row is long that has more neighbours than these.
    pub short: usize,
    /// Slices.
    pub slices: usize,
    /// Long rows.
    pub rows: usize,
    /// Neighbours.
    pub neighbors: usize,
}

impl LongRows {
    /// The long rows among those of `vertices` a step, of which each has `len` neighbours.
    ///
    /// A row is long where a group would still work on it when all groups could have shared out the step's neighbours.
    pub fn of(len: &[u32], vertices: usize) -> Self {
        let steps = || len.chunks(vertices.max(1));
        let neighbors = |len: &[u32]| len.iter().map(|&n| n as usize).sum::<usize>();
        let neighbors = steps().map(neighbors).max().unwrap_or(0);
        let short = (neighbors / GROUPS).clamp(32, SLICE);
        let mut plan = LongRows {
            first: vec![0],
            most: Most { short, neighbors, ..Most::default() },
            ..Self::default()
        };
        for step in steps() {
            let (mut rows, before) = (0, plan.slices.len() / 4);
            for (vertex, &n) in step.iter().enumerate().filter(|(_, n)| **n as usize > short) {
                let slices = (n as usize).div_ceil(SLICE) as u32;
                for place in 0..slices {
                    plan.slices.extend([vertex as u32, place, slices, rows]);
                }
                rows += 1;
            }
            let all = plan.slices.len() / 4;
            plan.first.push(all as u32);
            plan.most.slices = plan.most.slices.max(all - before);
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
        let plan = LongRows::of(&[32, 33, 2048, 0, 5000, 1], 3);
        assert_eq!(plan.first, [0, 3, 8]);
        let slices: Vec<&[u32]> = plan.slices.chunks_exact(4).collect();
        assert_eq!(slices[..3], [[1, 0, 1, 0], [2, 0, 2, 1], [2, 1, 2, 1]]);
        assert!(slices[3..].iter().enumerate().all(|(i, s)| **s == [1, i as u32, 5, 0]));
        assert_eq!(plan.most, Most { short: 32, slices: 5, rows: 2, neighbors: 5001 });
    }

    #[test]
    fn rows_are_long_only_beyond_the_share_of_a_group() {
        let plan = LongRows::of(&[100; 1 << 15], 1 << 15);
        assert_eq!((plan.most.short, plan.first), (200, vec![0, 0]));
        assert_eq!(LongRows::of(&[], 0).first, [0]);
    }
}
