//! Plans: how the steps of training follow one another, as plain data; and what came of one, as a timeline.
//!
//! A [`Plan`] says where the stages of a step run and how far ahead, or how the snapshots of a group are shared out. The executor is
//! [`Program::repeat`](crate::autograd::Program::repeat), which keeps to what the nodes declare to read and write, whatever the plan.
#![forbid(unsafe_code)]
mod balance;
mod costs;
mod draw;
mod group_choice;
mod needs;
mod simulate;
mod timeline;

pub use balance::{GroupCost, balance, pipeline};
pub use costs::{CostModel, OpCost};
pub use group_choice::GroupChoice;
pub use needs::{At, NEEDS, Need, Violation, violation};
pub use simulate::{predict, simulate};
pub use timeline::{Timeline, Usage};

use crate::{
    autograd::{LANES, Lanes, MAX_PREFETCH_DEPTH, Placement, Stage},
    error::{Error, ErrorKind, Result},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// How training is laid out on a device.
///
/// ```
/// use tgnn::plan::Plan;
/// let plan = Plan::named("prefetch")?; // a preset, or a file
/// plan.validate()?;
/// assert!(Plan::parse("nonsense = 1").is_err());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What results call it.
    pub name: String,
    /// Where stages run; one that is not named runs on the first lane, ahead of nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<Stage, StagePlacement>,
    /// How a group's snapshots are shared out to two lanes; else a step is not cut by snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
}

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagePlacement {
    /// 1 or 2.
    pub lane: usize,
    /// Steps by which it is ahead of stages that are ahead by none.
    pub prefetch_depth: usize,
}

impl Default for StagePlacement {
    fn default() -> Self {
        StagePlacement { lane: 1, prefetch_depth: 0 }
    }
}

/// How the snapshots of a group are shared out (BLAD, section 5.2): the first few, with their backward pass, to the first lane, the
/// others and the prediction to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// How many are the first few.
    pub first: First,
    /// Whether layers may do their products in another order where that brings more of graph work beside arithmetic (BLAD, section 6): by
    /// what the first groups took, so rounding differs from run to run.
    #[serde(default)]
    pub exchange: bool,
}

/// How many snapshots of a group the first lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "groups.first is a number of snapshots, \"even\" or \"balanced\"")]
pub enum First {
    /// As many in every group.
    Count(usize),
    /// By a rule.
    Rule(FirstRule),
}

/// A rule for how many snapshots of a group the first lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstRule {
    /// The half.
    Even,
    /// As many as keep both lanes busy, by predictions that are fitted to the first groups: equation 2 ([`balance`]).
    Balanced,
}

impl Plan {
    /// Names of the plans that need no file.
    pub const PRESETS: [&str; 6] = ["sequential", "prefetch", "overlap", "blad-even", "blad-nm", "blad"];

