//! Cuts the runs of a pass into windows that are scheduled together.
use super::{
    lanes::MAX_LANES,
    variant::{PlannedNode, Variant, common_multiple},
};
use std::collections::HashSet;

/// Maximum number of nodes of a window, unless a single run has more: a schedule takes memory.
const MAX_NODES: usize = 1 << 12;
/// Runs of the longest window of a pass, if each window prepares its own first runs. At the end of a window
/// lanes wait for each other, which costs little every 16 runs. A window of up to 32 runs comes again several
/// times in a pass of 200 runs, so it is captured and replayed within the first pass.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=32;
/// Runs of the longest window of a pass if each window prepares the first runs of the next one: its end costs
/// less then, and a shorter window is captured sooner.
const SHORT_LENGTHS: std::ops::RangeInclusive<usize> = 8..=12;

/// Nodes of runs that are scheduled together. If runs read older state, some nodes of a run are due earlier
/// than its update, and belong to an earlier window; so do prefetched nodes, if windows prepare the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Index in the pass of the first of these runs.
    pub first: usize,
    /// For each run that may have nodes in the window, the index of its variant.
    pub variant_of_run: &'a [usize],
    /// Number of these runs whose updates are in the window.
    pub(super) updates: usize,
    /// Whether the window begins a pass in which nodes of a run belong to an earlier window: it has what is
    /// due before its first update.
    pub(super) begins: bool,
    /// Whether windows prepare the next one: a prefetched node is due during the run of which its lane
    /// executes it, and not with its own.
    pub(super) prepares: bool,
}

impl<'a> Window<'a> {
    /// Returns the window of a whole pass.
    pub(super) fn whole(variants: &[Variant], variant_of_run: &'a [usize]) -> Self {
        let begins = lead(variants, variant_of_run, false) > 0;
        Window { first: 0, variant_of_run, updates: variant_of_run.len(), begins, prepares: false }
    }
    /// Whether another window has the same schedule.
    pub fn is_like(&self, other: Window<'_>) -> bool {
        let Window { variant_of_run, .. } = other;
        *self == Window { variant_of_run, first: self.first, ..other }
    }
    /// Whether a node of a run of the window is due within the window.
    pub(super) fn has(&self, run: usize, planned: &PlannedNode) -> bool {
        let p = planned.precedence;
        let due = if self.prepares { p.during(run) } else { p.slot(run) };
        due < self.updates as isize && (self.begins || due >= 0)
    }
    /// Returns the number of runs of the pass that have ended when the window has.
    pub(super) fn ended(&self) -> usize {
        self.first + self.updates
    }
}

/// Returns the most runs by which a node is due before the update of its run.
fn lead(variants: &[Variant], variant_of_run: &[usize], prepares: bool) -> usize {
    let of_variant = |variant: &Variant| match prepares {
        true => variant.nodes.iter().map(|planned| planned.precedence.ahead()).max().unwrap_or(0),
        false => variant.staleness.memory + variant.staleness.weights,
    };
    let used: HashSet<usize> = variant_of_run.iter().copied().collect();
    used.into_iter().map(|variant| of_variant(&variants[variant])).max().unwrap_or(0)
}

/// Cuts runs into windows. If possible, a window ends after a run that has one lane to itself. Each lane
/// holds the values of `buffer_depth` runs; a window begins with the first of these buffers. If `prepares`, a
/// window prepares the first runs of the next one, unless a run has one lane to itself.
///
/// The length is chosen so that as few different windows as possible result: a schedule is made, and captured
/// on a device, once for all windows that are alike.
pub(super) fn windows<'a>(
    variants: &[Variant],
    variant_of_run: &'a [usize],
    buffer_depth: &[usize; MAX_LANES],
    prepares: bool,
) -> Vec<Window<'a>> {
    let prepares = prepares && !variant_of_run.iter().any(|&variant| variants[variant].alone);
    let cut = |length| windows_up_to(length, variants, variant_of_run, buffer_depth, prepares);
    let lengths = if prepares { SHORT_LENGTHS } else { LENGTHS };
    lengths.rev().map(cut).min_by_key(|windows| kinds(windows)).unwrap_or_default()
}

