//! Online prediction: a trained model on a stream that continues. Events arrive batch by batch, are scored,
//! and become history.
//!
//! ```no_run
//! use tgnn::runtime::Device;
//! use tgnn_training::task::{Checkpoint, NewEvent, Predictor, PredictorOptions};
//!
//! let checkpoint = Checkpoint::at("runs/first");
//! let config = checkpoint.manifest()?.config;
//! let options = PredictorOptions::default();
//! let mut predictor = Predictor::open(&checkpoint, &config, &Device::cpu(0)?, &options)?;
//! let now = predictor.latest().unwrap_or(0) + 60;
//! let logits = predictor.advance(&[NewEvent { src: 3, dst: 8_230, time: now, features: &[] }])?;
//! println!("{}", logits[0]);
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! The run folder has everything that the predictor needs, so the training data may be gone. With the weights
//! and the node memory of the best epoch, training writes an extract of its data: the most recent events of
//! every node with their edge features, the node features and the original ids. A query at the end of
//! training or later finds in it all that it reads; a query at an earlier time may find less. A predictor
//! knows all events of the data, or those of training and validation ([`After`]).
//!
//! For every node, the [`PredictorOptions::slots`] most recent events are kept. A query reads the `k` most
//! recent events before its time, so scores equal those of a model with the whole history, unless more than
//! `slots - k` of a node's kept events are not earlier than the query: they have its time or, in a batch
//! whose events see one another (`history`), a later one. Memory does not grow with the
//! stream: when the event ids (and the rows of edge features, which they index) are used up, the events that
//! slots and mails still refer to are renumbered from 0.
mod built;
mod state;

use crate::{
    model::OpenEnd,
    task::{
        config::{Config, TaskName},
        training::{
            After, Checkpoint, Extract, ExtractRecord, LatestRecord, Manifest, StreamRecord, same_model,
        },
    },
};
use built::Built;
use state::KeptExtract;
pub use state::PredictorState;
use std::sync::Arc;
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::{
        MOST_ITEMS,
        sample_neighbors::{Entry, History},
    },
    runtime::*,
};
use tgnn_data::{FeatureEncoding, Ids, NodeId, NodeNames, Tcsr, TimeScale};

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
    /// Number of most recent events kept per node; at least as many as a query reads. By default 4 times
    /// that, and the events of a batch if they see one another.
    pub slots: Option<usize>,
    /// Initial number of event ids, and of rows of edge features; by default as many as needed.
    pub events: Option<usize>,
    /// What the model knows at first, if the checkpoint is of a training run.
    pub after: After,
    /// Maximum number of pairs that [`Predictor::score`] scores together; at least and by default `batch`. Of
    /// many candidates it scores more in a second.
    pub scored: usize,
}

/// A new event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewEvent<'a> {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Time in ticks since the first event of the data set: the original time less
    /// [`TimeScale::origin`].
    pub time: i64,
    /// Edge features, as wide as those of the data set.
    pub features: &'a [f32],
}

/// A trained model, its memory, and the recent history of a stream that continues. See the [module](self).
pub struct Predictor {
    manifest: Manifest,
    config: Config,
    device: Device,
    /// Maximum number of events that become history together.
    batch: usize,
    sizes: OpenEnd,
    /// Original ids of the nodes of the data set.
    ids: Option<Ids>,
    /// The record of the extract of the training data.
    data: ExtractRecord,
    /// What a saved stream has of these data, once it was saved.
    extract: Option<Arc<KeptExtract>>,
    built: Built,
    /// Id of the next event.
    next: u32,
    /// Time of the last event.
    latest: Option<i64>,
    /// Number of events since training.
    seen: u64,
    /// Number of events of the batch that became history last.
    advanced: usize,
}

brief_debug!(Predictor, p => { nodes: p.sizes.nodes, latest: p.latest, seen: p.seen });

