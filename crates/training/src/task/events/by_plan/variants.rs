//! The variants of the training step that a plan adds: with newer node memory (MSPipe, section 3.2), and for
//! steps in which a rank has no batch, because others have theirs (PipeTGL).
use super::staleness::Online;
use crate::{
    model::{EventTables, RankTables},
    task::{events::setup::Setup, training::Runs},
};
use std::ops::Range;
use tgnn::{
    autograd::{Lanes, Program},
    error::Result,
    ops::{Tape, next_batch::Batch},
    runtime::{Device, Precision},
};

/// How training steps run.
#[derive(Clone, Copy)]
pub(in crate::task::events) struct StepPlan {
    lanes: Lanes,
    /// Whether steps can also read newer node memory than the lanes say.
    varies: bool,
}

impl StepPlan {
    /// Returns how the steps of a plan run, with the staleness that `online` finds.
    pub fn new(setup: &Setup, online: Option<&Online>) -> Self {
        let lanes = setup.plan.lanes(0, false);
        let most = online.map(|online| online.choice.most);
        StepPlan { lanes: most.map_or(lanes, |most| lanes.with_memory_of(most)), varies: most.is_some() }
    }
    /// Returns the lanes of programs that read the state as the step before left it.
    pub fn in_order(self) -> Lanes {
        self.lanes.fresh()
    }
    /// Returns the tables as training steps read them.
    pub fn tables(self, tables: &EventTables) -> EventTables {
        tables.in_training(self.lanes.staleness().memory > 0)
    }
    /// Plans the training step for a batch of `tables`, with the `settling` step if there is one.
    ///
    /// # Errors
    /// As [`Program::with_variants`].
    pub fn program(
        self,
        (step, batch): (&Tape, &Batch),
        settling: Option<&Tape>,
        tables: &EventTables,
        device: &Device,
    ) -> Result<(Program, StepVariants)> {
        let most_stale = self.lanes.staleness().memory;
        let newer = if self.varies { 0..most_stale } else { 0..0 };
        let newer = newer.rev().map(|steps| (step, self.lanes.with_memory_of(steps)));
        let mut variants: Vec<(&Tape, Lanes)> = std::iter::once((step, self.lanes)).chain(newer).collect();
        let settles = settling.map(|_| variants.len());
        variants.extend(settling.map(|tape| (tape, self.in_order())));
        let (program, idle) = match tables.rows.ranks.as_ref().and_then(RankTables::pipeline) {
            Some([rank, ranks]) => {
                let idle = IdleSteps { variant: variants.len(), rank, ranks };
                let outputs = batch.per_event();
                (Program::with_idle_variant(&variants, &outputs, Precision::F32, device)?, Some(idle))
            }
            None => (Program::with_variants(&variants, Precision::F32, device)?, None),
        };
        Ok((program, StepVariants { settling: settles, most_stale, idle }))
    }
}

/// The variants of the training step. The first one is the step itself.
#[derive(Clone, Copy, Default)]
pub(in crate::task::events) struct StepVariants {
    /// The settling step, if the task settles.
    settling: Option<usize>,
    /// The most steps by which node memory is older, with the first variant. If there are several variants of
    /// the step, memory is newer by a step with each of them.
    most_stale: usize,
    /// If ranks get whole batches in turn: the steps in which this rank has none.
    idle: Option<IdleSteps>,
}

/// The steps in which a rank has no batch, because others have theirs.
#[derive(Clone, Copy)]
struct IdleSteps {
    variant: usize,
    rank: usize,
    ranks: usize,
}

impl StepVariants {
    /// Returns the variants that a run of `program` uses, with the settling step if it `settles`.
    pub fn used(self, program: &Program, settles: bool) -> Vec<usize> {
        (0..program.variants()).filter(|&variant| settles || self.settling != Some(variant)).collect()
    }
    /// Returns the runs of the steps `steps`, numbered by their batches, of an epoch or of the epoch that
    /// settles.
    pub fn runs(self, settling: bool, steps: Range<usize>) -> Runs {
        let variant = self.settling.filter(|_| settling).unwrap_or(0);
        let mut runs = Runs::of_batches(variant, steps.start, steps.len());
        if let Some(IdleSteps { variant, rank, ranks }) = self.idle.filter(|_| !settling) {
            let of_steps = runs.variant_of_run.iter_mut().zip(steps);
            let others = of_steps.filter(|(_, step)| step % ranks != rank);
            others.for_each(|(of_run, _)| *of_run = variant);
        }
        runs
    }
    /// Returns the runs of batches with this staleness each, after `before` batches of the pass.
    pub fn runs_of(self, staleness: &[usize], before: usize) -> Runs {
        let variant_of_run = staleness.iter().map(|steps| self.most_stale.saturating_sub(*steps)).collect();
        Runs { variant_of_run, complete: (before + 1..=before + staleness.len()).collect() }
    }
}
