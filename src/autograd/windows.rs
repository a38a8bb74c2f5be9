//! Cuts the runs of a pass into windows that are scheduled together.
use super::{
    lanes::MAX_LANES,
    variant::{PlannedNode, Variant, common_multiple},
};

/// Maximum number of nodes of a window, unless a single run has more. At the end of a window lanes wait for
/// each other, and a schedule takes memory.
const MAX_NODES: usize = 1 << 12;

/// Nodes of runs that are scheduled together. If runs read older state, some nodes of a run are due earlier
/// than its update, and belong to an earlier window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Index in the pass of the first of these runs.
    pub first: usize,
    /// For each run that may have nodes in the window, the index of its variant.
    pub variant_of_run: &'a [usize],
    /// Number of these runs whose updates are in the window.
    pub(super) updates: usize,
    /// Whether the window begins a pass of runs that read older state: it has what is due before its first
    /// update.
    pub(super) begins: bool,
}

impl<'a> Window<'a> {
    /// Returns the window of a whole pass.
    pub(super) fn whole(variants: &[Variant], variant_of_run: &'a [usize]) -> Self {
        let begins = lead(variants, variant_of_run) > 0;
        Window { first: 0, variant_of_run, updates: variant_of_run.len(), begins }
    }
    /// Whether another window has the same schedule.
    pub fn is_like(&self, other: Window<'_>) -> bool {
        let Window { variant_of_run, updates, begins, .. } = other;
        (self.variant_of_run, self.updates, self.begins) == (variant_of_run, updates, begins)
    }
    /// Whether a node of a run of the window is due within the window.
    pub(super) fn has(&self, run: usize, planned: &PlannedNode) -> bool {
        let slot = planned.precedence.slot(run);
        slot < self.updates as isize && (self.begins || slot >= 0)
    }
    /// Returns the number of runs of the pass that have ended when the window has.
    pub(super) fn ended(&self) -> usize {
        self.first + self.updates
    }
}

/// Returns the most runs by which a node is due before the update of its run.
fn lead(variants: &[Variant], variant_of_run: &[usize]) -> usize {
    let staleness = variant_of_run.iter().map(|&variant| variants[variant].staleness);
    staleness.map(|staleness| staleness.memory + staleness.weights).max().unwrap_or(0)
}

/// Cuts runs into windows. If possible, a window ends after a run that has one lane to itself. Each lane
/// holds the values of `buffer_depth` runs; a window begins with the first of these buffers.
pub(super) fn windows<'a>(
    variants: &[Variant],
    variant_of_run: &'a [usize],
    buffer_depth: &[usize; MAX_LANES],
) -> Vec<Window<'a>> {
    let lead = lead(variants, variant_of_run);
    // Values stay in their buffers from one window to the next.
    let aligned = match lead {
        0 => 1,
        _ => buffer_depth.iter().filter(|&&depth| depth > 0).fold(1, |a, &b| common_multiple(a, b)),
    };
    let (mut windows, mut first) = (Vec::new(), 0);
    while first < variant_of_run.len() {
        let rest = &variant_of_run[first..];
        let mut nodes = 0;
        let mut fits = |&&variant: &&usize| {
            nodes += variants[variant].nodes.len();
            nodes <= MAX_NODES
        };
        let fit = rest.iter().take_while(&mut fits).count().max(1);
        let alone = rest[..fit].iter().rposition(|&variant| variants[variant].alone);
        let updates = match alone {
            _ if fit == rest.len() => fit,
            Some(at) => at + 1,
            None => (fit / aligned * aligned).max(aligned).min(rest.len()),
        };
        let runs = (updates + lead).min(rest.len());
        let begins = lead > 0 && first == 0;
        windows.push(Window { first, variant_of_run: &rest[..runs], updates, begins });
        first += updates;
    }
    windows
}
