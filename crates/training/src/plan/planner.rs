//! The planner of DistTGL: which parallelism for which data and ranks (section 3.2.4).
//!
//! Node memory keeps one mail of a node for each batch, the latest: of several events of a node in one batch,
//! it *captures* one. Larger batches capture fewer. The planner enlarges the batch as long as that loses few
//! of the events that a batch of one rank captures; that gives the ranks of a batch. All others get memory
//! copies, which lose none. In this library every rank keeps the memory with which it trains in any case, so
//! memory copies need no more room than the same ranks would without, and are always preferred to epochs.
use super::Parallel;
use std::ops::Range;
use tgnn::error::{Error, Result};
use tgnn_data::Events;

/// For each node, how many of its events node memory captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedEvents {
    /// Number of events of a batch.
    pub batch: usize,
    /// Captured events of each node.
    pub by_node: Vec<u32>,
}

impl CapturedEvents {
    /// Counts the captured events of `range` in batches of `batch` events.
    ///
    /// ```
    /// use tgnn_data::Events;
    /// use tgnn_training::plan::CapturedEvents;
    /// let events = Events::new("mine", vec![0, 0, 0, 1], vec![2, 2, 3, 3], vec![1, 2, 3, 4])?;
    /// assert_eq!(CapturedEvents::new(&events, 0..4, 1).by_node, [3, 1, 2, 2]); // all of them
    /// assert_eq!(CapturedEvents::new(&events, 0..4, 2).by_node, [2, 1, 1, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the stream has no such events.
    pub fn new(events: &Events, range: Range<usize>, batch: usize) -> Self {
        let batch = batch.max(1);
        let (mut by_node, mut last) = (vec![0; events.nodes], vec![usize::MAX; events.nodes]);
        for (at, e) in range.enumerate() {
            for v in [events.src[e], events.dst[e]].map(|v| v as usize) {
                if last[v] != at / batch {
                    last[v] = at / batch;
                    by_node[v] += 1;
                }
            }
        }
        CapturedEvents { batch, by_node }
    }
    /// Returns the number of captured events of the busiest hundredth of the nodes, those with the most
    /// events according to `all`.
    pub fn of_busiest(&self, all: &CapturedEvents) -> u64 {
        let mut order: Vec<usize> = (0..all.by_node.len()).filter(|&v| all.by_node[v] > 0).collect();
        order.sort_by_key(|&v| std::cmp::Reverse(all.by_node[v]));
        let busiest = order.iter().take(order.len().div_ceil(100));
        busiest.map(|&v| u64::from(self.by_node[v])).sum()
    }
    /// Returns the number of captured events of all nodes.
    pub fn total(&self) -> u64 {
        self.by_node.iter().map(|&n| u64::from(n)).sum()
    }
}

/// What the planner chooses, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerChoice {
    /// The choice.
    pub parallel: Parallel,
    /// Events of a batch, which `parallel.mini_batch` ranks share.
    pub batch: usize,
    /// Reasons for the three numbers, a line each.
    pub reasons: [String; 3],
}

/// What the planner goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerOptions {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of ranks of a computer. The ranks of a batch are on one.
    pub ranks_of_node: usize,
    /// Events of a batch that one rank trains by itself.
    pub batch: usize,
    /// Largest fraction that may be lost of the events that a batch of one rank captures.
    pub lost: f64,
    /// The same, of the events of the busiest hundredth of the nodes, which lose most.
    pub lost_by_busiest: f64,
    /// Bytes of a copy of the node memory.
    pub copy_bytes: usize,
}

/// Chooses for the training events `range`.
///
/// # Errors
/// `Usage` if there are no ranks, or if the fraction is not from 0 to 1.
pub fn plan_parallel(events: &Events, range: Range<usize>, options: PlannerOptions) -> Result<PlannerChoice> {
    let PlannerOptions { ranks, ranks_of_node, batch, lost, lost_by_busiest, copy_bytes } = options;
    if ranks == 0 || ![lost, lost_by_busiest].iter().all(|lost| (0.0..=1.0).contains(lost)) {
        let lost = if ranks == 0 || !(0.0..=1.0).contains(&lost) { lost } else { lost_by_busiest };
        let what = format!("{ranks} ranks may lose {lost} of the events");
        return Err(Error::usage(what).remedy("give 1 rank or more, and a fraction from 0 to 1"));
    }
    let (all, base) =
        (CapturedEvents::new(events, range.clone(), 1), CapturedEvents::new(events, range.clone(), batch));
    let busiest = base.of_busiest(&all);
    let lost_by = |i: usize| {
        let captured = CapturedEvents::new(events, range.clone(), i.saturating_mul(batch));
        let fraction = |captured: u64, base: u64| 1.0 - captured as f64 / base.max(1) as f64;
        [fraction(captured.total(), base.total()), fraction(captured.of_busiest(&all), busiest)]
    };
    let divides = |i: &usize| ranks.is_multiple_of(*i) && ranks_of_node.max(1).is_multiple_of(*i);
    let (mut mini_batch, mut lost_here, mut beyond) = (1, [0.0; 2], None);
    for i in (2..=ranks).filter(divides) {
        let loses = lost_by(i);
        if loses[0] > lost || loses[1] > lost_by_busiest {
            beyond = Some((i, loses));
            break;
        }
        (mini_batch, lost_here) = (i, loses);
    }
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    let beyond = match beyond {
        Some((i, [loses, _])) if loses > lost => {
            format!("; batches of {} lose {}, more than {}", i * batch, percent(loses), percent(lost))
        }
        Some((i, [_, loses])) => format!(
            "; the busiest hundredth of the nodes loses {} to batches of {}, more than {}",
            percent(loses),
            i * batch,
            percent(lost_by_busiest)
        ),
        None => String::new(),
    };
    let memory = ranks / mini_batch;
    let reasons = [
        format!(
            "i = {mini_batch}: batches of {} lose {} of the events that node memory captures of {batch}{beyond}",
            mini_batch * batch,
            percent(lost_here[0])
        ),
        "j = 1: memory copies come first, because they learn more from the same steps".to_owned(),
        format!(
            "k = {memory}: the ranks that are left; each keeps the memory it trains with in any case, {} MB",
            (copy_bytes as f64 / 1e6).ceil()
        ),
    ];
    let parallel = Parallel { mini_batch, epoch: 1, memory };
    Ok(PlannerChoice { parallel, batch: mini_batch * batch, reasons })
}
