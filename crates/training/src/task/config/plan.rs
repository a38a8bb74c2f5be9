//! The plan of a run: whether it fits the model, the task, the other keys and the ranks.
//!
//! The rule: what a plan asks for that would change results, and that the run cannot do, is refused here.
//! What only has no effect is said in a note when the run starts.
use super::{Config, TaskName};
use crate::plan::{Mitigation, Parallel, Plan, PlanStaleness};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{Device, StoredAs, comm::Ranks},
};

impl Config {
    /// Returns the plan of a run on `device`.
    ///
    /// # Errors
    /// As [`plan_over`](Self::plan_over).
    pub fn plan_on(&self, device: &Device) -> Result<Plan> {
        self.plan_over(device.gpu().is_some(), device.ranks().map_or(1, Ranks::size))
    }
    /// Returns the plan of a run over `ranks` ranks, whose devices are GPUs or not.
    ///
    /// # Errors
    /// As [`Plan::named`]; `Usage` or `Plan` if the plan does not fit the model, the task, the other keys or
    /// the number of ranks.
    pub fn plan_over(&self, on_gpu: bool, ranks: usize) -> Result<Plan> {
        if self.plan == Plan::PLANNED && self.model.reads_snapshots() {
            return self.divides_events(&self.plan);
        }
        let plan = match self.plan.as_str() {
            "auto" => Plan::named(if on_gpu { "overlap" } else { "sequential" })?,
            name => Plan::named(name)?,
        };
        if self.model.reads_snapshots() {
            self.check_plan_of_snapshots(&plan, ranks)?;
        } else {
            self.check_plan_of_events(&plan, ranks)?;
        }
        self.check_older_memory(&plan)?;
        self.check_bits(&plan)?;
        Ok(plan)
    }
    fn divides_events(&self, plan: &str) -> Result<Plan> {
        let what = format!("plan {plan} divides events, and {} reads snapshots", self.model.name());
        Err(Error::usage(what).remedy("give another plan, or a model of events"))
    }
    fn check_plan_of_snapshots(&self, plan: &Plan, ranks: usize) -> Result<()> {
        if plan.ranks.is_some() {
            self.divides_events(&plan.name)?;
        }
        if ranks > 1 {
            let what = "models of snapshots do not train over ranks yet";
            return Err(Error::usage(what).remedy("give one rank"));
        }
        Ok(())
    }
    fn check_plan_of_events(&self, plan: &Plan, ranks: usize) -> Result<()> {
        let name = &plan.name;
        if plan.groups.is_some() {
            let what = format!("plan {name} shares out snapshots, and {} reads none", self.model_name());
            return Err(Error::usage(what).remedy("give --plan prefetch, or a model of snapshots"));
        }
        if self.task == TaskName::Property {
            check_plan_of_labels(plan, ranks)?;
        }
        if ranks > 1 && plan.staleness.mitigation == Mitigation::Similar {
            let what = format!(
                "the plan {name} mixes memory with that of similar nodes, and a rank counts the common neighbours \
                 of its events alone"
            );
            return Err(Error::new(ErrorKind::Plan, what).remedy("train on one rank, or give --plan mspipe"));
        }
        self.check_parallel(plan, plan.ranks.unwrap_or_default().parallel.for_ranks(ranks)?)
    }
    /// Checks that there is node memory, if steps read older rows of it.
    fn check_older_memory(&self, plan: &Plan) -> Result<()> {
        if !plan.reads_older_memory() || self.has_memory() != Some(false) {
            return Ok(());
        }
        let (name, model) = (&plan.name, self.model_name());
        let what = format!("plan {name} reads older node memory, and the model {model} has none");
        Err(Error::usage(what).remedy("give --plan prefetch, or a model with node memory"))
    }
    /// Checks that several batches can be trained on at the same time.
    fn check_parallel(&self, plan: &Plan, Parallel { epoch, memory, .. }: Parallel) -> Result<()> {
        let (name, task) = (&plan.name, self.task.name());
        if epoch > 1 && self.task != TaskName::Link {
            let what = format!(
                "the plan {name} trains {epoch} times in a row on the same events, with other negatives, and task \
                 {task} has none"
            );
            return Err(Error::usage(what).remedy("give a plan disttgl:IxJxK with J = 1"));
        }
        if memory > 1 && self.chunks > 1 {
            let what = format!(
                "chunks is {}, and plan {name} has {memory} memory copies: each goes on where its last epoch has \
                 ended, and chunks move that place",
                self.chunks
            );
            return Err(Error::usage(what).remedy("leave out chunks, or give a plan with one memory copy"));
        }
        Ok(())
    }
    /// Checks that results do not depend on measured times, if they must not.
    fn check_bits(&self, plan: &Plan) -> Result<()> {
        let name = &plan.name;
        if self.deterministic && plan.groups.is_some_and(|g| g.exchange) {
            let what = format!("plan {name} exchanges layers by measured times, and deterministic is set");
            return Err(Error::usage(what).remedy("give --plan blad-nm"));
        }
        if self.deterministic && plan.finds_staleness() {
            let what =
                format!("plan {name} chooses its staleness by measured times, and deterministic is set");
            return Err(Error::usage(what).remedy("give a staleness, such as --plan mspipe:k=2"));
        }
        Ok(())
    }
    /// Whether the model has node memory; `None` if a model from outside of the crate does not say.
    pub fn has_memory(&self) -> Option<bool> {
        let bytes = self.event_model().map_or(0, |model| model.state_bytes(1, 0, StoredAs::F32));
        (bytes > 0 || self.custom_model.is_none()).then_some(bytes > 0)
    }
    /// Whether the plan has the staleness of node memory found while training.
    pub fn finds_staleness(&self) -> bool {
        Plan::named(&self.plan).is_ok_and(|plan| plan.finds_staleness())
    }
    /// Returns the number of epochs that `ranks` ranks train by `plan`: groups that take turns train an epoch
    /// each, and only whole passes are trained.
    ///
    /// # Errors
    /// As [`Parallel::for_ranks`].
    pub fn epochs_trained(&self, plan: &Plan, ranks: usize) -> Result<usize> {
        let of_pass = plan.ranks.unwrap_or_default().parallel.for_ranks(ranks)?.epoch;
        Ok(self.epochs.next_multiple_of(of_pass))
    }
    /// Returns the configuration for a use of a trained model, which does not depend on the plan of training:
    /// a plan becomes `auto` if it is for a number of ranks, in a file, or no longer accepted, and so do the
    /// owners of nodes that are in a file, because files may have gone.
    #[must_use]
    pub fn after_training(mut self) -> Self {
        let for_ranks = |plan: &Plan| {
            let several = plan.ranks.is_some_and(|rank_plan| rank_plan.parallel != Parallel::default());
            several || plan.staleness.mitigation == Mitigation::Similar
        };
        let preset = Plan::preset(&self.plan).and_then(Result::ok);
        if preset.is_none_or(|plan| for_ranks(&plan) || self.plan_over(false, 1).is_err()) {
            self.plan = "auto".into();
        }
        if self.partition.ends_with(".npy") {
            self.partition = "auto".into();
        }
        self
    }
}

/// Checks a plan for steps that predict labels of nodes.
fn check_plan_of_labels(plan: &Plan, ranks: usize) -> Result<()> {
    if ranks > 1 {
        let what = "task property trains on one rank: how many label rows a step has does not follow from its events";
        return Err(Error::usage(what).remedy("leave out --ranks, or start one process"));
    }
    if plan.staleness != PlanStaleness::default() {
        let what = format!(
            "plan {} lets steps read older state, and label rows see all events before them",
            plan.name
        );
        return Err(Error::usage(what).remedy("give --plan sequential or prefetch"));
    }
    Ok(())
}
