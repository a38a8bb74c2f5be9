//! Online prediction: a trained model on a stream that continues. Events arrive batch by batch, are scored,
//! and become history.
//!
//! ```no_run
//! use tgnn::{runtime::Device, task::{Checkpoint, NewEvent, Predictor, PredictorOptions}};
//!
//! let checkpoint = Checkpoint::at("runs/first");
//! let config = checkpoint.manifest()?.config;
//! let events = config.load()?; // the training data
//! let options = PredictorOptions::default();
//! let mut predictor = Predictor::open(&checkpoint, &config, &events, &Device::cpu(0)?, &options)?;
//! let now = events.time[events.len() - 1];
//! let logits = predictor.advance(&[NewEvent { src: 3, dst: 8_230, time: now, features: &[] }])?;
//! println!("{}", logits[0]);
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! For every node, the [`PredictorOptions::slots`] most recent events are kept. A query reads the `k` most
//! recent events before its time, so scores equal those of a model with the whole history, unless more than
//! `slots - k` of a node's kept events have exactly the time of the query. Memory does not grow with the
//! stream: when the event ids (and the rows of edge features, which they index) are used up, the events that
//! slots and mails still refer to are renumbered from 0.
use crate::{
    autograd::{Parameters, Program, RepeatProgress},
    data::{Events, Tcsr},
    error::{Error, ErrorKind, Result},
    model::{Arrivals, EventTables, HeadKind, Negatives, Net, OpenEnd, StaticConfig, StaticMode},
    ops::{Backend, MOST_ITEMS, Tape, sample_neighbors::Entry},
    runtime::*,
    task::{
        config::{Config, TaskName},
        training::{Checkpoint, DataRecord, Manifest, StreamRecord, same_data, same_model},
    },
};
use std::path::Path;

/// Default number of slots per node for every event that a query reads.
const SLOTS_PER_NEIGHBOR: usize = 4;
/// Minimum number of rows of edge features by default, so that renumbering is rare.
const FEWEST_ROWS: usize = 1 << 16;

/// Capacities of a [`Predictor`]. The default is one event per batch, and the nodes of the data set.
#[derive(Clone, Debug, Default)]
pub struct PredictorOptions {
    /// Maximum number of events of a batch; 0 counts as 1.
    pub batch: usize,
    /// Maximum number of nodes, including nodes that are yet to appear; at least and by default those of the
    /// data set.
    pub nodes: Option<usize>,
    /// Number of most recent events kept per node; at least as many as a query reads, and by default 4 times
    /// that.
    pub slots: Option<usize>,
    /// Initial number of event ids, and of rows of edge features; by default as many as needed.
    pub events: Option<usize>,
}

/// A new event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewEvent<'a> {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Time in ticks since the first event of the data set.
    pub time: i64,
    /// Edge features, as wide as those of the data set.
    pub features: &'a [f32],
}

/// A trained model, its memory, and the recent history of a stream that continues. See the [module](self).
pub struct Predictor {
    manifest: Manifest,
    config: Config,
    device: Device,
    sizes: OpenEnd,
    built: Built,
    /// Id of the next event.
    next: u32,
    /// Time of the last event.
    latest: Option<i64>,
    /// Number of events since training.
    seen: u64,
}

/// Where a batch writes its results.
#[derive(Clone, Copy)]
struct Outputs {
    /// `[batch, 1]` f32.
    logits: BufferId,
    /// `[batch, width]` f32 each: the embeddings of sources and of destinations.
    sides: [BufferId; 2],
}

/// A model and its programs, for tables of given sizes.
struct Built {
    store: Store,
    parameters: Parameters,
    net: Net,
    tables: EventTables,
    arrivals: Arrivals,
    outputs: Outputs,
    /// Scores a batch, then updates the state.
    advance: Program,
    /// Only scores a batch; recorded at its first use.
    look: Option<Program>,
}

