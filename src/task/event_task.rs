//! A model on an event stream, trained and evaluated: the one training loop's passes.
use super::{
    MemoryPlan,
    config::{Config, FeaturesOn, Protocol},
    metrics::Scores,
};
use crate::{
    autograd::{OpTime, Parameters, Program},
    data::{Events, Split},
    error::{Error, ErrorKind, Result},
    model::{EventTables, Negatives, Net, StaticMode},
    ops::{Backend, Node, Tape},
    runtime::*,
};
use std::ops::Range;

/// How far a pass is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Events done.
    pub events: usize,
    /// Events of the pass.
    pub total: usize,
    /// Mean loss of the pass so far, where it is training and the host has seen any.
    pub loss: Option<f64>,
}

/// Salts of the negatives' draws.
const TRAIN: u32 = 0x7261;
const EVALUATE: u32 = 0x6576;
/// Clock epochs of the evaluation passes: their draws are the same in every epoch.
const VAL: u32 = 0;
const TEST: u32 = 1;

/// A model on a stream, ready to train and to evaluate: programs for both, over one store.
pub struct EventTask {
    /// Parameters, memory, tables.
    pub store: Store,
    /// Parameters and optimiser.
    pub parameters: Parameters,
    /// The model, with its head.
    pub net: Net,
    /// The stream's tables.
    pub tables: EventTables,
    /// Parts of the stream.
    pub split: Split,
    device: Device,
    batch: usize,
    max_batches: usize,
    candidates: usize,
    step: Program,
    score: Program,
    losses: BufferId,
    scores: BufferId,
    memory: MemoryPlan,
    plan: &'static str,
}

impl EventTask {
    /// Builds the model and records both programs.
    ///
    /// # Errors
    /// Usage when the configuration contradicts itself, or the device.
    pub fn new(config: &Config, events: &Events, device: Device) -> Result<Self> {
        config.validate()?;
        let device = device.multiplying_in(config.precision)?;
        let split = Split::by_order(events, config.data.train, config.data.val)?;
        let candidates = 1 + config.protocol.negatives();
        let scores = candidates * split.val.len().max(split.test.len());
        let state = config.net().state_bytes(events.nodes, events.edge_width()) + 4 * scores;
        check_room("node memory, mailbox and scores", state, "take a narrower memory, or fewer nodes")?;
        let mut store = Store::new(Precision::F32);
        let mut tables = EventTables::new(&mut store, events);
        tables.gaps.longest = split.longest_gap(events, config.net().gap_quantile());
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate);
        if config.static_mode() != StaticMode::Off {
            tables.static_memory = config.static_memory.add(&mut parameters, &mut store, events.nodes);
        }
        let net = Net::new(&mut parameters, &mut store, &tables, config.net(), config.seed)?;
        let pool = config.protocol.pool(events);
        let pool = store.values("negatives", Spec::ids(Rows::fixed(pool.len()), 1), &pool);
        // A batch larger than the data is the whole data.
        let batch = config.batch.min(split.train.len().max(split.val.len()).max(split.test.len()));
        let batches = split.train.len().div_ceil(batch);
        let losses = store.zeros("losses", Spec::real(Rows::fixed(batches), 1));
        let longest = split.val.len().max(split.test.len());
        let scores = store.zeros("scores", Spec::real(Rows::fixed(longest), candidates));

        let plan = config.plan_on(&device)?;
        let planned = |t: &Tape| match plan {
            "prefetch" => Program::prefetching(t, &[], Precision::F32, Backend::of(&device)),
            _ => Program::new(t, &[], Precision::F32, Backend::of(&device)),
        };
        let record = |store: &mut Store, tables: &EventTables| -> Result<[Program; 2]> {
            let mut t = Tape::new();
            let negatives = Negatives::Drawn { pool, per_event: 1, salt: TRAIN };
            let f = net.forward(&mut t, store, tables, batch, negatives, true)?;
            let loss = t.bce_loss(f.logits)?;
            let table = t.stored(store, losses);
            t.write_rows(table, f.batch.index, loss)?;
            parameters.minimize(&mut t, store, loss)?;
            net.write(&mut t, store, tables, &f)?;
            let step = planned(&t)?;

            let mut t = Tape::new();
            let negatives = Negatives::Drawn { pool, per_event: candidates - 1, salt: EVALUATE };
            let f = net.forward(&mut t, store, tables, batch, negatives, false)?;
            let table = t.stored(store, scores);
            t.write_rows(table, f.batch.rank, f.logits)?;
            net.write(&mut t, store, tables, &f)?;
            Ok([step, planned(&t)?])
        };
        let free = device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        if config.features_on == FeaturesOn::Host && free.is_some() {
            tables.keep_features_on_host(&mut store);
        }
        let mut programs = record(&mut store, &tables)?;
        let memory_of = |store: &Store, tables: &EventTables, [step, score]: &[Program; 2]| {
            MemoryPlan::of(store, tables, [step, score], free)
        };
        let mut memory = memory_of(&store, &tables, &programs);
        if !memory.fits() && memory.features > 0 && config.features_on == FeaturesOn::Auto {
            tables.keep_features_on_host(&mut store);
            programs = record(&mut store, &tables)?;
            memory = memory_of(&store, &tables, &programs);
        }
        memory.check()?;
        let [step, score] = programs;

