//! The least staleness of node memory with which no training stage waits (MSPipe, section 3.2).
//!
//! A step has five stages: sampling, features, node memory, training, and the write of node memory. Each
//! stage of a step follows the stage before, and the same stage of the step before; features and memory share
//! a link, so features also wait for the memory of the step before (equations 3 and 4). With staleness k, the
//! memory of step i follows the write of step i - 1 - k, too. The least k of each step is that with which
//!
//! - the memory is there when training could begin if it depended on no write (constraints C1 and C2), and
//! - at most half of its rows are out of date (C3).
//!
//! A fetch that could begin earlier waits for the newest memory that costs no training time: so is it delayed
//! into the bubble between its features and its training.
//!
//! MSPipe's released code has no such search: its stages take locks in turn, and a fetch reads what is there.
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::comm::Ranks,
};
use tgnn_data::Events;

/// Maximum of each kind of staleness, in steps.
pub const MAX_STALENESS: usize = 8;
/// The most rows of a fetch that may be out of date, as a share of them: constraint C3.
const MOST_STALE: f64 = 0.5;

/// Steps in which a fetch that ends later may keep training waiting.
const HORIZON: usize = 32;

/// The staleness of node memory, as a plan gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "staleness.memory is a number of steps, 0 to 8, or \"minimal\"")]
#[non_exhaustive]
pub enum MemoryStaleness {
    /// This number of steps.
    Steps(usize),
    /// A number given by a rule.
    Rule(StalenessRule),
}

/// A rule for the staleness of node memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StalenessRule {
    /// In each step the [least](least_staleness) with which training does not wait, by the times of recent
    /// steps.
    Minimal,
}

impl MemoryStaleness {
    /// Returns the most steps.
    pub fn most(self) -> usize {
        match self {
            MemoryStaleness::Steps(steps) => steps,
            MemoryStaleness::Rule(StalenessRule::Minimal) => MAX_STALENESS,
        }
    }
}

impl Default for MemoryStaleness {
    fn default() -> Self {
        MemoryStaleness::Steps(0)
    }
}

/// What is done about node memory that is not up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mitigation {
    /// Nothing.
    #[default]
    None,
    /// The memory of nodes that had no event for longer than 99 % of the gaps between a node's events is
    /// mixed with that of similar nodes that had (MSPipe-S, section 3.3): 0.95 of its own, and 0.05 of the
    /// mean. Over one rank only.
    Similar,
}

/// The stages of a step, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Sampling, and all else that depends on the data alone.
    pub sample: f64,
    /// Gathers and copies of features.
    pub features: f64,
    /// Gathers and copies of node memory, and their dispatch between ranks.
    pub memory: f64,
    /// The update of node memory, the model, its backward pass and the optimiser.
    pub train: f64,
    /// The write of node memory, and its aggregation between ranks.
    pub write: f64,
}

impl StageSeconds {
    /// Returns the stages of which each takes as long as on the slowest rank. Collective.
    ///
    /// # Errors
    /// `Comm`.
    pub fn of_slowest(self, ranks: &Ranks) -> Result<Self> {
        let own = [self.sample, self.features, self.memory, self.train, self.write];
        let all = ranks.gathered(bytemuck::cast_slice(&own))?.into_iter().filter_map(|bytes| {
            let of_rank: Vec<f64> = bytemuck::pod_collect_to_vec(&bytes);
            let [sample, features, memory, train, write] = of_rank.try_into().ok()?;
            Some(StageSeconds { sample, features, memory, train, write })
        });
        Ok(all.fold(self, StageSeconds::slowest))
    }
    /// Returns the stages of which each takes as long as the longer of two.
    #[must_use]
    pub fn slowest(self, other: Self) -> Self {
        StageSeconds {
            sample: self.sample.max(other.sample),
            features: self.features.max(other.features),
            memory: self.memory.max(other.memory),
            train: self.train.max(other.train),
            write: self.write.max(other.write),
        }
    }
}

