//! A trained model on a stream that goes on: events come batch by batch, are scored, and become history.
//!
//! ```no_run
//! use tgnn::{runtime::Device, task::{Checkpoint, NewEvent, Predictor, PredictorOptions}};
//!
//! let checkpoint = Checkpoint::at("runs/first");
//! let config = checkpoint.manifest()?.config;
//! let events = config.load()?; // what it was trained on
//! let options = PredictorOptions::default();
//! let mut predictor = Predictor::open(&checkpoint, &config, &events, &Device::cpu(0)?, &options)?;
//! let now = events.time[events.len() - 1];
//! let logits = predictor.advance(&[NewEvent { src: 3, dst: 8_230, time: now, features: &[] }])?;
//! println!("{}", logits[0]);
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! Of every node the most recent events are kept, in as many slots as [`PredictorOptions::slots`] says. A query reads the
//! `k` most recent before its time, so figures are those of the whole stream unless more than `slots - k` of a node's kept
//! events have the very time of the query. Memory does not grow with the stream: when event ids, and with them the rows of
//! edge features, are used up, those that slots and mails still refer to are numbered anew.
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

/// Slots a node, for every event that a query reads, unless somebody says otherwise.
const SLOTS_PER_NEIGHBOR: usize = 4;
/// Fewest rows of edge features that there is room for, so that they are not numbered anew all the time.
const FEWEST_ROWS: usize = 1 << 16;

/// What a [`Predictor`] has room for. The default is one event a batch, and the nodes of the data set.
#[derive(Clone, Debug, Default)]
pub struct PredictorOptions {
    /// Most events of a batch; 0 counts as 1.
    pub batch: usize,
    /// Nodes, those included that are to come; at least those of the data set.
    pub nodes: Option<usize>,
    /// Most recent events that are kept of a node; at least as many as a query reads, 4 times that unless given.
    pub slots: Option<usize>,
    /// Event ids, and with them rows of edge features, to begin with; as many as it takes unless given.
    pub events: Option<usize>,
}

/// An event that has just come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewEvent<'a> {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Ticks since the first event of the data set.
    pub time: i64,
    /// As many as the data set's edge features are wide.
    pub features: &'a [f32],
}

/// A trained model, its memory, and the recent history of a stream that goes on. See the [module](self).
pub struct Predictor {
    manifest: Manifest,
    config: Config,
    device: Device,
    room: OpenEnd,
    built: Built,
    /// Id of the next event.
    next: u32,
    latest: Option<i64>,
    /// Events since training.
    seen: u64,
}

/// A model and its programs, for a given room.
struct Built {
    store: Store,
    parameters: Parameters,
    net: Net,
    tables: EventTables,
    came: Arrivals,
    logits: BufferId,
    sides: [BufferId; 2],
    /// Scores, then updates.
    advance: Program,
    /// Scores alone, where somebody asked for it.
    look: Option<Program>,
}

