//! A model on an event stream whose nodes have labels: the passes that train and evaluate it.
use super::{
    super::{StreamTask, model::Model, places::Places, setup::Setup},
    programs::{LabelTables, Programs, Recorder},
    unlabelled,
    walk::{Stop, Walk},
};
use crate::{
    model::{EventTables, HeadKind, Net},
    task::{
        Summary,
        config::Config,
        evaluation::{Forecast, Scores, TestScores, mean_over_times, ndcg},
        training::{
            BaselineScores, EventCount, LastEpoch, Manifest, Progress, RecordedTask, Remembers, Report, Runs,
            Task, TaskCore, evaluation_clock, located, repeat_and_report,
        },
    },
};
use rayon::prelude::*;
use std::ops::Range;
use tgnn::{
    autograd::Program,
    error::{Error, ErrorKind, Result},
    runtime::*,
};
use tgnn_data::{Events, NodeLabels, Part, Split, text::counted};

/// Numbers of the parts.
const TRAIN: usize = 0;
const VAL: usize = 1;
const TEST: usize = 2;

/// A model on an event stream whose nodes have labels, ready to train and to evaluate.
pub struct PropertyTask {
    /// What every task has.
    pub core: TaskCore,
    /// The model with its head.
    pub net: Net,
    /// The tables of the stream.
    pub tables: EventTables,
    /// The parts of the stream.
    pub split: Split,
    labels: NodeLabels,
    label_tables: LabelTables,
    walk: Walk,
    /// For every label row, whether its node has no training event.
    unseen: Vec<bool>,
    /// Maximum number of events of a batch.
    batch: usize,
    /// Updates the memory by a batch and does nothing else; `None` if the model has no memory.
    remember: Option<Program>,
    /// `[rows of a stop, classes]` f32.
    scores: BufferId,
    /// Number of steps of the last epoch.
    steps: usize,
}

brief_debug!(PropertyTask, t => { split: t.split, batch: t.batch });

/// What a pass does at a stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Train,
    Score,
}