/// When the stages of a step end, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageEnds {
    /// Sampling.
    pub sample: f64,
    /// Features.
    pub features: f64,
    /// Node memory.
    pub memory: f64,
    /// When training begins.
    pub trains: f64,
    /// Training.
    pub train: f64,
    /// The write of node memory.
    pub write: f64,
}

impl StageEnds {
    /// Returns the ends of the next step (equations 3 and 4), if its memory also waits until `fresh`.
    fn next(&self, step: &StageSeconds, fresh: f64) -> Self {
        let sample = self.sample + step.sample;
        let features = sample.max(self.memory) + step.features;
        let memory = features.max(fresh) + step.memory;
        let trains = memory.max(self.train);
        let train = trains + step.train;
        StageEnds { sample, features, memory, trains, train, write: train.max(self.write) + step.write }
    }
}

/// Returns when the stages of each step end, with the given staleness of node memory; `None` if memory
/// depends on no write.
///
/// ```
/// use tgnn_training::plan::{StageSeconds, stage_ends};
/// let step = StageSeconds { memory: 1.0, train: 4.0, write: 2.0, ..StageSeconds::default() };
/// let ends = |staleness| stage_ends(&[step; 3], Some(&[staleness; 3])).last().unwrap().train;
/// assert_eq!([ends(0), ends(1), ends(2)], [19.0, 13.0, 13.0]); // training never waits with one step
/// ```
pub fn stage_ends(steps: &[StageSeconds], staleness: Option<&[usize]>) -> Vec<StageEnds> {
    let mut ends: Vec<StageEnds> = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let version = staleness.and_then(|staleness| at.checked_sub(1 + staleness[at]));
        let fresh = version.map_or(0.0, |version| ends[version].write);
        let before = ends.last().copied().unwrap_or_default();
        ends.push(before.next(step, fresh));
    }
    ends
}

/// Returns the seconds in which training waits, from its first step to its last.
pub fn training_idle(steps: &[StageSeconds], ends: &[StageEnds]) -> f64 {
    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return 0.0 };
    last.train - first.trains - steps.iter().map(|step| step.train).sum::<f64>()
}

/// Returns the least staleness of each step with which training does not wait, but at most `most`.
///
/// ```
/// use tgnn_training::plan::{StageSeconds, least_staleness};
/// let step = StageSeconds { memory: 1.0, train: 4.0, write: 2.0, ..StageSeconds::default() };
/// assert_eq!(least_staleness(&[step; 5], 8), [0, 1, 1, 1, 1]);
/// assert_eq!(least_staleness(&[step; 5], 0), [0; 5]);
/// ```
pub fn least_staleness(steps: &[StageSeconds], most: usize) -> Vec<usize> {
    let (mut ends, mut found): (Vec<StageEnds>, Vec<usize>) = (Vec::new(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        let before = ends.last().copied().unwrap_or_default();
        let fresh = |staleness: usize| at.checked_sub(1 + staleness).map_or(0.0, |of| ends[of].write);
        let most = most.min(at);
        // A later fetch also keeps the features of the next steps waiting.
        let later = &steps[at..steps.len().min(at + HORIZON)];
        let trains = |staleness: usize| {
            let mut end = before;
            let mut fresh = fresh(staleness);
            let next = later.iter().map(move |step| {
                end = end.next(step, fresh);
                fresh = 0.0;
                end.trains
            });
            next.collect::<Vec<_>>()
        };
        let want = trains(most);
        let staleness = (0..most).find(|&staleness| trains(staleness) == want).unwrap_or(most);
        ends.push(before.next(step, fresh(staleness)));
        found.push(staleness);
    }
    found
}

/// How a run chose the staleness of node memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StalenessChoice {
    /// The most steps that C3 allows.
    pub most: usize,
    /// For each staleness from 1 on, the share of the rows of a fetch that it leaves out of date.
    pub stale_rows: Vec<f64>,
    /// For each staleness from 0 on, the number of training steps that had it.
    pub steps: Vec<usize>,
    /// The seconds of the stages, as the last steps that were timed took them.
    pub seconds: StageSeconds,
}