impl Built {
    fn new(config: &Config, room: &OpenEnd, device: &Device) -> Result<Self> {
        let lists = size_of::<Entry>().saturating_mul(room.nodes).saturating_mul(room.slots);
        let state = config.event_model()?.state_bytes(room.nodes, room.edge_width, config.memory_as);
        let state = state.saturating_add(lists);
        check_room("node memory, mailbox and history", state, "take fewer nodes or slots")?;
        if room.edge_width > 0 {
            let bytes = 4 * room.edge_width * room.events;
            check_room("features of the events that are remembered", bytes, "take fewer nodes or slots")?;
        }
        let mut store = Store::new(Precision::F32);
        let (mut tables, came) = EventTables::open_ended(&mut store, room)?;
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate)?;
        if config.static_mode() != StaticMode::Off {
            tables.static_memory = config.static_memory.add(&mut parameters, &mut store, room.nodes)?;
        }
        let (head, seed) = (HeadKind::Links, config.seed);
        let net = Net::new(&mut parameters, &mut store, &tables, config.event_model()?, head, seed)?;
        // A node that training never saw has learned nothing.
        let rows = parameters.iter().find(|p| p.0 == StaticConfig::ROWS).map(|p| p.1);
        rows.into_iter().try_for_each(|id| store.clear(id))?;
        let (batch, width) = (Rows::fixed(room.batch), config.event_model()?.width());
        let logits = store.zeros("logits", Spec::real(batch, 1))?;
        let mut side = |name| store.zeros(name, Spec::real(batch, width));
        let sides = [side("sources")?, side("destinations")?];
        let mut t = Tape::new();
        let advance = record(&mut t, &store, (&net, &tables), (logits, sides), room.batch, true)
            .and_then(|()| Program::new(&t, &[], Precision::F32, Backend::of(device)))?;
        Ok(Built { store, parameters, net, tables, came, logits, sides, advance, look: None })
    }
    /// Parameters, memory, mailbox, static memory.
    fn kept(&self) -> Vec<BufferId> {
        let mut all: Vec<BufferId> = self.parameters.iter().map(|p| p.1).collect();
        let others = self.net.model.state().into_iter().chain(self.tables.static_memory);
        for id in others {
            if !all.contains(&id) {
                all.push(id);
            }
        }
        all
    }
    /// [`kept`](Self::kept), each with as many rows as it would have for `nodes` nodes.
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
    /// Runs a program on the events that were brought.
    fn run(&mut self, device: &Device, update: bool) -> Result<()> {
        let (store, mut ignore) = (&mut self.store, |_: RepeatProgress<'_>| {});
        let program = match (&mut self.look, update) {
            (Some(look), false) => look,
            _ => &mut self.advance,
        };
        device.keep_awake(|| program.repeat(store, 1, &mut ignore)).map_err(|(_, e)| e)
    }
    /// Refuses history and mails of a checkpoint that refer to events that are not remembered, or to nodes that there are not.
    fn check_events(&self, remembered: u32) -> Result<()> {
        let mails = self.net.model.mail_event();
        let of_mails = mails.map_or(Ok(&[][..]), |id| self.store.read::<u32>(id))?;
        let lists: &[Entry] = bytemuck::cast_slice(self.store.read::<i64>(self.came.entries)?);
        let known = |event: u32| event == NONE || event < remembered;
        let nodes = self.tables.nodes;
        let there = |e: &Entry| e.event == NONE || (known(e.event) && (e.node as usize) < nodes);
        if of_mails.iter().all(|&event| known(event)) && lists.iter().all(there) {
            return Ok(());
        }
        let what = format!("history or mails name events beyond the {remembered} that are remembered");
        Err(Error::new(ErrorKind::Checkpoint, what).remedy("save the stream again"))
    }
    /// Numbers the events that history and mails refer to 0, 1, 2 in their order; returns what they were called before.
    fn renumber(&mut self) -> Result<Vec<u32>> {
        let (store, entries) = (&mut self.store, self.came.entries);
        let mails = self.net.model.mail_event();
        store.fetch(&[entries])?;
        store.fetch(mails.as_slice())?;
        let of_mails = mails.map_or(Ok(&[][..]), |id| store.read::<u32>(id))?.iter().copied();
        let lists: &[Entry] = bytemuck::cast_slice(store.read::<i64>(entries)?);
        let of_lists = lists.iter().map(|e| e.event);
        let mut held: Vec<u32> = of_lists.chain(of_mails).filter(|&e| e != NONE).collect();
        held.sort_unstable();
        held.dedup();
        let number = |event: &mut u32| {
            if let Ok(at) = held.binary_search(event) {
                *event = at as u32;
            }
        };
        let lists: &mut [Entry] = bytemuck::cast_slice_mut(store.get_mut::<i64>(entries)?);
        lists.iter_mut().for_each(|e| number(&mut e.event));
        if let Some(id) = mails {
            store.get_mut::<u32>(id)?.iter_mut().for_each(number);
        }
        Ok(held)
    }
}

/// Appends a batch of at most `capacity` events up to its logits and embeddings, and what it changes, where it is to `update`.
fn record(
    t: &mut Tape,
    store: &Store,
    (net, tables): (&Net, &EventTables),
    (logits, sides): (BufferId, [BufferId; 2]),
    capacity: usize,
    update: bool,
) -> Result<()> {
    let f = net.forward(t, store, tables, capacity, Negatives::None, false)?;
    let table = t.stored(store, logits)?;
    t.write_rows(table, f.batch.rank, f.logits)?;
    for (side, id) in sides.into_iter().enumerate() {
        let rows = t.root_rows(f.batch.src, f.stride, side)?;
        let z = t.gather_rows(f.embedded.z, rows)?;
        let table = t.stored(store, id)?;
        t.write_rows(table, f.batch.rank, z)?;
    }
    if update {
        net.write(t, store, tables, &f)?;
        tables.append(t, store, &f.batch, &f.embedded.unique, f.stride)?;
    }
    Ok(())
}