impl PropertyTask {
    /// Builds the model and records its programs.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself, the device or the task; `Data` if there are no
    /// labels, or none that trains; `OutOfMemory`.
    pub fn new(config: &Config, events: &Events, device: Device) -> Result<Self> {
        let labels = events.node_labels.clone().ok_or_else(|| unlabelled(events))?;
        let setup = Setup::new(config, events, device, None)?;
        let walk = walk(config, events, &labels, &setup.split)?;
        let batches_of_epoch = |_, _| walk.steps(TRAIN);
        let target = |store: &mut Store, _| {
            let tables = LabelTables::new(store, &labels, &walk)?;
            Ok((tables, HeadKind::Properties { classes: labels.classes() }))
        };
        let model = Model::new(config, events, &setup, batches_of_epoch, target)?;
        let (nodes, buffers) = (model.node_state(), model.buffers(None));
        let Model { mut store, mut tables, parameters, net, target: label_tables, batch, .. } = model;
        let Setup { device, split, plan, over_ranks, .. } = setup;
        let rows = walk.largest().1;
        check_room("scores", 4 * rows * labels.classes(), "take fewer classes or labelled nodes")?;
        let scores = store.zeros("scores", Spec::real(Rows::fixed(rows), labels.classes()))?;
        let losses = store.zeros("losses", Spec::real(Rows::fixed(walk.steps(TRAIN)), 1))?;
        let recorder = Recorder {
            net: &net,
            parameters: &parameters,
            labels: &label_tables,
            frozen: config.classify.frozen,
            losses,
            scores,
            batch,
            device: &device,
            lanes: plan.lanes(0, false),
        };
        let places = Places::new(config, &device, over_ranks.may_partition, net.model.state());
        let mut record = |store: &Store, tables: &EventTables| recorder.record(store, tables);
        let (programs, memory) = places.record(&mut store, &mut tables, &mut record, Programs::all)?;
        let Programs { step, score, remember } = programs;
        let has_features = tables.features.exist();
        let recorded = RecordedTask { step, score, losses, memory, nodes, buffers, has_features };
        let core = TaskCore::new(config, (device, plan), (store, parameters), recorded)?;
        let seen = events.nodes_in(split.train.clone());
        let unseen = labels.nodes().iter().map(|&node| !seen[node as usize]).collect();
        Ok(PropertyTask {
            core,
            net,
            tables,
            split,
            labels,
            label_tables,
            walk,
            unseen,
            batch,
            remember,
            scores,
            steps: 0,
        })
    }
    /// Returns the number of steps of the last epoch.
    pub fn steps(&self) -> usize {
        self.steps
    }
    /// Returns the scores of the baselines on the label rows of the test part.
    pub fn baselines(&self) -> Vec<BaselineScores> {
        let stops = self.walk.limited(TEST, self.core.max_batches);
        let Some(rows) = rows_of(&stops) else { return Vec::new() };
        let scores = |forecast: Forecast| {
            let values = forecast.ndcg(&self.labels, rows.clone());
            BaselineScores { name: forecast.name().into(), test: self.test_scores(&rows, &values) }
        };
        Forecast::ALL.map(scores).into()
    }
    /// Returns the means of the NDCG of rows.
    fn mean(&self, rows: &Range<usize>, values: &[f64], mask: Option<&[bool]>) -> Scores {
        let here = |times: Range<usize>| {
            let (start, end) = (times.start.max(rows.start), times.end.min(rows.end));
            (start < end).then(|| start - rows.start..end - rows.start)
        };
        Scores::of_ndcg(mean_over_times(self.labels.at_once().filter_map(here), values, mask))
    }
    fn test_scores(&self, rows: &Range<usize>, values: &[f64]) -> TestScores {
        let scores = |mask| self.mean(rows, values, mask);
        TestScores { transductive: scores(None), inductive: scores(Some(&self.unseen[rows.clone()])) }
    }
    /// Updates the memory by events; `key` separates the random draws of different ranges.
    fn remember_range(&mut self, key: u32, events: Range<usize>, progress: Report<'_>) -> Result<()> {
        let Some(program) = self.remember.as_mut().filter(|_| !events.is_empty()) else { return Ok(()) };
        let (batch, total, store) = (self.batch, events.len(), &mut self.core.store);
        self.tables.seek(store, key, events, 0)?;
        let runs = Runs::of_batches(0, 0, total.div_ceil(batch));
        let count = EventCount { first: 0, up_to: &|runs| total.min(runs * batch), total };
        let ran = repeat_and_report(program, &runs, store, None, &count, progress);
        ran.map_err(|(_, e)| e)
    }
    /// Runs a pass over a part. Returns the number of steps and of events, and NDCG of the rows if they are
    /// scored.
    fn pass(
        &mut self,
        pass: Pass,
        epoch: u32,
        part: usize,
        progress: Report<'_>,
    ) -> Result<(usize, usize, Vec<f64>)> {
        let stops = self.walk.limited(part, self.core.max_batches);
        let whole = stops.len() == self.walk.stops[part].len();
        let [begin, end] = [part, part + 1].map(|at| self.walk.bounds[at]);
        let end = if whole { end } else { stops.last().map_or(begin, |stop| stop.events) };
        let (mut at, mut losses, mut values) = (begin, Losses::default(), Vec::new());
        let first = stops.first().map_or(0, |stop| stop.steps.start);
        self.label_tables.seek(&mut self.core.store, epoch, first)?;
        for (nth, stop) in (0u32..).zip(&stops) {
            let mut report = |p: Progress<'_>| {
                progress(Progress {
                    events: at - begin + p.events,
                    total: end - begin,
                    loss: losses.mean(),
                    ..p
                });
            };
            self.remember_range(
                epoch.wrapping_add(nth.wrapping_mul(0x9E37_79B9)),
                at..stop.events,
                &mut report,
            )?;
            at = stop.events;
            let mut report = |p: Progress<'_>| {
                progress(Progress { events: at - begin, total: end - begin, loss: losses.mean(), ..p });
            };
            self.predict(pass, epoch, stop, &mut report)?;
            match pass {
                Pass::Train if self.core.device.gpu().is_none() => {
                    losses.add(&self.core.store.read::<f32>(self.core.losses)?[stop.steps.clone()]);
                }
                Pass::Train => {}
                Pass::Score => values.extend(self.scored(stop)?),
            }
        }
        let mut report = |p: Progress<'_>| {
            progress(Progress {
                events: at - begin + p.events,
                total: end - begin,
                loss: losses.mean(),
                ..p
            });
        };
        self.remember_range(epoch, at..end, &mut report)?;
        let steps = stops.last().map_or(0, |stop| stop.steps.end) - first;
        Ok((steps, end - begin, values))
    }
    /// Runs the steps of a stop.
    fn predict(&mut self, pass: Pass, epoch: u32, stop: &Stop, progress: Report<'_>) -> Result<()> {
        let (core, steps) = (&mut self.core, stop.steps.len());
        self.label_tables.score_from(&mut core.store, stop.rows.start)?;
        let program = if pass == Pass::Train { &mut core.step } else { &mut core.score };
        let count = EventCount { first: 0, up_to: &|_| 0, total: 0 };
        let runs = Runs::of_batches(0, 0, steps);
        let ran = repeat_and_report(program, &runs, &mut core.store, None, &count, progress);
        ran.map_err(|(at, e)| match pass {
            Pass::Train => located(e, epoch, at.map(|at| stop.steps.start + at)),
            Pass::Score => e,
        })
    }
    /// Returns NDCG of the rows of the stop that was scored last.
    fn scored(&mut self, stop: &Stop) -> Result<Vec<f64>> {
        let store = &mut self.core.store;
        store.fetch(&[self.scores])?;
        let scores = store.read::<f32>(self.scores)?.par_chunks_exact(self.labels.classes());
        let rows = scores.zip(stop.rows.clone());
        Ok(rows.map(|(scores, row)| ndcg(scores, self.labels.row(row))).collect())
    }
    /// Scores a part. Returns its rows and their NDCG.
    fn evaluate(&mut self, part: Part, progress: Report<'_>) -> Result<(Range<usize>, Vec<f64>)> {
        let _range = nvtx::range(part.name());
        let number = match part {
            Part::Val => VAL,
            Part::Test => TEST,
        };
        let values = self.pass(Pass::Score, evaluation_clock(part), number, progress)?.2;
        let rows = rows_of(&self.walk.limited(number, self.core.max_batches)).unwrap_or(0..0);
        Ok((rows, values))
    }
}