impl StalenessChoice {
    /// Returns what is known before the first step: the shares of rows that are out of date, and the most
    /// steps that C3 allows.
    pub fn new(stale_rows: Vec<f64>) -> Self {
        let most = stale_rows.iter().take_while(|&&share| share <= MOST_STALE).count();
        StalenessChoice { most, stale_rows, ..StalenessChoice::default() }
    }
    /// Counts steps with this staleness.
    pub fn count(&mut self, staleness: &[usize]) {
        for &steps in staleness {
            self.steps.resize(self.steps.len().max(steps + 1), 0);
            self.steps[steps] += 1;
        }
    }
}

/// One line for the user.
impl fmt::Display for StalenessChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.steps.iter().sum::<usize>().max(1) as f64;
        let of_steps = self.steps.iter().enumerate().filter(|(_, steps)| **steps > 0);
        let share = |(k, &steps): (usize, &usize)| format!("{k} in {:.0} %", 100.0 * steps as f64 / total);
        let shares: Vec<String> = of_steps.map(share).collect();
        match shares.is_empty() {
            true => write!(f, "staleness of node memory found while training, at most {}", self.most)?,
            false => write!(
                f,
                "staleness of node memory {} of the steps, at most {}",
                shares.join(", "),
                self.most
            )?,
        }
        match self.stale_rows.get(self.most) {
            Some(share) => write!(f, ": one more would leave {:.0} % of the rows out of date", 100.0 * share),
            None => Ok(()),
        }
    }
}

