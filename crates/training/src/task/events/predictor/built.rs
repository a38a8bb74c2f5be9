//! The model of a predictor, with its tables and programs, for tables of given sizes.
use crate::{
    model::{Arrivals, EventTables, HeadKind, Negatives, Net, OpenEnd, StaticConfig, StaticMode},
    task::config::Config,
};
use tgnn::{
    autograd::{Parameters, Program, RepeatProgress},
    error::{Error, ErrorKind, Result},
    ops::{
        Backend, Op, Tape,
        sample_neighbors::{Entry, History, SampleNeighbors},
    },
    runtime::*,
};

/// Where a batch writes its results.
#[derive(Clone, Copy)]
pub(super) struct Outputs {
    /// `[batch, 1]` f32.
    pub logits: BufferId,
    /// `[batch, width]` f32 each: the embeddings of sources and of destinations.
    pub sides: [BufferId; 2],
}

impl Outputs {
    fn new(store: &mut Store, batch: usize, width: usize) -> Result<Self> {
        let batch = Rows::fixed(batch);
        let logits = store.zeros("logits", Spec::real(batch, 1))?;
        let mut side = |name| store.zeros(name, Spec::real(batch, width));
        Ok(Outputs { logits, sides: [side("sources")?, side("destinations")?] })
    }
}

/// Checks that the model samples no more neighbours than it says: the history keeps no more.
fn check_neighbors(t: &Tape, config: &Config) -> Result<()> {
    let said = config.event_model()?.recent_events()?;
    let sampled = t.nodes().iter().filter(|node| node.op.name() == SampleNeighbors::NAME);
    let most = sampled.map(|node| t.spec(node.outs[0]).cols).max().unwrap_or(0);
    if most <= said {
        return Ok(());
    }
    let what = format!("the model reads {most} neighbours of a node, and its recent_events says {said}");
    Err(Error::usage(what).remedy(format!("return {most} from ModelConfig::recent_events")))
}

/// A model and its programs, for tables of given sizes.
pub(super) struct Built {
    pub store: Store,
    pub parameters: Parameters,
    pub net: Net,
    pub tables: EventTables,
    pub arrivals: Arrivals,
    /// Of the batch that became history last.
    pub outputs: Outputs,
    /// Of the batch that was only scored last.
    pub looked: Outputs,
    /// Scores a batch, then updates the state.
    pub advance: Program,
    /// Only scores a batch; recorded at its first use.
    pub look: Option<Program>,
}