/// Returns the number of windows that are like none before them, and of the runs in them.
fn kinds(windows: &[Window<'_>]) -> (usize, usize) {
    let kinds: HashSet<_> = windows.iter().map(|w| (w.variant_of_run, w.updates, w.begins)).collect();
    (kinds.len(), kinds.into_iter().map(|(_, updates, _)| updates).sum())
}

/// Cuts runs into windows of at most `length` runs.
fn windows_up_to<'a>(
    length: usize,
    variants: &[Variant],
    variant_of_run: &'a [usize],
    buffer_depth: &[usize; MAX_LANES],
    prepares: bool,
) -> Vec<Window<'a>> {
    let lead = lead(variants, variant_of_run, prepares);
    // Values stay in their buffers from one window to the next.
    let aligned = match lead {
        0 => 1,
        _ => buffer_depth.iter().filter(|&&depth| depth > 0).fold(1, |a, &b| common_multiple(a, b)),
    };
    let (mut windows, mut first) = (Vec::new(), 0);
    if prepares && lead > 0 && !variant_of_run.is_empty() {
        // A window of its own prepares the first runs, so that all that follow, but the last, are alike.
        let first_runs = &variant_of_run[..lead.min(variant_of_run.len())];
        windows.push(Window { first, variant_of_run: first_runs, updates: 0, begins: true, prepares });
    }
    while first < variant_of_run.len() {
        let rest = &variant_of_run[first..];
        let mut nodes = 0;
        let mut fits = |&&variant: &&usize| {
            nodes += variants[variant].nodes.len();
            nodes <= MAX_NODES
        };
        let fit = rest.iter().take(length).take_while(&mut fits).count().max(1);
        let alone = rest[..fit].iter().rposition(|&variant| variants[variant].alone);
        let updates = match alone {
            _ if fit == rest.len() => fit,
            Some(at) => at + 1,
            None => (fit / aligned * aligned).max(aligned).min(rest.len()),
        };
        let runs = (updates + lead).min(rest.len());
        let begins = lead > 0 && first == 0 && !prepares;
        windows.push(Window { first, variant_of_run: &rest[..runs], updates, begins, prepares });
        first += updates;
    }
    windows
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{
        autograd::{Lanes, Program},
        ops::Tape,
        runtime::{Device, Precision, Store},
    };

    /// Returns the numbers of runs in the windows of a pass over two variants.
    fn lengths(variant_of_run: &[usize]) -> Vec<usize> {
        let tape = Tape::new(&Store::new(Precision::F32));
        let tapes = [(&tape, Lanes::One), (&tape, Lanes::One)];
        let device = Device::cpu(1).unwrap();
        let program = Program::with_variants(&tapes, Precision::F32, &device).unwrap();
        let windows = program.windows(variant_of_run);
        assert_eq!(windows.iter().map(|w| w.updates).sum::<usize>(), variant_of_run.len());
        windows.iter().map(|w| w.updates).collect()
    }

    #[test]
    fn windows_are_as_long_as_makes_most_of_them_alike() {
        assert_eq!(lengths(&[0; 184]), [23; 8]);
        assert_eq!(lengths(&[0; 56]), [28; 2]);
        assert_eq!(lengths(&[0; 32]), [16; 2]);
        assert_eq!(lengths(&[0; 15]), [15]);
        assert_eq!(lengths(&[]), [0; 0]);
        // A prime number of runs: ten windows, and one of a single run.
        let prime = lengths(&[0; 181]);
        assert_eq!((prime[0], prime[prime.len() - 1]), (18, 1));
        // Variants in turn: windows begin with the same one.
        let turns: Vec<usize> = (0..210).map(|run| usize::from(run % 7 == 0)).collect();
        assert!(lengths(&turns).iter().all(|length| length % 7 == 0));
    }
}
