//! What a run over several ranks does besides its steps: checkpoints of state that is spread over ranks, and
//! the sums of what ranks compute for a pass.
use super::{Checkpoint, NodeState, Progress, Task, TaskCore};
use crate::{model::RankTables, task::config::Config};
use serde::{Serialize, de::DeserializeOwned};
use std::borrow::Cow;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{
        comm::{Channel, Ranks},
        *,
    },
};

/// The buffers of a checkpoint in a store of their own, with the state of all nodes.
struct WholeState {
    store: Store,
    buffers: Vec<BufferId>,
}

/// The buffers of a checkpoint with the state of all nodes: a task's own, or those put together.
pub(super) struct Whole<'a> {
    pub store: &'a Store,
    /// Each buffer of the task, with the one in `store`.
    buffers: Vec<(BufferId, BufferId)>,
}

impl Whole<'_> {
    /// Returns the buffers in `store`.
    pub fn ids(&self) -> Vec<BufferId> {
        self.buffers.iter().map(|b| b.1).collect()
    }
    /// Returns the ids of the events that mails refer to, given the buffer of the task that holds them.
    pub fn mail_events(&self, of_task: Option<BufferId>) -> Result<&[u32]> {
        let found = self.buffers.iter().find(|b| Some(b.0) == of_task);
        found.map_or(Ok(&[]), |b| self.store.read::<u32>(b.1))
    }
}

impl WholeState {
    /// Returns the buffers `buffers` of a task with their contents on all ranks put together; `None` if this
    /// rank has all of them. Collective; the contents are on the first rank only.
    fn gather(task: &dyn Task, buffers: &[BufferId]) -> Result<Option<Self>> {
        let NodeState { buffers: spread, ranks, .. } = &task.core().nodes;
        let Some(rank_tables) = ranks.as_ref().filter(|rank_tables| rank_tables.is_partitioned()) else {
            return Ok(None);
        };
        let mut whole = Self::empty(task, buffers, rank_tables)?;
        for (&from, &to) in buffers.iter().zip(&whole.buffers) {
            let own = task.core().store.raw(from)?;
            let bytes = match spread.contains(&from) {
                true => Cow::Owned(gathered(rank_tables, own)?),
                false => Cow::Borrowed(own),
            };
            if rank_tables.ranks().is_first() {
                whole.store.raw_mut(to)?.copy_from_slice(&bytes);
            }
        }
        Ok(Some(whole))
    }
    /// Returns zeros for the buffers `buffers` of a task.
    fn empty(task: &dyn Task, buffers: &[BufferId], rank_tables: &RankTables) -> Result<Self> {
        let (mut store, spread) = (Store::new(task.core().store.precision()), &task.core().nodes.buffers);
        let whole = |&id: &BufferId| {
            let spec = task.core().store.spec(id);
            let spec = if spread.contains(&id) { rank_tables.whole(spec) } else { spec };
            store.zeros(task.core().store.name(id), spec)
        };
        let buffers = buffers.iter().map(whole).collect::<Result<_>>()?;
        Ok(WholeState { store, buffers })
    }
}

/// Returns the rows of all ranks in the order of the nodes, on the first rank; the others get nothing.
fn gathered(rank_tables: &RankTables, own: &[u8]) -> Result<Vec<u8>> {
    let (ranks, control) = (rank_tables.ranks(), rank_tables.ranks().channel(Channel::Control));
    let row = own.len() / rank_tables.own().len().max(1);
    // Without the copies of other ranks' rows.
    let own: Cow<'_, [u8]> = match rank_tables.is_cached() {
        true => rank_tables
            .nodes_of(ranks.rank())
            .iter()
            .flat_map(|&v| &own[v as usize * row..][..row])
            .copied()
            .collect(),
        false => Cow::Borrowed(own),
    };
    if !ranks.is_first() {
        control.send(0, &own)?;
        return Ok(Vec::new());
    }
    let nodes: Vec<Vec<u32>> = (0..ranks.size()).map(|rank| rank_tables.nodes_of(rank)).collect();
    let mut all = vec![0; row * nodes.iter().map(Vec::len).sum::<usize>()];
    for (rank, nodes) in nodes.iter().enumerate() {
        let mut rows = own.to_vec();
        if rank > 0 {
            rows.resize(row * nodes.len(), 0);
            control.recv(rank, &mut rows)?;
        }
        for (&v, from) in nodes.iter().zip(rows.chunks_exact(row.max(1))) {
            all[v as usize * row..][..row].copy_from_slice(from);
        }
    }
    Ok(all)
}

