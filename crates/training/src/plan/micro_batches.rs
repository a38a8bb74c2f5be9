//! The number of micro-batches of a step, fitted to a few profiled steps.
//!
//! Source: Sven, section 3.3.2, equation 12: n = round((A bs + B) / S), where bs is the batch size, A and B
//! are constants of the data set, and S is a constant of the speed of transmission. A bs + B is the volume of
//! a step's dispatch, in bytes: it grows with the batch, but by less than in proportion, because a larger
//! batch asks for the same rows more often.
//!
//! The paper does not say how S follows from what is measured. Here whole steps are timed, each in 1, 2, 4
//! and 8 parts. In a pipeline, the first part's dispatch and the last part's update are hidden by nothing, so
//! more parts hide more; but each part costs something once more: messages, small products, slices, the
//! backward pass part by part. If dispatch takes D + n l seconds in n parts, update U + n k and other work O
//! + n e, and if the link is the slower one of the two, a step takes
//!
//! > D + n l + (U + n k) / n + O + n e,
//!
//! and if the update is slower, the same with the two exchanged. Both are T + P / n + L n with constants T, P
//! and L, which are fitted to the timed steps. Whole steps are timed, and not their stages, because stages
//! share links and cores with others: if gradients travel beside the rows, a dispatch takes longer the more
//! parts it has, but then they arrive earlier.
//!
//! The best n of 1 to 8 is the one with the least seconds. S is the size of its parts, (A bs + B) / n bytes,
//! and equation 12 with this S gives this n at the batch size of the run. That S is *not* a constant of the
//! links alone, as in the paper: it also depends on how fast rows are updated, and it grows with the root of
//! the volume, because n is about √(P / L). So equation 12 is exact at the batch size of the profile and a
//! guess elsewhere, and every run fits anew.
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::comm::{Channel, Ranks},
};

/// Maximum number of micro-batches of a step.
pub const MAX_MICRO_BATCHES: usize = 8;

/// The number of micro-batches of a step, as a plan gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "ranks.micro_batches is a number of parts, 1 to 8, or \"fitted\"")]
#[non_exhaustive]
pub enum MicroBatches {
    /// This number.
    Count(usize),
    /// A number given by a rule.
    Rule(MicroBatchRule),
}

/// A rule for the number of micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MicroBatchRule {
    /// The number that [fits](MicroBatchFit) a few profiled steps. They run before the first epoch, in
    /// [`train`](crate::task::train); elsewhere there is one part.
    Fitted,
}

impl MicroBatches {
    /// Returns the number if it is known before a profile; 1 if it is not.
    pub fn count(self) -> usize {
        match self {
            MicroBatches::Count(count) => count,
            MicroBatches::Rule(MicroBatchRule::Fitted) => 1,
        }
    }
}

impl Default for MicroBatches {
    fn default() -> Self {
        MicroBatches::Count(1)
    }
}

/// What a profiled step took, as a mean over a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfiledStep {
    /// Events of the batch, of all ranks together.
    pub events: usize,
    /// Number of micro-batches.
    pub parts: usize,
    /// Bytes of its dispatch.
    pub bytes: f64,
    /// Seconds of the step.
    pub seconds: f64,
}

impl ProfiledStep {
    /// Returns the step as all ranks together have measured it, given what each has: their bytes are added
    /// up, and the slowest rank counts.
    pub fn of_ranks(own: impl IntoIterator<Item = ProfiledStep>) -> Option<ProfiledStep> {
        own.into_iter().reduce(|a, b| ProfiledStep {
            bytes: a.bytes + b.bytes,
            seconds: a.seconds.max(b.seconds),
            ..a
        })
    }
}

/// A straight line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// By how much the value grows for each unit.
    pub each: f64,
    /// The value at 0.
    pub once: f64,
}