/// Returns the number of slots per node, for a query that reads `read` events of a node; `saved` is the
/// number of slots in the checkpoint of a stream.
fn slots_per_node(
    options: &PredictorOptions,
    saved: Option<usize>,
    read: usize,
    history: History,
) -> Result<usize> {
    // The slots of a node also hold the events of a batch that come after the query.
    let later = if history == History::Time && read > 0 { options.batch.max(1) - 1 } else { 0 };
    let most_later = SLOTS_PER_NEIGHBOR.saturating_mul(read).saturating_add(later);
    let slots = options.slots.or(saved).unwrap_or(most_later);
    if options.slots.is_none() && slots < read.saturating_add(later) {
        let what =
            format!("a node keeps {slots} events, and may have {later} later ones in the batch of a query");
        let most = slots.saturating_sub(read) + 1;
        return Err(Error::usage(what).remedy(format!(
            "give batches of at most {most}, or accept fewer neighbours with {slots} slots"
        )));
    }
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
fn node_capacity(options: &PredictorOptions, known: usize) -> Result<usize> {
    let nodes = options.nodes.unwrap_or(known);
    if nodes < known || nodes >= NONE as usize {
        return Err(Error::usage(format!("{nodes} nodes, and the model knows {known}"))
            .remedy(format!("give {known} or more")));
    }
    Ok(nodes)
}

/// Returns the maximum number of events of a batch.
fn batch_capacity(options: &PredictorOptions) -> Result<usize> {
    match options.batch.max(1) {
        batch if batch <= MOST_ITEMS => Ok(batch),
        batch => {
            Err(Error::usage(format!("batches of {batch} events"))
                .remedy(format!("give at most {MOST_ITEMS}")))
        }
    }
}

/// Returns the initial number of event ids if `held` events are kept.
fn initial_event_ids(options: &PredictorOptions, edge_width: usize, held: usize) -> usize {
    let needed = held.saturating_add(options.batch.max(options.scored).max(1));
    match (options.events, edge_width) {
        (Some(events), _) => events.max(needed),
        (None, 0) => MOST_ITEMS,
        (None, _) => FEWEST_ROWS.max(needed.saturating_mul(2)),
    }
}

/// Returns the state after all events of a training run, if that is asked for; `None` if the state after
/// validation is, or that of a stream.
fn latest_of(checkpoint: &Checkpoint, manifest: &Manifest, after: After) -> Result<Option<LatestRecord>> {
    if after == After::Validation && manifest.stream.is_some() {
        let what = "the checkpoint was saved after a stream, and has no state after validation";
        return Err(Error::new(ErrorKind::Checkpoint, what)
            .in_file(checkpoint.path())
            .remedy("leave out --after, or give the checkpoint of the training run"));
    }
    if after == After::Validation && !manifest.config.evaluate {
        let what = "the run did not evaluate, and has no state after validation";
        return Err(Error::new(ErrorKind::Checkpoint, what)
            .in_file(checkpoint.path())
            .remedy("leave out --after, or train without --no-eval"));
    }
    if after == After::Validation || manifest.stream.is_some() {
        return Ok(None);
    }
    manifest.latest.clone().map(Some).ok_or_else(|| {
        let what =
            "the run has no state after its last event: it has not ended, or an earlier version made it";
        Error::new(ErrorKind::Checkpoint, what)
            .in_file(checkpoint.path())
            .remedy("resume it, or let the model come after validation (--after validation)")
    })
}

impl Predictor {
    /// Opens the best state of a training run, after all of its events or after those of training and
    /// validation ([`After`]), or the state that an earlier predictor [saved](Self::save).
    ///
    /// # Errors
    /// `Checkpoint` if the checkpoint is damaged, of another model, without an extract of its data, or of a
    /// run that has not ended, so that its model has not seen all events;
    /// `Usage` if its task is not link prediction, it samples neighbours other than the most recent ones, or
    /// the capacities in the options are too small; `OutOfMemory`.
    pub fn open(
        checkpoint: &Checkpoint,
        config: &Config,
        device: &Device,
        options: &PredictorOptions,
    ) -> Result<Self> {
        let manifest = checkpoint.manifest()?;
        let read = config.event_model()?.recent_events()?;
        same_model(&manifest, config)?;
        if config.task != TaskName::Link {
            return Err(Error::usage(format!("the checkpoint is of task {:?}", config.task).to_lowercase())
                .remedy("give one of task link"));
        }
        let batch = batch_capacity(options)?;
        let (stream, (_, known, edge_width)) = (manifest.stream.clone(), manifest.data);
        let slots = slots_per_node(options, stream.as_ref().map(|r| r.slots), read, config.history())?;
        let nodes = node_capacity(options, stream.as_ref().map_or(known, |r| r.nodes))?;
        let device = device.clone().multiplying_in(config.precision)?;
        let latest = latest_of(checkpoint, &manifest, options.after)?;
        let of = latest.as_ref().map(|latest| &latest.extract).or(manifest.extract.as_ref());
        let (data, mut extract) = checkpoint.extract(&manifest, of)?;
        data.has_events(read)?;
        let held = stream.as_ref().map_or(0, |r| r.next as usize);
        let sizes = OpenEnd {
            nodes,
            batch: batch.max(options.scored.min(MOST_ITEMS)),
            slots,
            events: initial_event_ids(options, edge_width, held),
            edge_width,
            node_features: extract.node_features.take(),
            gaps: data.gaps(),
            history: config.history(),
            memory_as: config.memory_as,
        };
        Built::check_state(config, &sizes)?;
        let (built, ids) = (Built::new(config, &sizes, batch, &device)?, extract.ids.take());
        let config = config.clone();
        let mut p = Predictor {
            manifest,
            config,
            device,
            batch,
            sizes,
            ids,
            data,
            extract: None,
            built,
            next: 0,
            latest: None,
            seen: 0,
            advanced: 0,
        };
        match stream {
            Some(record) => p.load_stream(checkpoint, &record)?,
            None => p.load_training(checkpoint, &extract, options, latest.as_ref())?,
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
    /// Loads the best state of a training run, and the history from the extract of its data.
    fn load_training(
        &mut self,
        checkpoint: &Checkpoint,
        extract: &Extract,
        options: &PredictorOptions,
        latest: Option<&LatestRecord>,
    ) -> Result<()> {
        let nodes = self.manifest.data.1;
        let mut buffers = self.built.rows_of(nodes);
        checkpoint.load_rows(&mut self.built.store, &buffers)?;
        if let Some(latest) = latest {
            let state = self.built.net.model.state();
            buffers.retain(|(id, _)| state.contains(id));
            checkpoint.load_latest(&mut self.built.store, &buffers, latest)?;
        }
        self.built.index_mails(&extract.event)?;
        let lists = Tcsr::latest([&extract.src, &extract.dst], &extract.time, nodes, self.sizes.slots);
        let entries = self.built.store.get_mut::<i64>(self.built.arrivals.entries)?;
        bytemuck::cast_slice_mut::<i64, Entry>(entries)[..lists.len()].copy_from_slice(&lists);
        let held = self.built.renumber()?;
        (self.next, self.latest) = (held.len() as u32, self.data.latest);
        let edge_width = self.sizes.edge_width;
        self.resize(initial_event_ids(options, edge_width, held.len()))?;
        if let Some(features) = &extract.edge_features {
            let edge = self.built.store.get_mut::<f32>(self.built.arrivals.edge)?;
            let rows = edge.chunks_exact_mut(edge_width);
            rows.zip(held).for_each(|(row, event)| row.copy_from_slice(features.row(event as usize)));
        }
        Ok(())
    }
    /// Scores a batch of events in time order, then makes them history: updates memory, mails and neighbours
    /// of their nodes. Returns the logit of each event, computed from the memory before the first event of
    /// the batch; whether neighbours are also from the batch is the run's `history`.
    ///
    /// # Errors
    /// `Data`, with the index in `events`, for a node beyond the maximum, a time before the previous one, or
    /// features of another width or that are not finite; `Usage` if there are more events than a batch may
    /// have. Nothing is changed then.
    pub fn advance(&mut self, events: &[NewEvent<'_>]) -> Result<&[f32]> {
        self.check(events, self.batch)?;
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
        self.advanced = 0;
        self.built.run(&self.device, true)?;
        self.advanced = events.len();
        self.next += events.len() as u32;
        self.seen += events.len() as u64;
        self.latest = events.last().map(|e| e.time).or(self.latest);
        self.built.logits(self.built.outputs, events.len())
    }
    /// Returns the embeddings of the first `n` events of the last [`advance`](Self::advance), as they were
    /// when these were scored: `[n, width]` for the sources, and for the destinations. What was only scored
    /// or embedded since then changes nothing.
    ///
    /// # Errors
    /// `Usage` if the last `advance` had fewer events, or there was none since the predictor was opened;
    /// `Device` if a copy fails.
    pub fn embeddings(&mut self, n: usize) -> Result<[&[f32]; 2]> {
        if n > self.advanced {
            let what = format!("embeddings of {n} events, and the last batch had {}", self.advanced);
            return Err(Error::usage(what).remedy("ask for those of the last `advance`"));
        }
        self.built.sides(self.built.outputs, n)
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
            logits.extend_from_slice(self.built.logits(self.built.looked, events.len())?);
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
            embeddings.extend_from_slice(self.built.sides(self.built.looked, events.len())?[0]);
        }
        Ok(embeddings)
    }
    /// Returns the node numbers of the original ids, including those of nodes that an earlier predictor
    /// numbered and [saved](Self::save).
    pub fn names(&self) -> NodeNames {
        let (first, known) = (self.data.first_destination, self.manifest.data.1);
        let new = self.manifest.stream.as_ref().map_or(&[][..], |stream| &stream.new_nodes);
        NodeNames::new(self.ids.as_ref(), first, known, self.sizes.nodes, new)
    }
    /// Returns the nodes of the data set that events lead to: its destinations, or all of its nodes if
    /// sources and destinations are one kind.
    pub fn destinations(&self) -> std::ops::Range<u32> {
        self.data.first_destination.unwrap_or(0)..self.manifest.data.1 as u32
    }
    /// Returns the original id of a node of the data set; `None` for nodes that are new.
    pub fn id(&self, node: u32) -> Option<NodeId> {
        let known = (node as usize) < self.manifest.data.1;
        known.then(|| {
            self.ids.as_ref().and_then(|ids| ids.get(node as usize)).unwrap_or(NodeId::Number(node.into()))
        })
    }
    /// Returns the conversion between ticks and the times of the data set.
    pub fn time_scale(&self) -> TimeScale {
        let (ticks_per_second, origin) = (self.data.ticks_per_second, self.data.origin);
        TimeScale { ticks_per_second, origin, format: self.data.time_format.clone() }
    }
    /// Returns how columns of the data became the edge features; numbers if they were no columns.
    pub fn encoding(&self) -> FeatureEncoding {
        self.data.encoding.clone().unwrap_or_else(|| FeatureEncoding::numbers(self.sizes.edge_width))
    }
    /// Whether the edge features were columns of the data, which have names.
    pub fn has_feature_names(&self) -> bool {
        // Columns without a header are called by their numbers.
        let is_named = |name: &str| name.parse::<usize>().is_err();
        self.data.encoding.as_ref().is_some_and(|encoding| encoding.0.iter().any(|c| is_named(&c.name)))
    }
    /// Returns the maximum number of nodes.
    pub fn nodes(&self) -> usize {
        self.sizes.nodes
    }
    /// Returns the width of the embeddings.
    pub fn width(&self) -> usize {
        self.built.store.spec(self.built.outputs.sides[0]).cols
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
    fn check(&self, events: &[NewEvent<'_>], batch: usize) -> Result<()> {
        if events.len() > batch {
            return Err(Error::usage(format!("{} events, in batches of {batch}", events.len()))
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
        self.check(events, self.sizes.batch)?;
        self.reserve_ids()?;
        self.built.record_look(self.sizes.batch, &self.device)?;
        self.bring(events)?;
        self.built.run(&self.device, false)
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
    /// Changes the number of event ids to `events`, by building new tables and programs. The state moves
    /// there, and is not copied: a stream does not wait for that.
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
        let fresh = Built::new(&self.config, &self.sizes, self.batch, &self.device)?;
        let mut old = std::mem::replace(&mut self.built, fresh);
        let moved =
            |b: &Built| [&b.kept()[..], &[b.arrivals.entries, b.arrivals.edge], &b.outputs.sides].concat();
        let (from, to) = (moved(&old), moved(&self.built));
        old.store.fetch(&from)?;
        let mut pairs = from.into_iter().zip(to);
        pairs.try_for_each(|(from, to)| self.built.store.take(to, &mut old.store, from))
    }
}