/// Returns what `make` returns on the first rank, on every rank. Collective.
pub(in crate::task) fn from_first<T: Serialize + DeserializeOwned>(
    device: &Device,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(ranks) = device.ranks() else { return make() };
    let bad = |e: serde_json::Error| Error::new(ErrorKind::Comm, "what rank 0 has read").caused_by(e);
    let bytes = ranks.from_first(|| serde_json::to_vec(&make()?).map_err(bad))?;
    serde_json::from_slice(&bytes).map_err(bad)
}

/// Loads the buffers `buffers` of a task by `read`, which reads them from a checkpoint into a store. Over
/// several ranks the first rank reads, and every rank gets its rows. Collective.
pub(in crate::task) fn load(
    task: &mut dyn Task,
    buffers: &[BufferId],
    read: impl FnOnce(&mut Store, &[BufferId]) -> Result<()>,
) -> Result<()> {
    let Some(ranks) = task.core().device.ranks().cloned() else {
        return read(&mut task.core_mut().store, buffers);
    };
    let rank_tables = task.core().nodes.ranks.clone().filter(RankTables::is_partitioned);
    let mut whole = match &rank_tables {
        Some(rank_tables) => Some(WholeState::empty(task, buffers, rank_tables)?),
        None => None,
    };
    if ranks.is_first() {
        match &mut whole {
            Some(whole) => read(&mut whole.store, &whole.buffers)?,
            None => read(&mut task.core_mut().store, buffers)?,
        }
    }
    let (control, spread) = (ranks.channel(Channel::Control), task.core().nodes.buffers.clone());
    for (at, &id) in buffers.iter().enumerate() {
        let (Some(whole), Some(rank_tables)) = (&mut whole, &rank_tables) else {
            control.broadcast(0, task.core_mut().store.raw_mut(id)?)?;
            continue;
        };
        let bytes = whole.store.raw_mut(whole.buffers[at])?;
        control.broadcast(0, bytes)?;
        let own = task.core_mut().store.raw_mut(id)?;
        if !spread.contains(&id) {
            own.copy_from_slice(bytes);
            continue;
        }
        let row = own.len() / rank_tables.own().len().max(1);
        for (&v, own) in rank_tables.own().iter().zip(own.chunks_exact_mut(row.max(1))) {
            own.copy_from_slice(&bytes[v as usize * row..][..row]);
        }
    }
    Ok(())
}

/// Checks that all ranks run the same build with the same configuration on the same data, given numbers that
/// tell the data apart. Devices, threads and the path of the data may differ. Collective.
pub(in crate::task) fn agree(ranks: &Ranks, config: &Config, data: &str) -> Result<()> {
    let build = format!("{} {}", env!("CARGO_PKG_VERSION"), option_env!("TGNN_COMMIT").unwrap_or(""));
    ranks.agree("build", build.trim())?;
    let mut anywhere = Config { device: String::new(), threads: 0, ..config.clone() };
    anywhere.data.path.clear();
    ranks.agree("configuration", &anywhere.to_toml()?)?;
    ranks.agree("data", data)
}

/// Prepares a pass of which each rank computes some of the `results`: [`add_up`] adds the others.
pub(in crate::task) fn begin_pass(core: &mut TaskCore, results: BufferId, trains: bool) -> Result<()> {
    let Some(ranks) = core.device.ranks() else { return Ok(()) };
    ranks.traffic().evaluates(!trains);
    core.store.clear(results)
}

/// Returns progress with the loss of whole batches, given that of a rank: its part of them.
pub(in crate::task) fn of_whole_batches<'a>(progress: Progress<'a>, device: &Device) -> Progress<'a> {
    let parts = device.ranks().map_or(1.0, |ranks| ranks.size() as f64);
    Progress { loss: progress.loss.map(|loss| loss * parts), ..progress }
}

/// Adds up the first `n` numbers of a buffer over all ranks: the losses or scores of a pass, of which each
/// rank has computed its part. Collective.
pub(in crate::task) fn add_up(
    ranks: Option<&Ranks>,
    store: &mut Store,
    id: BufferId,
    n: usize,
) -> Result<()> {
    match ranks {
        Some(ranks) => ranks.sum(&mut store.get_mut::<f32>(id)?[..n]),
        None => Ok(()),
    }
}

impl Checkpoint {
    /// Runs `save` on the first rank with the store that holds the checkpoint's buffers; the other ranks send
    /// their rows. Collective.
    pub(super) fn save_by(
        &self,
        task: &dyn Task,
        buffers: &[BufferId],
        save: impl FnOnce(&Self, &Whole<'_>) -> Result<()>,
    ) -> Result<()> {
        let whole = WholeState::gather(task, buffers)?;
        let (store, ids) = whole.as_ref().map_or((&task.core().store, buffers), |w| (&w.store, &w.buffers));
        if !task.core().device.is_first() {
            return Ok(());
        }
        let buffers = buffers.iter().copied().zip(ids.iter().copied()).collect();
        save(self, &Whole { store, buffers })
    }
}