/// The losses of the steps of a pass so far.
#[derive(Default)]
struct Losses {
    sum: f64,
    steps: usize,
}

impl Losses {
    fn add(&mut self, losses: &[f32]) {
        self.sum += losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        self.steps += losses.len();
    }
    fn mean(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.sum / self.steps as f64)
    }
}

/// Returns the rows of consecutive stops; `None` if there are none.
fn rows_of(stops: &[Stop]) -> Option<Range<usize>> {
    Some(stops.first()?.rows.start..stops.last()?.rows.end)
}

/// Divides the label rows among steps.
fn walk(config: &Config, events: &Events, labels: &NodeLabels, split: &Split) -> Result<Walk> {
    let walk = Walk::new(&events.time, labels, split, config.property.rows);
    if walk.stops[TRAIN].is_empty() {
        let what = format!("no label row of {} lies before the last training event", events.name);
        return Err(Error::new(ErrorKind::Data, what).remedy("give earlier labels, or a larger data.train"));
    }
    Ok(walk)
}

impl StreamTask for PropertyTask {
    fn build(config: &Config, events: &Events, device: Device, _: &Manifest) -> Result<Self> {
        Self::new(config, events, device)
    }
    fn embedder(&mut self) -> (&mut TaskCore, &Net, &mut EventTables) {
        (&mut self.core, &self.net, &mut self.tables)
    }
    fn test_part(&self) -> Range<usize> {
        self.walk.bounds[TEST]..self.walk.bounds[TEST + 1]
    }
    fn evaluation_bytes(&self, _: &Events) -> [usize; 2] {
        [0; 2] // forecasts are measured one by one
    }
    fn compare(&self, _: &Events, summary: &mut Summary, _: Report<'_>) -> Result<()> {
        summary.baselines = self.baselines();
        Ok(())
    }
}

impl Task for PropertyTask {
    fn core(&self) -> &TaskCore {
        &self.core
    }
    fn core_mut(&mut self) -> &mut TaskCore {
        &mut self.core
    }
    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = Vec::new();
        let rows = |part: usize| rows_of(&self.walk.stops[part]).map_or(0, |rows| rows.len()) as u64;
        let parts = [TRAIN, VAL, TEST].map(rows);
        let classes = self.labels.classes();
        remarks.push((
            "labels",
            format!(
                "{} train, {} validate, {} test; {classes} classes",
                counted(parts[0], "row"),
                parts[1],
                parts[2]
            ),
        ));
        if parts[VAL] == 0 || parts[TEST] == 0 {
            let what = "too few times of labels to validate and test on; set data.train and data.val";
            remarks.push(("note", what.into()));
        }
        if self.walk.left_out > 0 {
            let rows = counted(self.walk.left_out as u64, "label row");
            remarks.push(("note", format!("{rows} that no later event follows: not used, as in TGB")));
        }
        remarks.extend(self.core.plan_remarks());
        remarks
    }
    fn last_epoch(&self) -> LastEpoch<'_> {
        let (step, variant_of_run) = (&self.core.step, vec![0; self.steps]);
        LastEpoch { step, variant_of_run, edges: Box::new(|_, _| 0.0) }
    }
    fn remembering(&mut self) -> Option<&mut dyn Remembers> {
        if self.remember.is_some() { Some(self) } else { None }
    }
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)> {
        self.core.begin_trace()?;
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        self.net.model.reset(&mut self.core.store)?;
        let (steps, events, _) = self.pass(Pass::Train, epoch, TRAIN, progress)?;
        self.steps = steps;
        self.core.store.fetch(&[self.core.losses])?;
        Ok((self.core.mean_loss(steps)?, events))
    }
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores> {
        let (rows, values) = self.evaluate(Part::Val, progress)?;
        Ok(self.mean(&rows, &values, None))
    }
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores> {
        let (rows, values) = self.evaluate(Part::Test, progress)?;
        Ok(self.test_scores(&rows, &values))
    }
}

impl Remembers for PropertyTask {
    fn replay(&mut self, progress: Report<'_>) -> Result<()> {
        let _range = nvtx::range("replay");
        self.net.model.reset(&mut self.core.store)?;
        self.remember_range(0, 0..self.walk.bounds[TEST], progress)
    }
    fn remember(&mut self, part: Part, progress: Report<'_>) -> Result<()> {
        let number = if part == Part::Val { VAL } else { TEST };
        self.remember_range(
            evaluation_clock(part),
            self.walk.bounds[number]..self.walk.bounds[number + 1],
            progress,
        )
    }
}