        let max_batches = if config.max_batches == 0 { usize::MAX } else { config.max_batches };
        Ok(EventTask {
            store,
            parameters,
            net,
            tables,
            split,
            device,
            batch,
            max_batches,
            candidates,
            step,
            score,
            losses,
            scores,
            memory,
            plan,
        })
    }
    /// What the run holds in memory.
    pub fn memory(&self) -> MemoryPlan {
        self.memory
    }
    /// How its steps follow one another: `sequential` or `prefetch`.
    pub fn plan(&self) -> &'static str {
        self.plan
    }
    /// The nodes of the training step that run while the step before is under way.
    pub fn ahead(&self) -> impl Iterator<Item = &Node> {
        self.step.ahead()
    }
    /// Where it runs, and what products multiply in there.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// Most events of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }
    /// Takes the time of every op of the training step from now on.
    pub fn profile(&mut self) {
        self.step.profile();
    }
    /// Times of the training step's ops, slowest first.
    pub fn op_times(&self) -> Vec<OpTime> {
        self.step.op_times()
    }
    /// Buffers that a checkpoint holds: parameters, optimiser, memory and mailbox.
    pub fn checkpoint_buffers(&self) -> Vec<BufferId> {
        let parameters = self.parameters.iter().map(|p| p.1);
        let static_memory = (!self.parameters.iter().any(|p| Some(p.1) == self.tables.static_memory))
            .then_some(self.tables.static_memory)
            .flatten();
        let state = self.net.model.state().into_iter().chain(static_memory);
        parameters.chain(self.parameters.optimizer_buffers()).chain(state).collect()
    }
    /// One pass over the training events, from empty memory. Returns the mean loss of its batches, and events done.
    ///
    /// # Errors
    /// Diverged, with the batch, when the loss is not a number.
    pub fn train_epoch(
        &mut self,
        epoch: u32,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<(f64, usize)> {
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        self.net.model.reset(&mut self.store);
        let range = self.split.train.clone();
        let (batches, events) = self.pass(epoch, range, true, progress)?;
        let losses = &self.store.read::<f32>(self.losses)[..batches];
        Ok((losses.iter().map(|&l| f64::from(l)).sum::<f64>() / batches.max(1) as f64, events))
    }
    /// Scores the validation events, continuing from the memory there is.
    ///
    /// # Errors
    /// As the ops'.
    pub fn validate(&mut self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<Scores> {
        let _range = nvtx::range("val");
        let range = self.split.val.clone();
        let (_, events) = self.pass(VAL, range, false, progress)?;
        Ok(self.measure(events, None))
    }
    /// Scores the test events, continuing from the memory there is: all of them, and the inductive ones.
    ///
    /// # Errors
    /// As the ops'.
    pub fn test(&mut self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(Scores, Scores)> {
        let _range = nvtx::range("test");
        let range = self.split.test.clone();
        let (_, events) = self.pass(TEST, range.clone(), false, progress)?;
        let unseen = &self.split.unseen[range][..events];
        Ok((self.measure(events, None), self.measure(events, Some(unseen))))
    }
    fn measure(&self, events: usize, mask: Option<&[bool]>) -> Scores {
        let table = &self.store.read::<f32>(self.scores)[..events * self.candidates];
        Scores::of(table, self.candidates, mask)
    }
    fn pass(
        &mut self,
        epoch: u32,
        range: Range<usize>,
        train: bool,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<(usize, usize)> {
        let batches = range.len().div_ceil(self.batch).min(self.max_batches);
        let total = range.len().min(batches * self.batch);
        self.tables.seek(&mut self.store, epoch, range, 0);
        let (store, losses, batch) = (&mut self.store, self.losses, self.batch);
        let program = if train { &mut self.step } else { &mut self.score };
        let ran = self.device.keep_awake(|| {
            let (mut counted, mut sum) = (0, 0.0);
            let mut done = |store: &Store, runs: usize| {
                // A device's losses are read when the pass is over.
                if train && store.is_fresh(losses) {
                    sum +=
                        store.read::<f32>(losses)[counted..runs].iter().map(|&l| f64::from(l)).sum::<f64>();
                    counted = runs;
                }
                let loss = if counted == 0 { None } else { Some(sum / counted as f64) };
                progress(Progress { events: total.min(runs * batch), total, loss });
            };
            program.repeat(store, batches, &mut done)
        });
        let (figures, each) = if train { (losses, 1) } else { (self.scores, batch * self.candidates) };
        self.store.fetch(&[figures])?;
        ran.map_err(|(at, e)| {
            // A device says so at the end of the pass: the batch is the first whose figures are no numbers.
            let bad =
                || self.store.read::<f32>(figures).iter().position(|x| !x.is_finite()).map(|x| x / each);
            located(e, epoch, at.or_else(bad))
        })?;
        Ok((batches, total))
    }
}

fn located(e: Error, epoch: u32, batch: Option<usize>) -> Error {
    if e.kind() != ErrorKind::Diverged {
        return e;
    }
    let batch = batch.map_or(String::new(), |b| format!(", batch {}", b + 1));
    Error::new(ErrorKind::Diverged, format!("training diverged in epoch {}{batch}", epoch + 1)).caused_by(e)
}

/// The tie rule that a protocol's figures follow.
pub fn tie_rule(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Disttgl => "mean of optimistic and pessimistic rank",
        _ => "tied scores form one threshold",
    }
}
