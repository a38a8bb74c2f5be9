//! The memory that a run needs, calculated before it starts.
use std::{collections::BTreeSet, fmt};
use tgnn::{
    autograd::Program,
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, Store},
};

/// The memory that a run needs, in bytes; device memory if the run uses a CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Parameters, optimiser, scores.
    pub state: usize,
    /// Node memory and mailbox.
    pub memory: usize,
    /// Whether node memory and mailbox stay in host memory, where the device reads and writes them.
    pub memory_on_host: bool,
    /// Events and their adjacency.
    pub tables: usize,
    /// Edge and node features; of these, only this rank's share if ranks keep a share each.
    pub features: usize,
    /// Whether ranks keep a share of the features each.
    pub features_partitioned: bool,
    /// Whether the features stay in host memory, from which the device reads them.
    pub features_on_host: bool,
    /// Values of a training step (for as many steps as their buffer depth), of scoring and of replaying.
    pub step: usize,
    /// Free device memory; `None` without a device.
    pub free: Option<usize>,
}

impl MemoryPlan {
    /// Calculates the memory of programs over a store with these feature tables and this node memory.
    pub(in crate::task) fn new(
        store: &Store,
        features: StoredTables<'_>,
        memory: StoredTables<'_>,
        programs: &[&Program],
        free: Option<usize>,
    ) -> Self {
        let mut plan = MemoryPlan {
            state: 0,
            memory: 0,
            memory_on_host: memory.on_host,
            tables: 0,
            features: 0,
            features_partitioned: features.partitioned,
            features_on_host: features.on_host,
            step: programs.iter().map(|p| p.arena_bytes()).sum(),
            free,
        };
        let used: BTreeSet<BufferId> = programs.iter().flat_map(|p| p.stored()).collect();
        for id in used {
            let total = match id {
                id if features.buffers.contains(&id) => &mut plan.features,
                id if memory.buffers.contains(&id) => &mut plan.memory,
                id if store.is_writable(id) => &mut plan.state,
                _ => &mut plan.tables,
            };
            *total += store.spec(id).bytes(store.precision());
        }
        plan
    }
    /// Returns the bytes that must fit into device memory.
    pub fn needed(&self) -> usize {
        let features = if self.features_on_host { 0 } else { self.features };
        let memory = if self.memory_on_host { 0 } else { self.memory };
        self.state + memory + self.tables + features + self.step
    }
    /// Returns whether the run fits into the free device memory; true without a device.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.needed() <= free)
    }
    /// Returns the plan if each of `ranks` ranks keeps a share of the features, without the rows that it then
    /// gets in a step.
    pub(in crate::task) fn partitioned(self, ranks: usize) -> Self {
        MemoryPlan { features: self.features.div_ceil(ranks), features_partitioned: true, ..self }
    }
    /// Checks that the run fits into the free device memory.
    ///
    /// # Errors
    /// `OutOfMemory`, with the memory of each kind and a remedy for the largest.
    pub fn check(&self) -> Result<()> {
        if self.fits() {
            return Ok(());
        }
        let (needed, free) = (mib(self.needed()), mib(self.free.unwrap_or(0)));
        let text = format!(
            "the run needs {needed:.0} MiB of device memory, {free:.0} are free ({})",
            MemoryPlan { free: None, ..*self }
        );
        let remedies = [
            (self.step, "take a smaller batch, fewer neighbours or narrower layers"),
            (self.state, "take narrower layers"),
            (
                if self.memory_on_host { 0 } else { self.memory },
                "take a narrower memory, or leave it on the host: memory_on=host",
            ),
            (self.tables, "take fewer events"),
            (
                if self.features_on_host { 0 } else { self.features },
                "leave features on the host: features_on=host",
            ),
        ];
        let remedy = remedies.iter().max_by_key(|(bytes, _)| *bytes).map_or("", |(_, remedy)| *remedy);
        Err(Error::new(ErrorKind::OutOfMemory, text).remedy(remedy))
    }
}

/// Large tables of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::task) struct StoredTables<'a> {
    /// Their buffers.
    pub buffers: &'a [BufferId],
    /// Whether they stay in host memory.
    pub on_host: bool,
    /// Whether each rank keeps its share of the rows.
    pub partitioned: bool,
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state + if self.memory_on_host { 0 } else { self.memory };
        write!(f, "{:.0} MiB state, ", mib(state))?;
        if self.memory_on_host {
            write!(f, "{:.0} MiB node memory on the host, ", mib(self.memory))?;
        }
        write!(f, "{:.0} MiB tables, ", mib(self.tables))?;
        if self.features > 0 {
            let location = if self.features_on_host { " on the host" } else { "" };
            let share = if self.features_partitioned { " of this rank" } else { "" };
            write!(f, "{:.0} MiB features{share}{location}, ", mib(self.features))?;
        }
        write!(f, "{:.0} MiB values of a step", mib(self.step))?;
        match self.free {
            Some(free) => write!(f, "; {:.0} MiB of device memory are free", mib(free)),
            None => Ok(()),
        }
    }
}
