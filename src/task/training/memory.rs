//! What a run holds in memory, known before it starts.
use crate::{
    autograd::Program,
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, Store},
};
use std::{collections::BTreeSet, fmt};

/// Bytes that a run holds: of a device's memory where it runs on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Parameters, optimiser, node memory, mailbox, scores.
    pub state: usize,
    /// Events and their adjacency.
    pub tables: usize,
    /// Edge and node features.
    pub features: usize,
    /// Whether a device reads the features from the host's memory: they are not in its own then.
    pub features_on_host: bool,
    /// Values of one step, of the next where it is prepared meanwhile, and those of scoring and of replaying.
    pub step: usize,
    /// Free bytes of the device.
    pub free: Option<usize>,
}

impl MemoryPlan {
    /// Of programs over a store, where the tables `features` hold features.
    pub(in crate::task) fn of(
        store: &Store,
        (features, features_on_host): (&[BufferId], bool),
        programs: &[&Program],
        free: Option<usize>,
    ) -> Self {
        let mut plan = MemoryPlan {
            state: 0,
            tables: 0,
            features: 0,
            features_on_host,
            step: programs.iter().map(|p| p.arena_bytes()).sum(),
            free,
        };
        let used: BTreeSet<BufferId> = programs.iter().flat_map(|p| p.stored()).collect();
        for id in used {
            let part = match id {
                id if features.contains(&id) => &mut plan.features,
                id if store.is_writable(id) => &mut plan.state,
                _ => &mut plan.tables,
            };
            *part += store.spec(id).bytes(store.precision());
        }
        plan
    }
    /// Bytes of the device's memory.
    pub fn needed(&self) -> usize {
        let features = if self.features_on_host { 0 } else { self.features };
        self.state + self.tables + features + self.step
    }
    /// Whether it fits where it runs.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.needed() <= free)
    }
    /// Refuses what does not fit.
    ///
    /// # Errors
    /// `OutOfMemory`, with the parts and what to do.
    pub fn check(&self) -> Result<()> {
        if self.fits() {
            return Ok(());
        }
        let (needed, free) = (mib(self.needed()), mib(self.free.unwrap_or(0)));
        let text = format!(
            "the run needs {needed:.0} MiB of device memory, {free:.0} are free ({})",
            MemoryPlan { free: None, ..*self }
        );
        let large = [
            (self.step, "take a smaller batch, fewer neighbours or narrower layers"),
            (self.state, "take a narrower memory"),
            (self.tables, "take fewer events"),
            (
                if self.features_on_host { 0 } else { self.features },
                "leave features on the host: features_on=host",
            ),
        ];
        let remedy = large.iter().max_by_key(|(bytes, _)| *bytes).map_or("", |(_, remedy)| *remedy);
        Err(Error::new(ErrorKind::OutOfMemory, text).remedy(remedy))
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MiB state, {:.0} MiB tables, ", mib(self.state), mib(self.tables))?;
        if self.features > 0 {
            let place = if self.features_on_host { " on the host" } else { "" };
            write!(f, "{:.0} MiB features{place}, ", mib(self.features))?;
        }
        write!(f, "{:.0} MiB values of a step", mib(self.step))?;
        match self.free {
            Some(free) => write!(f, "; {:.0} MiB of device memory are free", mib(free)),
            None => Ok(()),
        }
    }
}