/// Returns, for each staleness from 1 to [`MAX_STALENESS`], the share of the rows of a fetch that it leaves
/// out of date, over at most `batches` batches of the events in `part` at equal distances. `needed` lists the
/// nodes whose rows a batch fetches, each once; a batch writes the rows of its sources and destinations.
///
/// # Errors
/// `Data` if the part is not one of the events'.
pub fn stale_rows(
    events: &Events,
    part: Range<usize>,
    batch: usize,
    batches: usize,
    mut needed: impl FnMut(Range<usize>) -> Vec<u32>,
) -> Result<Vec<f64>> {
    if part.start > part.end || part.end > events.len() {
        let what = format!("part {part:?} of {} events", events.len());
        return Err(Error::new(ErrorKind::Data, what));
    }
    let (batch, mut written) = (batch.max(1), vec![(0, 0); events.nodes]);
    let all = part.len() / batch;
    let range = |nth: usize| part.start + nth * batch..part.start + (nth + 1) * batch;
    let (mut stale, mut fetched) = ([0usize; MAX_STALENESS], 0);
    let later = all.saturating_sub(MAX_STALENESS);
    for nth in (0..later.min(batches)).map(|i| MAX_STALENESS + i * later / later.min(batches)) {
        // The latest batch before this one that has written each row: the last to be visited.
        for back in (1..=MAX_STALENESS).rev() {
            for event in range(nth - back) {
                for node in [events.src[event], events.dst[event]] {
                    written[node as usize] = (nth, back);
                }
            }
        }
        for node in needed(range(nth)) {
            fetched += 1;
            // A row that was written `back` steps before is missed with a staleness of that many steps.
            if let (of, back @ 1..) = written[node as usize]
                && of == nth
            {
                stale[back - 1..].iter_mut().for_each(|rows| *rows += 1);
            }
        }
    }
    Ok(stale.map(|rows| rows as f64 / f64::max(fetched as f64, 1.0)).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::runtime::philox::Key;

    /// Draws the stages of steps, some of which are much longer than others.
    fn drawn(seed: u32, steps: usize) -> Vec<StageSeconds> {
        let key = Key::new(11, 4, [seed, 0]);
        let scales = key.draw(1 << 40).map(|u| 1.0 + (u % 7) as f64);
        let step = |at: usize| {
            let [a, b] = [2 * at as u64, 2 * at as u64 + 1].map(|i| key.draw(i));
            let seconds = |u: u32, scale: f64| (1 + u % 8) as f64 * scale / 4.0;
            let [sample, features, memory, train] = [0, 1, 2, 3].map(|i| seconds(a[i], scales[i]));
            StageSeconds { sample, features, memory, train, write: seconds(b[0], scales[1]) }
        };
        (0..steps).map(step).collect()
    }

    fn trains(ends: &[StageEnds]) -> Vec<f64> {
        ends.iter().map(|ends| ends.trains).collect()
    }

    #[test]
    fn no_training_waits_and_one_step_less_anywhere_makes_one_wait_as_does_a_smaller_constant() {
        let mut used = [0; 32];
        for seed in 0..400 {
            let steps = drawn(seed, 12);
            let (free, least) = (stage_ends(&steps, None), least_staleness(&steps, 12));
            assert_eq!(trains(&stage_ends(&steps, Some(&least))), trains(&free), "{steps:?}");
            for at in (0..steps.len()).filter(|&at| least[at] > 0) {
                let mut less = least.clone();
                less[at] -= 1;
                assert_ne!(trains(&stage_ends(&steps, Some(&less))), trains(&free), "step {at} of {steps:?}");
            }
            // By brute force over all numbers of steps.
            let waits = |k: usize| {
                let constant: Vec<usize> = (0..steps.len()).map(|at| k.min(at)).collect();
                trains(&stage_ends(&steps, Some(&constant))) != trains(&free)
            };
            let constant = (0..12).find(|&k| !waits(k)).unwrap_or(12);
            assert!(least.iter().all(|&k| k <= constant), "{least:?}, want at most {constant}");
            used[constant] += 1;
        }
        assert!(used[1..4].iter().all(|&times| times > 10), "{used:?}");
    }

    #[test]
    fn training_idles_less_with_each_step_of_staleness_until_it_does_not_wait() {
        for seed in 0..200 {
            let steps = drawn(seed, 40);
            let idle = |k: usize| training_idle(&steps, &stage_ends(&steps, Some(&[k; 40])));
            let free = training_idle(&steps, &stage_ends(&steps, None));
            for k in 1..8 {
                let (less, more) = (idle(k - 1), idle(k));
                assert!(more < less || (more - free).abs() < 1e-9 && more <= less, "{k}: {less} to {more}");
            }
            // A bound is kept, at the cost of waiting.
            for most in 0..4 {
                let least = least_staleness(&steps, most);
                assert!(least.iter().all(|&k| k <= most));
                assert!(least.windows(2).all(|w| w[1] <= w[0] + 1), "{least:?}");
                assert!(training_idle(&steps, &stage_ends(&steps, Some(&least))) <= idle(most) + 1e-9);
            }
        }
    }

    #[test]
    fn rows_are_out_of_date_if_a_batch_that_is_missed_wrote_them() {
        // Batches of one event; event i joins nodes i mod 4 and 4.
        let n = 40;
        let src: Vec<u32> = (0..n).map(|i| i % 4).collect();
        let time = (0..i64::from(n)).collect();
        let mut events = Events::new("stale", src, vec![4; n as usize], time).unwrap();
        events.nodes = 6;
        // Each batch fetches its source, which the fourth batch before wrote, node 4, and node 5.
        let needed = |batch: Range<usize>| vec![batch.start as u32 % 4, 4, 5];
        let shares = stale_rows(&events, 0..40, 1, 1000, needed).unwrap();
        let third = 1.0 / 3.0;
        assert_eq!(
            shares,
            [third, third, third, 2.0 * third, 2.0 * third, 2.0 * third, 2.0 * third, 2.0 * third]
        );
        assert_eq!(StalenessChoice::new(shares).most, 3);
        assert_eq!(
            stale_rows(&events, 0..3, 1, 10, needed).unwrap(),
            [0.0; MAX_STALENESS],
            "too few batches"
        );
        assert!(stale_rows(&events, 0..41, 1, 10, needed).is_err());
    }
}
