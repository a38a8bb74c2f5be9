//! Lanes: where the nodes of a step run. A lane is a CUDA stream on a device, a thread with its team on the
//! CPU.
use super::stages::Stage;
use serde::{Deserialize, Serialize};

/// Number of lanes of a device.
pub const LANES: usize = 2;

/// Maximum prefetch depth. Every step of depth takes the memory of the stage's values once more.
pub const MAX_PREFETCH_DEPTH: usize = 8;

/// The lane and the prefetch depth of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// The lane, from 0.
    pub lane: usize,
    /// Prefetch depth, in steps: the stage runs this many steps before the stages of its lane that have depth
    /// 0, and may run this many steps before the other lane.
    pub prefetch_depth: usize,
}

/// How the nodes of a program are placed on lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// All nodes on the first lane.
    #[default]
    One,
    /// By stage, in the order of [`Stage::ALL`].
    Stages([Placement; Stage::ALL.len()]),
    /// By [section](crate::ops::Section): the first few sections, forward and backward, on the first lane,
    /// the others on the second. With the snapshots of a group as sections this is BLAD's two-lane split
    /// (section 5.2): the state passes from the first lane to the second, its gradient back.
    Sections {
        /// Number of sections on the first lane.
        first: usize,
        /// Whether the first lane starts the forward pass of the next step before the backward pass of the
        /// current one. Allowed if no parameter changes in between.
        pipelined: bool,
    },
}

impl Lanes {
    /// Prefetches with depth 1 on the second lane: everything that prepares a step and depends on nothing
    /// that steps compute (cursor, negatives, sampling, unique nodes, gathers of features) runs while the
    /// first lane computes the step before.
    pub const PREFETCH: Lanes = {
        let mut placements = [Placement { lane: 0, prefetch_depth: 0 }; Stage::ALL.len()];
        placements[Stage::Sample as usize] = Placement { lane: 1, prefetch_depth: 1 };
        placements[Stage::Route as usize] = Placement { lane: 1, prefetch_depth: 1 };
        placements[Stage::FetchFeatures as usize] = Placement { lane: 1, prefetch_depth: 1 };
        Lanes::Stages(placements)
    };

    /// Returns the buffer depth of each lane: the number of steps whose values it holds at the same time.
    pub(crate) fn buffer_depth(self) -> [usize; LANES] {
        match self {
            Lanes::One => [1; LANES],
            Lanes::Stages(placements) => std::array::from_fn(|lane| {
                let depths = placements.iter().filter(|p| p.lane == lane).map(|p| p.prefetch_depth);
                1 + depths.max().unwrap_or(0)
            }),
            Lanes::Sections { pipelined, .. } => [1 + usize::from(pipelined); LANES],
        }
    }
    /// Returns the number of the `threads` that the second lane gets: one if it only prefetches, else half.
    pub(super) fn second_threads(self, threads: usize) -> usize {
        let prefetches = |(stage, placement): (&Stage, &Placement)| {
            placement.lane == 0 || matches!(stage, Stage::Sample | Stage::Route | Stage::FetchFeatures)
        };
        match self {
            Lanes::Stages(placements) if Stage::ALL.iter().zip(&placements).all(prefetches) => 1,
            _ => (threads / 2).max(1),
        }
    }
}

/// Returns the number of runs after which the buffers of both lanes repeat: the least common multiple of
/// their depths.
pub(super) fn cycle([first, second]: [usize; LANES]) -> usize {
    (1..=second).map(|times| times * first).find(|runs| runs.is_multiple_of(second)).unwrap_or(1)
}