impl Predictor {
    /// The best state of a checkpoint, after the training and validation events of `events`, or what an earlier predictor
    /// [saved](Self::save), with the events of the data set it was trained on. These are not needed any more afterwards.
    ///
    /// # Errors
    /// Checkpoint when it is damaged or of other data; usage when it is of another task than link prediction, samples other
    /// neighbours than the most recent, or the options leave it too little room; `OutOfMemory`.
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
        let saved = record.as_ref().map(|r| r.slots);
        let slots = options.slots.or(saved).unwrap_or(SLOTS_PER_NEIGHBOR * read);
        if slots < read || saved.is_some_and(|saved| saved != slots) {
            let (found, want) = (saved.unwrap_or(read), if saved.is_some() { "" } else { "at least " });
            return Err(Error::usage(format!("{slots} events of a node are to be kept"))
                .remedy(format!("give {want}{found}")));
        }
        let known = record.as_ref().map_or(events.nodes, |r| r.nodes);
        let nodes = options.nodes.unwrap_or(known);
        if nodes < known || nodes >= NONE as usize {
            return Err(Error::usage(format!("{nodes} nodes, and the model knows {known}"))
                .remedy(format!("give {known} or more")));
        }
        let device = device.clone().multiplying_in(config.precision)?;
        let split = config.split(events)?;
        let mut gaps = Gaps::unlimited(events.seconds_per_tick());
        gaps.longest = split.longest_gap(events, config.event_model()?.gap_quantile());
        let (batch, edge_width) = (options.batch.max(1), events.edge_width());
        let ids = |held: usize| match (options.events, edge_width) {
            (Some(events), _) => events.max(held + batch),
            (None, 0) => MOST_ITEMS,
            (None, _) => FEWEST_ROWS.max(2 * (held + batch)),
        };
        let held = record.as_ref().map_or(0, |r| r.next as usize);
        let node_features = events.node_features.clone();
        let room = OpenEnd {
            nodes,
            batch,
            slots,
            events: ids(held),
            edge_width,
            node_features,
            gaps,
            memory_as: config.memory_as,
        };
        let built = Built::new(config, &room, &device)?;
        let config = config.clone();
        let mut p = Predictor { manifest, config, device, room, built, next: 0, latest: None, seen: 0 };
        if let Some(r) = record {
            let mut buffers = p.built.rows_of(r.nodes);
            buffers.extend([(p.built.came.entries, r.nodes * slots), (p.built.came.edge, p.rows(r.next))]);
            checkpoint.load_rows(&mut p.built.store, &buffers)?;
            p.built.check_events(r.next)?;
            (p.next, p.latest, p.seen) = (r.next, r.latest, r.events);
            return Ok(p);
        }
        let buffers = p.built.rows_of(known);
        checkpoint.load_rows(&mut p.built.store, &buffers)?;
        let first = split.test.start;
        let lists = Tcsr::latest(events, first, slots);
        let entries = p.built.store.get_mut::<i64>(p.built.came.entries)?;
        bytemuck::cast_slice_mut::<i64, Entry>(entries)[..lists.len()].copy_from_slice(&lists);
        let held = p.built.renumber()?;
        (p.next, p.latest) = (held.len() as u32, events.time[..first].last().copied());
        p.resize(ids(held.len()))?;
        if let Some(features) = &events.edge_features {
            let rows = p.built.store.get_mut::<f32>(p.built.came.edge)?.chunks_exact_mut(edge_width);
            rows.zip(held).for_each(|(row, event)| row.copy_from_slice(features.row(event as usize)));
        }
        Ok(p)
    }
    /// Scores `events`, at most a batch of them, in order of time: the logits of each being there, seen from before the first
    /// of them. Then they become history: memory, mails and neighbours of their nodes follow from them.
    ///
    /// # Errors
    /// Data, with the event's place in `events`, for a node that there is no room for, a time earlier than the one before it,
    /// features of another width or that are not finite; usage where there are more than a batch. Nothing is changed then.
    pub fn advance(&mut self, events: &[NewEvent<'_>]) -> Result<&[f32]> {
        self.check(events)?;
        let width = self.room.edge_width;
        for (i, e) in events.iter().enumerate() {
            if e.features.len() != width || e.features.iter().any(|x| !x.is_finite()) {
                let what = format!("event {i} has {} edge features, or one is not finite", e.features.len());
                return Err(Error::new(ErrorKind::Data, what).remedy(format!("give {width} finite numbers")));
            }
            let before = if i == 0 { self.latest } else { Some(events[i - 1].time) };
            if let Some(before) = before.filter(|&t| e.time < t) {
                let what = format!("event {i} has time {}, earlier than {before} before it", e.time);
                return Err(Error::new(ErrorKind::Data, what).remedy("give events in order of time"));
            }
        }
        self.make_room()?;
        self.bring(events)?;
        let features = self.built.store.get_mut::<f32>(self.built.came.features)?;
        let kept = self.manifest.config.features_as;
        for (to, e) in features.chunks_mut(width.max(1)).zip(events) {
            to.iter_mut().zip(e.features).for_each(|(to, &x)| *to = kept.nearest(x));
        }
        self.built.run(&self.device, true)?;
        self.next += events.len() as u32;
        self.seen += events.len() as u64;
        self.latest = events.last().map(|e| e.time).or(self.latest);
        self.logits(events.len())
    }
    /// Embeddings of the events that were scored last, `n` of them: `[n, width]` of their sources, and of their destinations.
    ///
    /// # Errors
    /// Device, when a copy fails.
    pub fn embeddings(&mut self, n: usize) -> Result<[&[f32]; 2]> {
        let Built { store, sides, .. } = &mut self.built;
        store.fetch(sides)?;
        let of = |id| Ok(&store.read::<f32>(id)?[..n * store.spec(id).cols]);
        Ok([of(sides[0])?, of(sides[1])?])
    }
    /// Logits of an event of each pair at `time`, after all that has come; nothing is changed. A time before the last event's
    /// finds of history what is left of it.
    ///
    /// # Errors
    /// Data for a node that there is no room for.
    pub fn score(&mut self, pairs: &[[u32; 2]], time: i64) -> Result<Vec<f32>> {
        let events: Vec<NewEvent<'_>> =
            pairs.iter().map(|&[src, dst]| NewEvent { src, dst, time, features: &[] }).collect();
        let mut all = Vec::with_capacity(pairs.len());
        for events in events.chunks(self.room.batch) {
            self.look(events)?;
            all.extend_from_slice(self.logits(events.len())?);
        }
        Ok(all)
    }
    /// Embeddings `[n, width]` of nodes at times, after all that has come; nothing is changed.
    ///
    /// # Errors
    /// Data for a node that there is no room for; usage when the numbers of nodes and times differ.
    pub fn embed(&mut self, nodes: &[u32], times: &[i64]) -> Result<Vec<f32>> {
        if nodes.len() != times.len() {
            return Err(Error::usage(format!("{} nodes and {} times", nodes.len(), times.len()))
                .remedy("give a time for every node"));
        }
        let event = |(&v, &time)| NewEvent { src: v, dst: v, time, features: &[] };
        let events: Vec<NewEvent<'_>> = nodes.iter().zip(times).map(event).collect();
        let mut all = Vec::new();
        for events in events.chunks(self.room.batch) {
            self.look(events)?;
            all.extend_from_slice(self.embeddings(events.len())?[0]);
        }
        Ok(all)
    }
    /// Saves the state after the stream so far, to be [opened](Self::open) again, into the folder `dir`, whole or not at all.
    ///
    /// # Errors
    /// Usage when `dir` holds the checkpoint of a training; Io.
    pub fn save(&mut self, dir: &Path, new_nodes: &[[u64; 2]]) -> Result<()> {
        let checkpoint = Checkpoint::at(dir);
        checkpoint.may_hold_stream()?;
        self.compact()?;
        let stream = StreamRecord {
            nodes: self.room.nodes,
            slots: self.room.slots,
            events: self.seen,
            next: self.next,
            latest: self.latest,
            new_nodes: new_nodes.to_vec(),
        };
        let (entries, edge) = (self.built.came.entries, self.built.came.edge);
        let mut buffers = self.built.rows_of(self.room.nodes);
        buffers.extend([(entries, self.room.nodes * self.room.slots), (edge, self.rows(self.next))]);
        let ids: Vec<BufferId> = buffers.iter().map(|b| b.0).collect();
        self.built.store.fetch(&ids)?;
        let manifest = Manifest { stream: Some(stream), ..self.manifest.clone() };
        checkpoint.save_stream(&self.built.store, &buffers, manifest)
    }
    /// Nodes that there is room for.
    pub fn nodes(&self) -> usize {
        self.room.nodes
    }
    /// Width of the edge features that every event has.
    pub fn edge_width(&self) -> usize {
        self.room.edge_width
    }
    /// Time of the last event, in ticks.
    pub fn latest(&self) -> Option<i64> {
        self.latest
    }
    /// Events since training, those before a [`save`](Self::save) included.
    pub fn seen(&self) -> u64 {
        self.seen
    }
    /// Bytes of state, tables and values of a step.
    pub fn bytes(&self) -> usize {
        let of = |p: &Program| p.arena_bytes();
        let Built { store, advance, look, .. } = &self.built;
        let stored: std::collections::BTreeSet<BufferId> = advance.stored().collect();
        let stored: usize = stored.into_iter().map(|id| store.spec(id).bytes(store.precision())).sum();
        stored + of(advance) + look.as_ref().map_or(0, of)
    }

    /// Rows of the edge features for so many event ids.
    fn rows(&self, events: u32) -> usize {
        if self.room.edge_width > 0 { events as usize } else { 0 }
    }
    fn check(&self, events: &[NewEvent<'_>]) -> Result<()> {
        if events.len() > self.room.batch {
            return Err(Error::usage(format!("{} events, in batches of {}", events.len(), self.room.batch))
                .remedy("open the predictor with a larger batch"));
        }
        let nodes = self.room.nodes;
        match events.iter().position(|e| e.src as usize >= nodes || e.dst as usize >= nodes) {
            Some(i) => {
                let v = events[i].src.max(events[i].dst);
                let what = format!("event {i} names node {v}, and there is room for {nodes}");
                Err(Error::new(ErrorKind::Data, what).remedy("open the predictor with more nodes"))
            }
            None => Ok(()),
        }
    }
    fn bring(&mut self, events: &[NewEvent<'_>]) -> Result<()> {
        let Built { store, came, tables, .. } = &mut self.built;
        let ids = self.next..;
        store.get_mut::<u32>(came.src)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.src);
        store.get_mut::<u32>(came.dst)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.dst);
        store.get_mut::<i64>(came.time)?.iter_mut().zip(events).for_each(|(to, e)| *to = e.time);
        store.get_mut::<u32>(came.event)?.iter_mut().zip(ids).for_each(|(to, id)| *to = id);
        tables.seek(store, 0, 0..events.len(), 0)
    }
    fn look(&mut self, events: &[NewEvent<'_>]) -> Result<()> {
        self.check(events)?;
        self.make_room()?;
        if self.built.look.is_none() {
            let Built { store, net, tables, logits, sides, .. } = &self.built;
            let mut t = Tape::new();
            record(&mut t, store, (net, tables), (*logits, *sides), self.room.batch, false)?;
            self.built.look = Some(Program::new(&t, &[], Precision::F32, Backend::of(&self.device))?);
        }
        self.bring(events)?;
        self.built.run(&self.device, false)
    }
    fn logits(&mut self, n: usize) -> Result<&[f32]> {
        let Built { store, logits, .. } = &mut self.built;
        store.fetch(&[*logits])?;
        Ok(&store.read::<f32>(*logits)?[..n])
    }
    /// Sees to it that a batch finds ids for its events.
    fn make_room(&mut self) -> Result<()> {
        if self.next as usize + self.room.batch <= self.room.events {
            return Ok(());
        }
        self.compact()?;
        // At least half of the ids shall be free, or it would not be long until the next time.
        let wanted = 2 * (self.next as usize + self.room.batch);
        if wanted > self.room.events { self.resize(wanted) } else { Ok(()) }
    }
    /// Numbers the events that are still referred to anew, and moves their features.
    fn compact(&mut self) -> Result<()> {
        let held = self.built.renumber()?;
        let (Built { store, came, .. }, f) = (&mut self.built, self.room.edge_width);
        if f > 0 {
            store.fetch(&[came.edge])?;
            let rows = store.get_mut::<f32>(came.edge)?;
            for (to, &from) in held.iter().enumerate() {
                rows.copy_within(from as usize * f..(from as usize + 1) * f, to * f);
            }
        }
        self.next = held.len() as u32;
        Ok(())
    }
    /// Makes room for that many event ids, by way of new tables and programs.
    fn resize(&mut self, events: usize) -> Result<()> {
        let events = events.min(NONE as usize);
        if self.next as usize + self.room.batch > events {
            let what = format!("{} events are remembered", self.next);
            return Err(Error::new(ErrorKind::OutOfMemory, what).remedy("take fewer nodes or slots"));
        }
        if events == self.room.events {
            return Ok(());
        }
        self.room.events = events;
        let fresh = Built::new(&self.config, &self.room, &self.device)?;
        let mut old = std::mem::replace(&mut self.built, fresh);
        let moved = |b: &Built| [b.kept(), vec![b.came.entries, b.came.edge]].concat();
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