impl Built {
    /// Checks that there is room for the state.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn check_state(config: &Config, sizes: &OpenEnd) -> Result<()> {
        let lists = size_of::<Entry>().saturating_mul(sizes.nodes).saturating_mul(sizes.slots);
        let state = config.event_model()?.state_bytes(sizes.nodes, sizes.edge_width, config.memory_as);
        check_room(
            "node memory, mailbox and history",
            state.saturating_add(lists),
            "take fewer nodes or slots",
        )
    }
    /// Builds the model and its programs, without a trained state. At most `batch` events become history
    /// together, and at most as many as the tables hold are only scored.
    ///
    /// # Errors
    /// `OutOfMemory`; the errors of recording.
    pub fn new(config: &Config, sizes: &OpenEnd, batch: usize, device: &Device) -> Result<Self> {
        if sizes.edge_width > 0 {
            let bytes = sizes.edge_width.saturating_mul(4).saturating_mul(sizes.events);
            check_room("edge features of the kept events", bytes, "take fewer nodes or slots")?;
        }
        let mut store = Store::new(Precision::F32);
        let (mut tables, arrivals) = EventTables::open_ended(&mut store, sizes)?;
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate)?;
        if config.static_mode() != StaticMode::Off {
            tables.static_memory = config.static_memory.add(&mut parameters, &mut store, sizes.nodes)?;
        }
        let (head, seed) = (HeadKind::Links, config.seed);
        let net = Net::new(&mut parameters, &mut store, &tables, config.event_model()?, head, seed)?;
        // The rows of nodes that training has not seen are zeros.
        let rows = parameters.iter().find(|p| p.0 == StaticConfig::ROWS).map(|p| p.1);
        rows.into_iter().try_for_each(|id| store.clear(id))?;
        let width = config.event_model()?.width();
        let [outputs, looked] =
            [Outputs::new(&mut store, batch, width)?, Outputs::new(&mut store, sizes.batch, width)?];
        let mut t = Tape::new(&store);
        record(&mut t, &net, &tables, outputs, batch, true)?;
        check_neighbors(&t, config)?;
        let advance = Program::new(&t, &[], Precision::F32, Backend::for_device(device))?;
        Ok(Built { store, parameters, net, tables, arrivals, outputs, looked, advance, look: None })
    }
    /// Records the program that only scores a batch, unless that is done.
    pub fn record_look(&mut self, batch: usize, device: &Device) -> Result<()> {
        if self.look.is_none() {
            let mut t = Tape::new(&self.store);
            record(&mut t, &self.net, &self.tables, self.looked, batch, false)?;
            self.look = Some(Program::new(&t, &[], Precision::F32, Backend::for_device(device))?);
        }
        Ok(())
    }
    /// Returns the logits of the first `n` events of a batch.
    pub fn logits(&mut self, of: Outputs, n: usize) -> Result<&[f32]> {
        self.store.fetch(&[of.logits])?;
        Ok(&self.store.read::<f32>(of.logits)?[..n])
    }
    /// Returns the embeddings of the first `n` events of a batch: those of sources, and of destinations.
    pub fn sides(&mut self, of: Outputs, n: usize) -> Result<[&[f32]; 2]> {
        self.store.fetch(&of.sides)?;
        let first_rows = |id| Ok(&self.store.read::<f32>(id)?[..n * self.store.spec(id).cols]);
        Ok([first_rows(of.sides[0])?, first_rows(of.sides[1])?])
    }
    /// Returns the buffers to save: parameters, node memory, mailbox, static memory.
    pub fn kept(&self) -> Vec<BufferId> {
        let mut kept: Vec<BufferId> = self.parameters.iter().map(|p| p.1).collect();
        let others = self.net.model.state().into_iter().chain(self.tables.static_memory);
        for id in others {
            if !kept.contains(&id) {
                kept.push(id);
            }
        }
        kept
    }
    /// Returns the buffers of [`kept`](Self::kept), each with the number of rows that it would have for
    /// `nodes` nodes.
    pub fn rows_of(&self, nodes: usize) -> Vec<(BufferId, usize)> {
        let mut by_node = self.net.model.state();
        by_node.extend(self.tables.static_memory);
        by_node.extend(self.parameters.iter().filter(|p| p.0 == StaticConfig::ROWS).map(|p| p.1));
        let rows = |id| {
            let capacity = self.store.spec(id).rows.capacity;
            if by_node.contains(&id) { capacity / self.tables.nodes.max(1) * nodes } else { capacity }
        };
        self.kept().into_iter().map(|id| (id, rows(id))).collect()
    }
    /// Runs a batch on the events that were written to the tables; `update` says whether they become history.
    pub fn run(&mut self, device: &Device, update: bool) -> Result<()> {
        let (store, mut ignore) = (&mut self.store, |_: RepeatProgress<'_>| {});
        let program = match (&mut self.look, update) {
            (Some(look), false) => look,
            _ => &mut self.advance,
        };
        device.keep_awake(|| program.repeat(store, 1, &mut ignore)).map_err(|(_, e)| e)
    }
    /// Checks that history and mails of a checkpoint refer to the first `kept` events and to existing nodes
    /// only.
    ///
    /// # Errors
    /// `Checkpoint` if they do not.
    pub fn check_events(&self, kept: u32) -> Result<()> {
        let mails = self.net.model.mail_event();
        let mail_events = mails.map_or(Ok(&[][..]), |id| self.store.read::<u32>(id))?;
        let lists: &[Entry] = bytemuck::cast_slice(self.store.read::<i64>(self.arrivals.entries)?);
        let known = |event: u32| event == NONE || event < kept;
        let nodes = self.tables.nodes;
        let valid = |e: &Entry| e.event == NONE || (known(e.event) && (e.node as usize) < nodes);
        if mail_events.iter().all(|&event| known(event)) && lists.iter().all(valid) {
            return Ok(());
        }
        let what =
            format!("history or mails refer to events beyond the {kept} that are kept, or to unknown nodes");
        Err(Error::new(ErrorKind::Checkpoint, what).remedy("save the stream again"))
    }
    /// Replaces the events that mails refer to by their indices in `events`, which ascend.
    ///
    /// # Errors
    /// `Checkpoint` if an event is not among `events`.
    pub fn index_mails(&mut self, events: &[u32]) -> Result<()> {
        let Some(id) = self.net.model.mail_event() else { return Ok(()) };
        for event in self.store.get_mut::<u32>(id)?.iter_mut().filter(|event| **event != NONE) {
            let at = events.binary_search(event).map_err(|_| {
                let what = format!("a mail refers to event {event}, which the extract of the data lacks");
                Error::new(ErrorKind::Checkpoint, what).remedy("train again, or use a copy")
            })?;
            *event = at as u32;
        }
        Ok(())
    }
    /// Renumbers the events that history and mails refer to from 0, in order. Returns their old ids.
    pub fn renumber(&mut self) -> Result<Vec<u32>> {
        let (store, entries) = (&mut self.store, self.arrivals.entries);
        let mails = self.net.model.mail_event();
        store.fetch(&[entries])?;
        store.fetch(mails.as_slice())?;
        let mail_events = mails.map_or(Ok(&[][..]), |id| store.read::<u32>(id))?.iter().copied();
        let lists: &[Entry] = bytemuck::cast_slice(store.read::<i64>(entries)?);
        let list_events = lists.iter().map(|e| e.event);
        let mut held: Vec<u32> = list_events.chain(mail_events).filter(|&e| e != NONE).collect();
        held.sort_unstable();
        held.dedup();
        let renumber = |event: &mut u32| {
            if let Ok(at) = held.binary_search(event) {
                *event = at as u32;
            }
        };
        let lists: &mut [Entry] = bytemuck::cast_slice_mut(store.get_mut::<i64>(entries)?);
        lists.iter_mut().for_each(|e| renumber(&mut e.event));
        if let Some(id) = mails {
            store.get_mut::<u32>(id)?.iter_mut().for_each(renumber);
        }
        Ok(held)
    }
}

/// Appends a batch of at most `capacity` events, up to its logits and embeddings, which go to `outputs`; with
/// `update`, also the updates of memory, mails and history.
pub(super) fn record(
    t: &mut Tape,
    net: &Net,
    tables: &EventTables,
    outputs: Outputs,
    capacity: usize,
    update: bool,
) -> Result<()> {
    let batch = tables.next_batch(t, capacity)?;
    let sees_batch = tables.history == History::Time;
    if update && sees_batch {
        tables.append(t, &batch)?;
    }
    let forward = net.forward_batch(t, tables, batch, Negatives::None, false)?;
    let table = t.stored(outputs.logits)?;
    t.write_rows(table, forward.batch.row, forward.logits)?;
    for (side, id) in outputs.sides.into_iter().enumerate() {
        let rows = t.root_rows(forward.batch.src, forward.stride, side)?;
        let z = t.gather_rows(forward.embedded.z, rows)?;
        let table = t.stored(id)?;
        t.write_rows(table, forward.batch.row, z)?;
    }
    if update {
        net.write(t, tables, &forward)?;
        if !sees_batch {
            tables.append(t, &batch)?;
        }
    }
    Ok(())
}