impl Line {
    /// Returns the least-squares fit to `points`, without negative coefficients.
    pub fn fit(points: &[(f64, f64)]) -> Self {
        let n = points.len().max(1) as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
        let (square, product) = (mean(&|p| (p.0 - x) * (p.0 - x)), mean(&|p| (p.0 - x) * (p.1 - y)));
        let through_zero = || {
            let each = mean(&|p| p.0 * p.1) / mean(&|p| p.0 * p.0).max(f64::MIN_POSITIVE);
            Line { each: each.max(0.0), once: 0.0 }
        };
        // Points at one place do not tell the coefficients apart.
        if square <= 1e-12 * x * x {
            return through_zero();
        }
        let each = product / square;
        match (each, y - each * x) {
            (each, _) if each < 0.0 => Line { each: 0.0, once: y.max(0.0) },
            (_, once) if once < 0.0 => through_zero(),
            (each, once) => Line { each, once },
        }
    }
    /// Returns the value at `x`.
    pub fn at(self, x: f64) -> f64 {
        self.each * x + self.once
    }
}

/// Seconds of a step by the number n of its micro-batches: `once` + `hidden` / n + `each` n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSeconds {
    /// What does not depend on the number of parts.
    pub once: f64,
    /// What the first or the last part does while no other part hides it, if it is the whole.
    pub hidden: f64,
    /// What each part costs once more.
    pub each: f64,
}

impl StepSeconds {
    /// Returns the least-squares fit to `points`, numbers of parts with seconds, without negative `hidden`
    /// and `each`.
    pub fn fit(points: &[(usize, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|&(n, seconds)| of(n.max(1) as f64, seconds)).sum::<f64>() / count
        };
        let (h, e, y) = (mean(&|n, _| 1.0 / n), mean(&|n, _| n), mean(&|_, seconds| seconds));
        let [hh, ee] = [mean(&|n, _| (1.0 / n - h).powi(2)), mean(&|n, _| (n - e).powi(2))];
        let he = mean(&|n, _| (1.0 / n - h) * (n - e));
        let [hy, ey] = [mean(&|n, s| (1.0 / n - h) * (s - y)), mean(&|n, s| (n - e) * (s - y))];
        let of = |hidden: f64, each: f64| StepSeconds { once: y - hidden * h - each * e, hidden, each };
        // Two numbers of parts do not tell the coefficients apart.
        let determinant = hh * ee - he * he;
        if determinant > 1e-12 * hh * ee {
            let (hidden, each) = ((hy * ee - ey * he) / determinant, (ey * hh - hy * he) / determinant);
            if hidden >= 0.0 && each >= 0.0 {
                return of(hidden, each);
            }
        }
        // One of them is 0: the one with which the other explains more.
        let alone = |product: f64, square: f64| if square > 0.0 { (product / square).max(0.0) } else { 0.0 };
        let (hidden, each) = (alone(hy, hh), alone(ey, ee));
        if hidden * hy > each * ey { of(hidden, 0.0) } else { of(0.0, each) }
    }
    /// Returns the seconds in `parts` parts.
    pub fn at(self, parts: usize) -> f64 {
        let n = parts.max(1) as f64;
        self.once + self.hidden / n + self.each * n
    }
}

/// A fit of the number of micro-batches to profiled steps: equation 12 of Sven with its constants, and what
/// they were worked out from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MicroBatchFit {
    /// Bytes of a step's dispatch, of all ranks together, by the events of its batch: A and B.
    pub volume: Line,
    /// S: bytes of a part.
    pub part_bytes: f64,
    /// Seconds of a step.
    pub seconds: StepSeconds,
}

