//! Lanes: where the nodes of a step run. A lane is a CUDA stream on a device, a thread with its team on the
//! CPU. A step has as many lanes as its nodes are on; another lane costs nothing.
use super::{stages::Stage, staleness::Staleness};
use crate::runtime::changes::{Change, Changes};
use serde::{Deserialize, Serialize};

/// Maximum number of lanes of a device.
pub const MAX_LANES: usize = 8;

/// Maximum prefetch depth. Every step of depth takes the memory of the stage's values once more.
pub const MAX_PREFETCH_DEPTH: usize = 8;

/// The lane and the prefetch depth of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// The lane, from 0.
    pub lane: usize,
    /// Prefetch depth, in steps: the stage runs this many steps before the stages of its lane that have depth
    /// 0, and may run this many steps before the other lanes.
    pub prefetch_depth: usize,
}

/// The order of a lane's nodes within a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// That of the program, with prefetched nodes first.
    #[default]
    Program,
    /// By the longest path of a node to the end of the next step, by rough times of ops on a device. Nodes of
    /// lanes on which nothing is prefetched run on any of these lanes. Steps over ranks keep the program's
    /// order.
    LongestPath,
}

impl Order {
    /// Returns the order of the plan `overlap`: by the longest path, unless `TGNN_BEFORE` switches it back.
    #[doc(hidden)]
    pub fn of_overlap() -> Self {
        match Changes::of_environment() {
            Ok(changes) if !changes.has(Change::Order) => Order::Program,
            // Opening a device refuses an unknown name.
            _ => Order::LongestPath,
        }
    }
    /// Whether the plan `overlap` fetches node memory during the step before, unless `TGNN_BEFORE` switches
    /// it back.
    #[doc(hidden)]
    pub fn fetches_ahead() -> bool {
        Changes::of_environment().is_ok_and(|changes| changes.has(Change::Ahead))
    }
}

/// How the nodes of a program are placed on lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // a program has one
pub enum Lanes {
    /// All nodes on the first lane.
    #[default]
    One,
    /// By stage.
    Stages {
        /// Placements, in the order of [`Stage::ALL`].
        placements: [Placement; Stage::ALL.len()],
        /// How old the state is that a step reads. What reads it is prefetched as much deeper.
        staleness: Staleness,
        /// Steps by which a lane may be ahead of the one that computes embeddings.
        ahead: usize,
        /// The order of each lane's nodes. Steps that read older state keep that of the program.
        order: Order,
    },
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
    /// Returns how old the state is that a step reads.
    pub fn staleness(self) -> Staleness {
        match self {
            Lanes::Stages { staleness, .. } => staleness,
            _ => Staleness::NONE,
        }
    }
    /// Returns the same lanes for steps that read node memory that is older by `memory` steps.
    #[must_use]
    pub fn with_memory_of(self, memory: usize) -> Self {
        match self {
            Lanes::Stages { placements, staleness, ahead, order } => {
                Lanes::Stages { placements, staleness: Staleness { memory, ..staleness }, ahead, order }
            }
            lanes => lanes,
        }
    }
    /// Returns the same lanes for steps that read the state as the step before left it.
    #[must_use]
    pub fn fresh(self) -> Self {
        match self {
            Lanes::Stages { placements, order, .. } => {
                Lanes::Stages { placements, staleness: Staleness::NONE, ahead: 0, order }
            }
            lanes => lanes,
        }
    }
    /// Prefetches with depth 1 on the second lane: everything that prepares a step and depends on nothing
    /// that steps compute (cursor, negatives, sampling, unique nodes, gathers of features) runs while the
    /// first lane computes the step before.
    pub const PREFETCH: Lanes = {
        let mut placements = [Placement { lane: 0, prefetch_depth: 0 }; Stage::ALL.len()];
        placements[Stage::Sample as usize] = Placement { lane: 1, prefetch_depth: 1 };
        placements[Stage::Route as usize] = Placement { lane: 1, prefetch_depth: 1 };
        placements[Stage::FetchFeatures as usize] = Placement { lane: 1, prefetch_depth: 1 };
        Lanes::Stages { placements, staleness: Staleness::NONE, ahead: 0, order: Order::Program }
    };

