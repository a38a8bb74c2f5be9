//! A model of an event stream with its tables, before its programs are recorded.
use super::{
    by_plan::{set_row_plan, steps_of_run},
    objective::Target,
    recorder::Settling,
    setup::Setup,
};
use crate::{
    model::{EventTables, HeadKind, Net, RankTables, StaticMode},
    plan::Mitigation,
    task::{
        config::Config,
        training::{Buffers, NodeState, parameters_except},
    },
};
use tgnn::{autograd::Parameters, error::Result, ops::next_turn::Turns, runtime::*};
use tgnn_data::{Events, Split};

/// Epochs over which weights are averaged for settling: one epoch is noisy, three remember outdated weights
/// (docs/evaluation.md).
const AVERAGED_EPOCHS: usize = 2;

/// A model with its tables and what it predicts, before its programs are recorded.
pub(super) struct Model<T> {
    pub store: Store,
    pub tables: EventTables,
    pub parameters: Parameters,
    pub net: Net,
    pub target: T,
    /// Maximum number of events of a batch of training.
    pub batch: usize,
    /// The same of evaluation.
    pub eval_batch: usize,
    /// The batches that this rank gets in training: all, unless the plan divides them.
    pub turns: Turns,
}

impl<T> Model<T> {
    /// Builds the tables and the model. `target` creates what is predicted, and the head that does, for
    /// evaluation in batches of so many events; `batches_of_epoch` returns the number of batches of an epoch,
    /// given the most events of a batch and the epoch.
    ///
    /// # Errors
    /// `Usage` if the task does not fit the model; `Data` if the data lack what the task learns from;
    /// `OutOfMemory`.
    pub fn new(
        config: &Config,
        events: &Events,
        setup: &Setup,
        batches_of_epoch: impl Fn(usize, usize) -> usize,
        target: impl FnOnce(&mut Store, usize) -> Result<(T, HeadKind)>,
    ) -> Result<Self> {
        let Setup { device, split, .. } = setup;
        let mut store = Store::new(Precision::F32);
        let mut tables = tables(config, events, setup, &mut store)?;
        // A batch larger than the data is the whole data.
        let longest = split.train.len().max(longest_evaluated(split)).max(1);
        // Without evaluation, buffers need not be larger than for training.
        let eval_batch =
            if config.evaluate { config.eval_batch } else { config.eval_batch.min(config.batch) };
        let (batch, eval_batch) = (config.batch.min(longest), eval_batch.min(longest));
        let turns = set_row_plan(setup, events, batch, &mut tables, &mut store)?;
        let events_of_step = batch.saturating_mul(turns.batches());
        let learning_rate = config.optimizer.rate_of_step(config.learning_rate, events_of_step);
        let steps = steps_of_run(config, turns, |epoch| batches_of_epoch(batch, epoch))?;
        let optimizer = config.optimizer.optimizer(steps);
        let mut parameters = Parameters::with_optimizer(&mut store, config.seed, learning_rate, optimizer)?;
        if let Some(ranks) = device.ranks() {
            parameters.over(&mut store, ranks)?;
        }
        if config.static_mode() != StaticMode::Off {
            tables.static_memory = config.static_memory.add(&mut parameters, &mut store, events.nodes)?;
        }
        let (target, head) = target(&mut store, eval_batch)?;
        let model = config.event_model()?;
        let net = Net::new(&mut parameters, &mut store, &tables, model, head, config.seed)?;
        if config.classify.frozen {
            parameters.learn_only(Net::HEADS);
        }
        Ok(Model { store, tables, parameters, net, target, batch, eval_batch, turns })
    }
}

impl<T> Model<T> {
    /// Returns the rows of nodes in the state, and how ranks share them.
    pub fn node_state(&self) -> NodeState {
        NodeState {
            buffers: self.net.model.state(),
            mail_events: self.net.model.mail_event(),
            ranks: self.tables.rows.ranks.clone(),
            turns: self.turns,
            pipeline: self.tables.training.ranks.as_ref().and_then(RankTables::pipeline),
            ..NodeState::default()
        }
    }
    /// Returns the buffers that outlive a run, with those of settling.
    pub fn buffers(&self, settling: Option<&Settling>) -> Buffers {
        let static_rows: Vec<BufferId> = self.tables.static_rows(&self.parameters).into_iter().collect();
        let averages = settling.iter().flat_map(|s| s.average.buffers()).collect();
        Buffers {
            state: [self.net.model.state(), static_rows.clone(), averages].concat(),
            model: [parameters_except(&self.parameters, Net::HEADS), static_rows].concat(),
        }
    }
}

impl Model<Target> {
    /// Adds the buffers of what passes compute.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn results(&mut self, config: &Config, split: &Split) -> Result<Results> {
        let (columns, scored) = (self.target.objective.columns(&self.store), longest_evaluated(split));
        check_room("scores", 4 * scored * columns, "take fewer events")?;
        let most_steps = Rows::fixed(self.turns.groups + split.train.len().div_ceil(self.batch));
        let losses = self.store.zeros("losses", Spec::real(most_steps, 1))?;
        let scores = self.store.zeros("scores", Spec::real(Rows::fixed(scored), columns))?;
        Ok(Results { losses, scores, columns, settling: self.settling(config, most_steps)? })
    }
    /// Adds the buffers of the settling epoch; `None` if the task does not settle.
    fn settling(&mut self, config: &Config, batches: Rows) -> Result<Option<Settling>> {
        if !config.settle || self.net.model.state().is_empty() {
            return Ok(None);
        }
        Ok(Some(Settling {
            average: self.parameters.average(&mut self.store, AVERAGED_EPOCHS)?,
            rates: self.store.zeros("settling rates", Spec::real(batches, 1))?,
        }))
    }
}

/// The buffers of what passes compute besides the model.
pub(super) struct Results {
    pub losses: BufferId,
    pub scores: BufferId,
    /// Number of scores of an event.
    pub columns: usize,
    pub settling: Option<Settling>,
}

/// Returns the number of events of the larger of the validation and the test part.
fn longest_evaluated(split: &Split) -> usize {
    split.val.len().max(split.test.len())
}

/// Creates the tables of a stream, with the storage types of the configuration. There will be so many copies
/// of the model's memory on this computer.
fn tables(config: &Config, events: &Events, setup: &Setup, store: &mut Store) -> Result<EventTables> {
    let Setup { split, plan, over_ranks, .. } = setup;
    let (model, copies) = (config.event_model()?, over_ranks.copies_here);
    let state = model.state_bytes(events.nodes, events.edge_width(), config.memory_as);
    match copies {
        0 | 1 => check_room("node memory and mailbox", state, "take a narrower memory, or fewer nodes")?,
        _ => check_room(
            &format!("{copies} copies of node memory and mailbox, one for each rank of this computer,"),
            state.saturating_mul(copies),
            "take fewer ranks a computer, a plan with partitioned memory, or a narrower memory",
        )?,
    }
    // A model that may read any earlier event does not say how many it reads.
    let reads = model.recent_events().map_or(true, |events| events > 0);
    let neighbors = reads || plan.staleness.mitigation == Mitigation::Similar;
    let mut tables = EventTables::keeping(store, events, config.features_as, neighbors)?;
    tables.memory.stored_as = config.memory_as;
    tables.history = config.history();
    tables.gaps.longest = split.longest_gap(events, model.gap_quantile());
    Ok(tables)
}