impl MicroBatchFit {
    /// Fits to `steps`, for batches of `batch` events. The steps that come closest to that size tell the
    /// seconds; all of them tell the volume. `None` if nothing was dispatched, or a number is not finite.
    pub fn fit(steps: &[ProfiledStep], batch: usize) -> Option<Self> {
        let volumes: Vec<(f64, f64)> = steps.iter().map(|s| (s.events as f64, s.bytes)).collect();
        let closest = steps.iter().map(|s| s.events).min_by_key(|events| events.abs_diff(batch))?;
        let (volume, seconds) = (Line::fit(&volumes), StepSeconds::fit(&medians(steps, closest)));
        let bytes = volume.at(batch as f64);
        let best = (1..=MAX_MICRO_BATCHES).min_by(|&a, &b| seconds.at(a).total_cmp(&seconds.at(b)))?;
        let fit = MicroBatchFit { volume, part_bytes: bytes / best as f64, seconds };
        (bytes > 0.0 && (bytes + seconds.at(best)).is_finite()).then_some(fit)
    }
    /// Returns the number of micro-batches of a batch of `batch` events: equation 12, between 1 and 8.
    pub fn micro_batches(&self, batch: usize) -> usize {
        let n = self.volume.at(batch as f64) / self.part_bytes;
        // Not a number becomes 0.
        (n.round() as usize).clamp(1, MAX_MICRO_BATCHES)
    }
}

/// Returns, for each number of parts, the median seconds of the steps with `events` events: times have
/// outliers.
fn medians(steps: &[ProfiledStep], events: usize) -> Vec<(usize, f64)> {
    let mut by_parts: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.events == events) {
        by_parts.entry(step.parts).or_default().push(step.seconds);
    }
    let median = |(parts, mut values): (usize, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        (parts, values[values.len() / 2])
    };
    by_parts.into_iter().map(median).collect()
}

/// The number of micro-batches of a run whose plan has it fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MicroBatchChoice {
    /// The number.
    pub micro_batches: usize,
    /// Number of ranks for which it was chosen.
    pub ranks: usize,
    /// The fit; `None` if there was nothing to fit: rows are not dispatched, the model does not divide them,
    /// or one lane both dispatches and updates, so that no part travels while another is updated.
    pub fit: Option<MicroBatchFit>,
}

impl MicroBatchChoice {
    /// Returns the choice for batches of `batch` events by the steps that each rank has profiled, of the same
    /// events. All ranks get the same choice, however different their times. Collective.
    ///
    /// # Errors
    /// `Comm`.
    pub fn agreed(ranks: &Ranks, own: &[ProfiledStep], batch: usize) -> Result<Self> {
        let bad =
            |e: serde_json::Error| Error::new(ErrorKind::Comm, "the number of micro-batches").caused_by(e);
        let numbers: Vec<f64> = own.iter().flat_map(|s| [s.bytes, s.seconds]).collect();
        let mut all = vec![0f64; ranks.size() * numbers.len()];
        let counts = vec![size_of_val(numbers.as_slice()); ranks.size()];
        let control = ranks.channel(Channel::Control);
        control.all_gather(bytemuck::cast_slice(&numbers), bytemuck::cast_slice_mut(&mut all), &counts)?;
        let of_step = |(at, step): (usize, &ProfiledStep)| {
            let of_rank =
                |rank: &[f64]| ProfiledStep { bytes: rank[2 * at], seconds: rank[2 * at + 1], ..*step };
            ProfiledStep::of_ranks(all.chunks_exact(numbers.len()).map(of_rank))
        };
        // The first rank fits for all: processors may round differently.
        let made = ranks.from_first(|| {
            let steps: Vec<ProfiledStep> = own.iter().enumerate().filter_map(of_step).collect();
            let fit = MicroBatchFit::fit(&steps, batch);
            let micro_batches = fit.map_or(1, |fit| fit.micro_batches(batch));
            serde_json::to_vec(&MicroBatchChoice { micro_batches, ranks: ranks.size(), fit }).map_err(bad)
        })?;
        serde_json::from_slice(&made).map_err(bad)
    }
}

/// One line for the user.
impl fmt::Display for MicroBatchChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(fit) = &self.fit else { return write!(f, "1 micro-batch: its parts could not overlap") };
        let plural = if self.micro_batches == 1 { "" } else { "es" };
        let Line { each, once } = fit.volume;
        write!(
            f,
            "{} micro-batch{plural}: {:.2} kB an event + {:.0} kB a batch, in parts of {:.0} kB",
            self.micro_batches,
            each / 1e3,
            once / 1e3,
            fit.part_bytes / 1e3
        )
    }
}
