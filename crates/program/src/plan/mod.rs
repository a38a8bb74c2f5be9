//! `tgnn-bench plan` and `partition`: shows, checks, explains and simulates plans, and divides nodes among
//! ranks. Also what a run tells about its plan.
pub(super) mod advice;
mod explain;
pub(super) mod fit;
mod log;
pub(super) mod older;
pub(super) mod over_ranks;
mod partition;
mod ranks;
mod simulate;
mod traffic;

use explain::planned;
pub(super) use log::{LogFiles, LoggingWatch};
pub(super) use partition::PartitionArgs;

use super::output::{print, say};
use clap::{Args, Subcommand};
use explain::Explain;
use simulate::Simulate;
use tgnn::{
    autograd::{MAX_PREFETCH_DEPTH, Order, Stage},
    error::{Error, Result},
};
use tgnn_training::plan::{MAX_STALENESS, MemoryStaleness, Plan};

/// The subcommands of `plan`.
#[derive(Subcommand)]
pub enum PlanCommand {
    /// Print a plan: its file, its stages, and a drawing of what the lanes do
    Show(PlanName),
    /// Check whether a plan is legal; if not, print the rule that it breaks (exit code 4)
    Check(PlanName),
    /// Time the ops of an epoch, predict the next epoch from the times, run it, and compare; with --ranks,
    /// predict training over ranks, also on another machine
    Simulate(Simulate),
    /// Say what a planner chooses for data and ranks, and why: `plan explain disttgl --ranks 8`
    Explain(Explain),
}

/// The name of a plan.
#[derive(Args)]
pub struct PlanName {
    /// A plan of `train --plan`, such as prefetch, mspipe:k=2 or sven, or a file: PLAN.toml
    plan: String,
}

/// Runs a subcommand.
pub fn run(command: &PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Show(named) => show(&Plan::named(&named.plan)?),
        PlanCommand::Check(named) => {
            let plan = Plan::named(&named.plan)?;
            say(format_args!("plan {} is legal: every stage finds what it needs", plan.name));
            Ok(())
        }
        PlanCommand::Simulate(args) => args.run(),
        PlanCommand::Explain(args) => args.run(),
    }
}

fn show(plan: &Plan) -> Result<()> {
    let text = toml::to_string(plan).map_err(|e| Error::usage("cannot write the plan").caused_by(e))?;
    print(text);
    remarks(plan).into_iter().for_each(|remark| say(format_args!("{remark}\n")));
    // What is found while training is shown as of the least value that differs from a plan without it.
    let mut plan = plan.clone();
    if plan.finds_staleness() {
        plan.staleness.memory = MemoryStaleness::Steps(1);
    }
    if plan.groups.is_none() {
        say(format_args!("{:<16}{:>4}{:>10}   {}", "stage", "lane", "prefetch", "comes after"));
        let all_needs = plan.needs();
        for stage in Stage::ALL {
            let placement = plan.placement(stage);
            let needs = all_needs.iter().filter(|n| n.stage == stage);
            let needs: Vec<String> = needs.map(|n| format!("{}{}", n.of, of_step(n.back))).collect();
            let (lane, depth) = (placement.lane, placement.prefetch_depth);
            say(format_args!("{:<16}{lane:>4}{depth:>10}   {}", stage.name(), needs.join(", ")));
        }
        say("");
    }
    say(plan.drawing().trim_end());
    Ok(())
}

/// Returns what the file of a plan does not say by itself.
fn remarks(plan: &Plan) -> Vec<String> {
    let parallel = plan.ranks.unwrap_or_default().parallel;
    let found = plan.finds_staleness().then(|| {
        format!(
            "the staleness of node memory, k, is found while training, 0 to {MAX_STALENESS}; below, k = 1"
        )
    });
    let divided = (parallel.mini_batch > 0).then(|| parallel.describe());
    let in_turn = plan.in_turn().then(|| {
        format!(
            "of the p ranks of a pipeline, each gets every p-th batch: below are the stages of one rank. Gradients are \
             p - 1 steps old, prefetch depths are times p (at most {MAX_PREFETCH_DEPTH}), positive roots come first, \
             and rows of the next batch go to its rank"
        )
    });
    let measured = plan.ranks.is_some().then(|| {
        "what is measured on GPUs is of one H200, one GPU at a time: two GPUs have never been measured"
            .to_owned()
    });
    let ordered = (plan.order == Order::LongestPath).then(|| {
        "on each lane, ops are in the order of their longest paths to the end of the next step. Lanes on which nothing is \
         prefetched share their ops: below is the lane of most ops of a stage; plan simulate and train --timeline show \
         that of each op"
            .to_owned()
    });
    found.into_iter().chain(divided).chain(in_turn).chain(ordered).chain(measured).collect()
}

/// Says which step a stage is of, `back` steps before another one.
fn of_step(back: isize) -> String {
    match back {
        0 => String::new(),
        1 => " of the step before".into(),
        back if back > 0 => format!(" of {back} steps before"),
        -1 => " of the step after".into(),
        back => format!(" of {} steps after", -back),
    }
}