impl Built {
    /// Builds the model and its programs, without a trained state.
    ///
    /// # Errors
    /// `OutOfMemory`; the errors of recording.
    fn new(config: &Config, sizes: &OpenEnd, device: &Device) -> Result<Self> {
        let lists = size_of::<Entry>().saturating_mul(sizes.nodes).saturating_mul(sizes.slots);
        let state = config.event_model()?.state_bytes(sizes.nodes, sizes.edge_width, config.memory_as);
        let state = state.saturating_add(lists);
        check_room("node memory, mailbox and history", state, "take fewer nodes or slots")?;
        if sizes.edge_width > 0 {
            let bytes = 4 * sizes.edge_width * sizes.events;
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
        let (batch, width) = (Rows::fixed(sizes.batch), config.event_model()?.width());
        let logits = store.zeros("logits", Spec::real(batch, 1))?;
        let mut side = |name| store.zeros(name, Spec::real(batch, width));
        let outputs = Outputs { logits, sides: [side("sources")?, side("destinations")?] };
        let mut t = Tape::new();
        let advance = record(&mut t, &store, &net, &tables, outputs, sizes.batch, true)
            .and_then(|()| Program::new(&t, &[], Precision::F32, Backend::of(device)))?;
        Ok(Built { store, parameters, net, tables, arrivals, outputs, advance, look: None })
    }
    /// Returns the buffers to save: parameters, node memory, mailbox, static memory.
    fn kept(&self) -> Vec<BufferId> {
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
    fn rows_of(&self, nodes: usize) -> Vec<(BufferId, usize)> {
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
    fn run(&mut self, device: &Device, update: bool) -> Result<()> {
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
    fn check_events(&self, kept: u32) -> Result<()> {
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
    /// Renumbers the events that history and mails refer to from 0, in order. Returns their old ids.
    fn renumber(&mut self) -> Result<Vec<u32>> {
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
fn record(
    t: &mut Tape,
    store: &Store,
    net: &Net,
    tables: &EventTables,
    outputs: Outputs,
    capacity: usize,
    update: bool,
) -> Result<()> {
    let forward = net.forward(t, store, tables, capacity, Negatives::None, false)?;
    let table = t.stored(store, outputs.logits)?;
    t.write_rows(table, forward.batch.rank, forward.logits)?;
    for (side, id) in outputs.sides.into_iter().enumerate() {
        let rows = t.root_rows(forward.batch.src, forward.stride, side)?;
        let z = t.gather_rows(forward.embedded.z, rows)?;
        let table = t.stored(store, id)?;
        t.write_rows(table, forward.batch.rank, z)?;
    }
    if update {
        net.write(t, store, tables, &forward)?;
        tables.append(t, store, &forward.batch, &forward.embedded.unique, forward.stride)?;
    }
    Ok(())
}

/// Returns the number of slots per node, for a query that reads `read` events of a node; `saved` is the
/// number of slots in the checkpoint of a stream.
///
/// # Errors
/// `Usage` if the options ask for too few slots, or for another number than the checkpoint has.
fn slots_per_node(options: &PredictorOptions, saved: Option<usize>, read: usize) -> Result<usize> {
    let slots = options.slots.or(saved).unwrap_or(SLOTS_PER_NEIGHBOR * read);
    if slots >= read && saved.is_none_or(|saved| saved == slots) {
        return Ok(slots);
    }
    let remedy = match saved {
        Some(saved) => format!("give {saved}, the number of slots in the checkpoint"),
        None => format!("give at least {read}, the number of events that a query reads"),
    };
    Err(Error::usage(format!("slots is {slots}")).remedy(remedy))
}

/// Returns the maximum number of nodes, at least `known`.
///
/// # Errors
/// `Usage` if the options ask for fewer nodes, or for too many.
fn node_capacity(options: &PredictorOptions, known: usize) -> Result<usize> {
    let nodes = options.nodes.unwrap_or(known);
    if nodes < known || nodes >= NONE as usize {
        return Err(Error::usage(format!("{nodes} nodes, and the model knows {known}"))
            .remedy(format!("give {known} or more")));
    }
    Ok(nodes)
}

/// Returns the initial number of event ids if `held` events are kept.
fn initial_event_ids(options: &PredictorOptions, edge_width: usize, held: usize) -> usize {
    let needed = held + options.batch.max(1);
    match (options.events, edge_width) {
        (Some(events), _) => events.max(needed),
        (None, 0) => MOST_ITEMS,
        (None, _) => FEWEST_ROWS.max(2 * needed),
    }
}

impl Predictor {
    /// Opens the best state of a checkpoint, after the training and validation events of `events`, or the
    /// state that an earlier predictor [saved](Self::save). `events` is the data set that the model was
    /// trained on; it is not needed any more afterwards.
    ///
    /// # Errors
    /// `Checkpoint` if the checkpoint is damaged or of other data; `Usage` if its task is not link
    /// prediction, it samples neighbours other than the most recent ones, or the capacities in the options
    /// are too small; `OutOfMemory`.
    pub fn open(
        checkpoint: &Checkpoint,
        config: &Config,
        events: &Events,
        device: &Device,
        options: &PredictorOptions,
    ) -> Result<Self> {
        let manifest = checkpoint.manifest()?;
        let read = config.event_model()?.recent_events()?;
        same_data(&manifest, &DataRecord::of_events(events))?;
        same_model(&manifest, config)?;
        if config.task != TaskName::Link {
            return Err(Error::usage(format!("the checkpoint is of task {:?}", config.task).to_lowercase())
                .remedy("give one of task link"));
        }
        let record = manifest.stream.clone();
        let slots = slots_per_node(options, record.as_ref().map(|r| r.slots), read)?;
        let nodes = node_capacity(options, record.as_ref().map_or(events.nodes, |r| r.nodes))?;
        let device = device.clone().multiplying_in(config.precision)?;
        let split = config.split(events)?;
        let mut gaps = Gaps::unlimited(events.seconds_per_tick());
        gaps.longest = split.longest_gap(events, config.event_model()?.gap_quantile());
        let edge_width = events.edge_width();
        let held = record.as_ref().map_or(0, |r| r.next as usize);
        let sizes = OpenEnd {
            nodes,
            batch: options.batch.max(1),
            slots,
            events: initial_event_ids(options, edge_width, held),
            edge_width,
            node_features: events.node_features.clone(),
            gaps,
            memory_as: config.memory_as,
        };
        let built = Built::new(config, &sizes, &device)?;
        let config = config.clone();
        let mut p = Predictor { manifest, config, device, sizes, built, next: 0, latest: None, seen: 0 };
        match record {
            Some(record) => p.load_stream(checkpoint, &record)?,
            None => p.load_training(checkpoint, events, split.test.start, options)?,
        }
        Ok(p)
    }
    /// Loads the state that a predictor saved.
    fn load_stream(&mut self, checkpoint: &Checkpoint, record: &StreamRecord) -> Result<()> {
        let (entries, edge) = (self.built.arrivals.entries, self.built.arrivals.edge);
        let mut buffers = self.built.rows_of(record.nodes);
        buffers.extend([(entries, record.nodes * self.sizes.slots), (edge, self.rows(record.next))]);
        checkpoint.load_rows(&mut self.built.store, &buffers)?;
        self.built.check_events(record.next)?;
        (self.next, self.latest, self.seen) = (record.next, record.latest, record.events);
        Ok(())
    }
    /// Loads the best state of a training run, and the history of the events before `first`.
    fn load_training(
        &mut self,
        checkpoint: &Checkpoint,
        events: &Events,
        first: usize,
        options: &PredictorOptions,
    ) -> Result<()> {
        let buffers = self.built.rows_of(events.nodes);
        checkpoint.load_rows(&mut self.built.store, &buffers)?;
        let lists = Tcsr::latest(events, first, self.sizes.slots);
        let entries = self.built.store.get_mut::<i64>(self.built.arrivals.entries)?;
        bytemuck::cast_slice_mut::<i64, Entry>(entries)[..lists.len()].copy_from_slice(&lists);
        let held = self.built.renumber()?;
        (self.next, self.latest) = (held.len() as u32, events.time[..first].last().copied());
        let edge_width = self.sizes.edge_width;
        self.resize(initial_event_ids(options, edge_width, held.len()))?;
        if let Some(features) = &events.edge_features {
            let edge = self.built.store.get_mut::<f32>(self.built.arrivals.edge)?;
            let rows = edge.chunks_exact_mut(edge_width);
            rows.zip(held).for_each(|(row, event)| row.copy_from_slice(features.row(event as usize)));
        }
        Ok(())
    }
    /// Scores a batch of events in time order, then makes them history: updates memory, mails and neighbours
    /// of their nodes. Returns the logit of each event, computed from the state before the first event of the
    /// batch.
    ///
    /// # Errors
    /// `Data`, with the index in `events`, for a node beyond the maximum, a time before the previous one, or
    /// features of another width or that are not finite; `Usage` if there are more events than a batch may
    /// have. Nothing is changed then.
    pub fn advance(&mut self, events: &[NewEvent<'_>]) -> Result<&[f32]> {
        self.check(events)?;
        let width = self.sizes.edge_width;
        for (i, e) in events.iter().enumerate() {
            if e.features.len() != width || e.features.iter().any(|x| !x.is_finite()) {
                let what =
                    format!("event {i} has {} edge features, or one that is not finite", e.features.len());
                return Err(Error::new(ErrorKind::Data, what).remedy(format!("give {width} finite numbers")));
            }
            let before = if i == 0 { self.latest } else { Some(events[i - 1].time) };
            if let Some(before) = before.filter(|&t| e.time < t) {
                let what = format!("event {i} has time {}, earlier than {before} before it", e.time);
                return Err(Error::new(ErrorKind::Data, what).remedy("give events in order of time"));
            }
        }
        self.reserve_ids()?;
        self.bring(events)?;
        let features = self.built.store.get_mut::<f32>(self.built.arrivals.features)?;
        let stored_as = self.manifest.config.features_as;
        for (to, e) in features.chunks_mut(width.max(1)).zip(events) {
            to.iter_mut().zip(e.features).for_each(|(to, &x)| *to = stored_as.nearest(x));
        }
        self.built.run(&self.device, true)?;
        self.next += events.len() as u32;
        self.seen += events.len() as u64;
        self.latest = events.last().map(|e| e.time).or(self.latest);
        self.logits(events.len())
    }
    /// Returns the embeddings of the first `n` events of the batch that was scored last: `[n, width]` for the
    /// sources, and for the destinations.
    ///
    /// # Errors
    /// `Device` if a copy fails.
    pub fn embeddings(&mut self, n: usize) -> Result<[&[f32]; 2]> {
        let Built { store, outputs, .. } = &mut self.built;
        store.fetch(&outputs.sides)?;
        let first_rows = |id| Ok(&store.read::<f32>(id)?[..n * store.spec(id).cols]);
        let [sources, destinations] = outputs.sides;
        Ok([first_rows(sources)?, first_rows(destinations)?])
    }
    /// Returns the logits of an event of each pair at `time`, after all events so far. Changes nothing. If
    /// `time` is before the last event, only the part of the history before it that is still kept counts.
    ///
    /// # Errors
    /// `Data` for a node beyond the maximum.
    pub fn score(&mut self, pairs: &[[u32; 2]], time: i64) -> Result<Vec<f32>> {
        let events: Vec<NewEvent<'_>> =
            pairs.iter().map(|&[src, dst]| NewEvent { src, dst, time, features: &[] }).collect();
        let mut logits = Vec::with_capacity(pairs.len());
        for events in events.chunks(self.sizes.batch) {
            self.look(events)?;
            logits.extend_from_slice(self.logits(events.len())?);
        }
        Ok(logits)
    }
    /// Returns the embeddings `[n, width]` of nodes at times, after all events so far. Changes nothing.
    ///
    /// # Errors
    /// `Data` for a node beyond the maximum; `Usage` if the numbers of nodes and times differ.
    pub fn embed(&mut self, nodes: &[u32], times: &[i64]) -> Result<Vec<f32>> {
        if nodes.len() != times.len() {
            return Err(Error::usage(format!("{} nodes and {} times", nodes.len(), times.len()))
                .remedy("give a time for every node"));
        }
        let event = |(&v, &time)| NewEvent { src: v, dst: v, time, features: &[] };
        let events: Vec<NewEvent<'_>> = nodes.iter().zip(times).map(event).collect();
        let mut embeddings = Vec::new();
        for events in events.chunks(self.sizes.batch) {
            self.look(events)?;
            embeddings.extend_from_slice(self.embeddings(events.len())?[0]);
        }
        Ok(embeddings)
    }
    /// Saves the state after the stream so far into the folder `dir`, atomically. It can be
    /// [opened](Self::open) again.
    ///
    /// # Errors
    /// `Usage` if `dir` holds the checkpoint of a training run; `Io`.
    pub fn save(&mut self, dir: &Path, new_nodes: &[[u64; 2]]) -> Result<()> {
        let checkpoint = Checkpoint::at(dir);
        checkpoint.may_hold_stream()?;
        self.compact()?;
        let stream = StreamRecord {
            nodes: self.sizes.nodes,
            slots: self.sizes.slots,
            events: self.seen,
            next: self.next,
            latest: self.latest,
            new_nodes: new_nodes.to_vec(),
        };
        let OpenEnd { nodes, slots, .. } = self.sizes;
        let (entries, edge) = (self.built.arrivals.entries, self.built.arrivals.edge);
        let mut buffers = self.built.rows_of(nodes);
        buffers.extend([(entries, nodes * slots), (edge, self.rows(self.next))]);
        let ids: Vec<BufferId> = buffers.iter().map(|b| b.0).collect();
        self.built.store.fetch(&ids)?;
        let manifest = Manifest { stream: Some(stream), ..self.manifest.clone() };
        checkpoint.save_stream(&self.built.store, &buffers, manifest)
    }
    /// Returns the maximum number of nodes.
    pub fn nodes(&self) -> usize {
        self.sizes.nodes
    }
    /// Returns the width of the edge features that every event has.
    pub fn edge_width(&self) -> usize {
        self.sizes.edge_width
    }
    /// Returns the time of the last event, in ticks.
    pub fn latest(&self) -> Option<i64> {
        self.latest
    }
    /// Returns the number of events since training, including those before a [`save`](Self::save).
    pub fn seen(&self) -> u64 {
        self.seen
    }
    /// Returns the bytes of state, tables and values of a step.
    pub fn bytes(&self) -> usize {
        let Built { store, advance, look, .. } = &self.built;
        let stored: std::collections::BTreeSet<BufferId> = advance.stored().collect();
        let stored: usize = stored.into_iter().map(|id| store.spec(id).bytes(store.precision())).sum();
        stored + advance.arena_bytes() + look.as_ref().map_or(0, |program| program.arena_bytes())
    }

    /// Returns the number of rows of edge features of `events` events.
    fn rows(&self, events: u32) -> usize {
        if self.sizes.edge_width > 0 { events as usize } else { 0 }
    }
    /// Checks the number of events of a batch, and their nodes.
    fn check(&self, events: &[NewEvent<'_>]) -> Result<()> {
        if events.len() > self.sizes.batch {
            return Err(Error::usage(format!("{} events, in batches of {}", events.len(), self.sizes.batch))
                .remedy("open the predictor with a larger batch"));
        }
        let nodes = self.sizes.nodes;
        match events.iter().position(|e| e.src as usize >= nodes || e.dst as usize >= nodes) {
            Some(i) => {
                let v = events[i].src.max(events[i].dst);
                let what = format!("event {i} has node {v}, and the predictor holds {nodes} nodes");
                Err(Error::new(ErrorKind::Data, what).remedy("open the predictor with more nodes"))
            }
            None => Ok(()),
        }
    }
    /// Writes a batch of events to the tables that programs read, without edge features.
    fn bring(&mut self, events: &[NewEvent<'_>]) -> Result<()> {
        let Built { store, arrivals, tables, .. } = &mut self.built;
        let ids = self.next..;
        store.get_mut::<u32>(arrivals.src)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.src);
        store.get_mut::<u32>(arrivals.dst)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.dst);
        store.get_mut::<i64>(arrivals.time)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.time);
        store.get_mut::<u32>(arrivals.event)?.iter_mut().zip(ids).for_each(|(to, id)| *to = id);
        tables.seek(store, 0, 0..events.len(), 0)
    }
    /// Scores a batch and changes nothing.
    fn look(&mut self, events: &[NewEvent<'_>]) -> Result<()> {
        self.check(events)?;
        self.reserve_ids()?;
        if self.built.look.is_none() {
            let Built { store, net, tables, outputs, .. } = &self.built;
            let mut t = Tape::new();
            record(&mut t, store, net, tables, *outputs, self.sizes.batch, false)?;
            self.built.look = Some(Program::new(&t, &[], Precision::F32, Backend::of(&self.device))?);
        }
        self.bring(events)?;
        self.built.run(&self.device, false)
    }
    /// Returns the logits of the first `n` events of the batch that was scored last.
    fn logits(&mut self, n: usize) -> Result<&[f32]> {
        let Built { store, outputs, .. } = &mut self.built;
        store.fetch(&[outputs.logits])?;
        Ok(&store.read::<f32>(outputs.logits)?[..n])
    }
    /// Makes sure that there are ids for the events of a batch.
    fn reserve_ids(&mut self) -> Result<()> {
        if self.next as usize + self.sizes.batch <= self.sizes.events {
            return Ok(());
        }
        self.compact()?;
        // At least half of the ids must be free, or the next renumbering would follow soon.
        let wanted = 2 * (self.next as usize + self.sizes.batch);
        if wanted > self.sizes.events { self.resize(wanted) } else { Ok(()) }
    }
    /// Renumbers the events that are still referred to, and moves their features.
    fn compact(&mut self) -> Result<()> {
        let held = self.built.renumber()?;
        let (Built { store, arrivals, .. }, width) = (&mut self.built, self.sizes.edge_width);
        if width > 0 {
            store.fetch(&[arrivals.edge])?;
            let rows = store.get_mut::<f32>(arrivals.edge)?;
            for (to, &from) in held.iter().enumerate() {
                let from = from as usize * width;
                rows.copy_within(from..from + width, to * width);
            }
        }
        self.next = held.len() as u32;
        Ok(())
    }
    /// Changes the number of event ids to `events`, by building new tables and programs.
    fn resize(&mut self, events: usize) -> Result<()> {
        let events = events.min(MOST_ITEMS);
        if self.next as usize + self.sizes.batch > events {
            let what = format!("{} events are kept, too many to number", self.next);
            return Err(Error::new(ErrorKind::OutOfMemory, what).remedy("take fewer nodes or slots"));
        }
        if events == self.sizes.events {
            return Ok(());
        }
        self.sizes.events = events;
        let fresh = Built::new(&self.config, &self.sizes, &self.device)?;
        let mut old = std::mem::replace(&mut self.built, fresh);
        let moved = |b: &Built| [b.kept(), vec![b.arrivals.entries, b.arrivals.edge]].concat();
        let (from, to) = (moved(&old), moved(&self.built));
        old.store.fetch(&from)?;
        for (from, to) in from.into_iter().zip(to) {
            let (from, to) = (old.store.raw(from)?, self.built.store.raw_mut(to)?);
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
        }
        Ok(())
    }
}