    /// Returns the buffer depth of each lane: the number of steps whose values it holds at the same time, if
    /// no stage of another lane needs more.
    #[doc(hidden)]
    pub fn buffer_depth(self) -> [usize; MAX_LANES] {
        match self {
            Lanes::One => [1; MAX_LANES],
            Lanes::Stages { placements, staleness, ahead, .. } => std::array::from_fn(|lane| {
                let of_lane = Stage::ALL.iter().zip(placements).filter(|(_, p)| p.lane == lane);
                let depths = of_lane.map(|(&stage, p)| {
                    p.prefetch_depth + if stage <= Stage::FetchMemory { staleness.memory } else { 0 }
                });
                let ahead = if lane == placements[Stage::Embed as usize].lane { 0 } else { ahead };
                1 + ahead + depths.max().unwrap_or(0)
            }),
            Lanes::Sections { pipelined, .. } => [1 + usize::from(pipelined); MAX_LANES],
        }
    }
}

/// The work of a lane, which decides its share of the CPU's threads. The work of several nodes is the
/// greatest of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneWork {
    /// Exchanges values with other ranks, and mostly waits.
    Communicates,
    /// Prepares steps, or copies rows.
    Copies,
    Computes,
}

/// Returns the lanes that each thread takes, given the lanes in use and the number of threads that compute.
/// The first lane has a thread of its own, and so have those that `wait` for other ranks inside their ops. If
/// there are more other lanes than threads are left, several share one.
pub(super) fn lanes_of_threads(
    in_use: &[(usize, LaneWork)],
    threads: usize,
    wait: impl Fn(usize) -> bool,
) -> Vec<(Vec<usize>, LaneWork)> {
    let (alone, others): (Vec<_>, Vec<_>) =
        in_use.iter().copied().partition(|&(lane, _)| lane == 0 || wait(lane));
    let left = threads.saturating_sub(1).max(1);
    let shared = others.chunks(others.len().div_ceil(left).max(1)).map(|lanes| {
        let work = lanes.iter().map(|&(_, work)| work).max().unwrap_or(LaneWork::Copies);
        (lanes.iter().map(|&(lane, _)| lane).collect(), work)
    });
    let mut all: Vec<(Vec<usize>, LaneWork)> =
        alone.into_iter().map(|(lane, work)| (vec![lane], work)).chain(shared).collect();
    all.sort_by_key(|(lanes, _)| lanes[0]);
    all
}

/// Divides `threads` threads among lanes. A lane that copies gets one, those that compute share the rest,
/// each at least one. A lane that only communicates has no share: its thread needs no core of its own.
pub(super) fn thread_shares(work: &[LaneWork], threads: usize) -> Vec<usize> {
    let count = |of: LaneWork| work.iter().filter(|&&work| work == of).count();
    let (computing, rest) = (count(LaneWork::Computes), threads.saturating_sub(count(LaneWork::Copies)));
    let mut before = 0;
    let share = |work: &LaneWork| match work {
        LaneWork::Communicates => 0,
        LaneWork::Copies => 1,
        LaneWork::Computes => {
            before += 1;
            // The first lanes get what is left over.
            ((rest + computing - before) / computing).max(1)
        }
    };
    work.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        LaneWork::{Communicates, Computes, Copies},
        lanes_of_threads, thread_shares,
    };

    #[test]
    fn lanes_share_a_thread_if_there_are_more_of_them_than_threads() {
        let in_use = [(0, Computes), (1, Copies), (2, Computes), (4, Communicates), (5, Copies)];
        let lanes = |threads| {
            let of_threads = lanes_of_threads(&in_use, threads, |lane| lane == 4).into_iter();
            of_threads.map(|(lanes, work)| (lanes, work == Computes)).collect::<Vec<_>>()
        };
        let alone = |lane| (vec![lane], lane == 0 || lane == 2);
        assert_eq!(lanes(4), [alone(0), alone(1), alone(2), alone(4), alone(5)]);
        assert_eq!(lanes(3), [alone(0), (vec![1, 2], true), alone(4), alone(5)]);
        for threads in [1, 2] {
            assert_eq!(lanes(threads), [alone(0), (vec![1, 2, 5], true), alone(4)]);
        }
        assert_eq!(lanes_of_threads(&in_use[..1], 1, |_| true).len(), 1);
        assert_eq!(lanes_of_threads(&in_use, 1, |_| true).len(), 5);
    }

    #[test]
    fn lanes_that_compute_share_the_threads_that_prefetching_leaves_and_communication_takes_none() {
        assert_eq!(thread_shares(&[Computes, Copies], 8), [7, 1]);
        assert_eq!(thread_shares(&[Computes, Computes], 7), [4, 3]);
        assert_eq!(thread_shares(&[Computes, Copies, Communicates, Computes], 8), [4, 1, 0, 3]);
        assert_eq!(thread_shares(&[Computes, Computes, Computes, Copies], 2), [1, 1, 1, 1]);
        assert_eq!(thread_shares(&[Copies, Computes], 1), [1, 1]);
    }
}