    /// The plan of that name.
    pub fn preset(name: &str) -> Option<Self> {
        let plan = |stages: &[(Stage, usize)], groups| {
            let second = |&(stage, prefetch_depth): &(Stage, usize)| {
                (stage, StagePlacement { lane: 2, prefetch_depth })
            };
            Plan { name: name.to_owned(), stages: stages.iter().map(second).collect(), groups }
        };
        let fetched = [(Stage::Sample, 1), (Stage::FetchFeatures, 1)];
        let groups = |rule, exchange| Some(Groups { first: First::Rule(rule), exchange });
        match name {
            "sequential" => Some(plan(&[], None)),
            "prefetch" => Some(plan(&fetched, None)),
            "overlap" => {
                let late = [(Stage::WeightGrads, 0), (Stage::WriteMemory, 0)];
                Some(plan(&[fetched, late].concat(), None))
            }
            "blad-even" => Some(plan(&[], groups(FirstRule::Even, false))),
            "blad-nm" => Some(plan(&[], groups(FirstRule::Balanced, false))),
            "blad" => Some(plan(&[], groups(FirstRule::Balanced, true))),
            _ => None,
        }
    }
    /// The preset of that name, or the plan in that file: TOML, its name ending in `.toml`.
    ///
    /// # Errors
    /// Usage where there is neither; Io; as [`parse`](Self::parse), with the file's name.
    pub fn named(name: &str) -> Result<Self> {
        if let Some(preset) = Self::preset(name) {
            return Ok(preset);
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|e| e != "toml") {
            let what = format!("there is no plan `{name}`");
            let names = Self::PRESETS.join(", ");
            return Err(Error::usage(what).remedy(format!("give auto, {names}, or a file: PLAN.toml")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }
    /// Parses TOML, and checks the plan.
    ///
    /// # Errors
    /// Usage, with line and column, for an unknown key or a value of another type; as [`validate`](Self::validate).
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Plan = toml::from_str(text).map_err(|e| Error::of_toml(&e, text))?;
        plan.validate()?;
        Ok(plan)
    }
    /// Checks the plan by itself: every field, and that every stage finds what it needs.
    ///
    /// # Errors
    /// `Plan`, with the field and the rule.
    pub fn validate(&self) -> Result<()> {
        let bad = |what: String, remedy: &str| {
            Err(Error::new(ErrorKind::Plan, format!("plan {}: {what}", self.name)).remedy(remedy.to_owned()))
        };
        for (stage, &StagePlacement { lane, prefetch_depth }) in &self.stages {
            if !(1..=LANES).contains(&lane) {
                return bad(format!("stages.{stage}.lane is {lane}"), "give 1 or 2");
            }
            if prefetch_depth > MAX_PREFETCH_DEPTH {
                return bad(
                    format!("stages.{stage}.prefetch_depth is {prefetch_depth}"),
                    &format!("give 0 to {MAX_PREFETCH_DEPTH}"),
                );
            }
        }
        match self.groups {
            Some(_) if !self.stages.is_empty() => {
                return bad("groups and stages are both given".into(), "give one of them");
            }
            Some(Groups { first: First::Count(0), .. }) => {
                return bad("groups.first is 0".into(), "give 1 or more, or a rule: even, balanced");
            }
            Some(Groups { first, exchange: true }) if first != First::Rule(FirstRule::Balanced) => {
                let remedy = "give groups.first = \"balanced\": layers are exchanged by the same predictions";
                return bad("groups.exchange is true, and nothing is predicted".into(), remedy);
            }
            _ => {}
        }
        if Self::preset(&self.name).is_some_and(|preset| preset != *self) {
            return bad("name is that of another plan".into(), "give it a name of its own");
        }
        if let Some(Violation { early, needed }) = violation(&self.placements()) {
            let StagePlacement { lane, prefetch_depth } =
                self.stages.get(&early.stage).copied().unwrap_or_default();
            let back = if needed.step < early.step { "the step before" } else { "the same step" };
            let what = format!(
                "stages.{}.prefetch_depth is {prefetch_depth} on lane {lane}, where it comes before {} of {back}, which it needs",
                early.stage, needed.stage
            );
            return bad(what, "lower its prefetch_depth, or put it on the other lane");
        }
        Ok(())
    }
    fn placements(&self) -> [Placement; Stage::ALL.len()] {
        Stage::ALL.map(|stage| {
            let StagePlacement { lane, prefetch_depth } =
                self.stages.get(&stage).copied().unwrap_or_default();
            Placement { lane: lane - 1, prefetch_depth }
        })
    }
    /// Where nodes run, in groups of `length` snapshots; `pipelined` where the first lane may go on to a group before it has returned to
    /// the last one's backward pass: no parameter moves in between. Until something is predicted, balanced is even.
    pub fn lanes(&self, length: usize, pipelined: bool) -> Lanes {
        match self.groups {
            Some(Groups { first, .. }) => {
                let first = match first {
                    First::Count(first) => first.min(length),
                    First::Rule(_) => length / 2,
                };
                Lanes::Sections { first, pipelined }
            }
            None if self.placements() == [Placement::default(); Stage::ALL.len()] => Lanes::One,
            None => Lanes::Stages(self.placements()),
        }
    }
}
