//! The optimiser of a run, as its configuration names it.
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::{LearningRates, Optimizer, RateDecay, UpdateRule},
    error::{Error, Result},
    ops::adam::WeightDecay,
};

/// Names of the optimisers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimizerName {
    /// Adam; weight decay is a summand of the gradient.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// Stochastic gradient descent.
    Sgd,
}

/// How parameters are updated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Which optimiser.
    pub name: OptimizerName,
    /// Weight decay; 0: none.
    pub weight_decay: f64,
    /// Momentum of `sgd`; 0: none.
    pub momentum: f64,
    /// Largest norm of all gradients together; 0: gradients are not clipped.
    pub clip_norm: f64,
    /// How the learning rate falls, from the end of the warm-up to that of the last epoch.
    pub schedule: RateDecay,
    /// Steps over which the learning rate rises.
    pub warmup: usize,
    /// Number of events of a step for which the learning rate is meant: it is multiplied by the events of a
    /// step, all batches together, divided by this number (DistTGL, section 4.0.1). 0: it is taken as it is.
    pub base_batch: usize,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig {
            name: OptimizerName::Adam,
            weight_decay: 0.0,
            momentum: 0.0,
            clip_norm: 0.0,
            schedule: RateDecay::Constant,
            warmup: 0,
            base_batch: 0,
        }
    }
}

/// Most steps of a warm-up.
const MOST_WARMUP: usize = 1 << 20;

impl OptimizerConfig {
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// Usage, naming the key and what it may be.
    pub fn validate(&self) -> Result<()> {
        let bad = |key: &str, found: String, want: &str| {
            Err(Error::usage(format!("optimizer.{key} is {found}")).remedy(want.to_owned()))
        };
        for (key, x) in [("weight_decay", self.weight_decay), ("clip_norm", self.clip_norm)] {
            if !(x >= 0.0 && x.is_finite()) {
                return bad(key, x.to_string(), "give 0 (none), or a positive number");
            }
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return bad("momentum", self.momentum.to_string(), "give 0 or more, and less than 1");
        }
        if self.momentum > 0.0 && self.name != OptimizerName::Sgd {
            let found = format!("{}, and {} has none", self.momentum, self.title());
            return bad("momentum", found, "leave it out, or give optimizer.name=sgd");
        }
        if self.warmup > MOST_WARMUP {
            return bad("warmup", self.warmup.to_string(), &format!("give 0 to {MOST_WARMUP}"));
        }
        Ok(())
    }
    /// Whether the learning rate depends on how many steps the training has.
    pub fn depends_on_steps(&self) -> bool {
        self.schedule != RateDecay::Constant
    }
    /// The learning rate of steps of `events` events, given the one for [`base_batch`](Self::base_batch).
    pub fn rate_of_step(&self, learning_rate: f64, events: usize) -> f64 {
        match self.base_batch {
            0 => learning_rate,
            base => learning_rate * events as f64 / base as f64,
        }
    }
    /// The optimiser of a training of so many steps.
    pub fn optimizer(&self, steps: usize) -> Optimizer {
        let decay = WeightDecay { amount: self.weight_decay, decoupled: self.name == OptimizerName::AdamW };
        let rule = match self.name {
            OptimizerName::Adam | OptimizerName::AdamW => UpdateRule::Adam(decay),
            OptimizerName::Sgd => UpdateRule::Sgd { momentum: self.momentum, decay: self.weight_decay },
        };
        let rates = LearningRates { decay: self.schedule, warmup: self.warmup, steps };
        Optimizer { rule, clip_norm: (self.clip_norm > 0.0).then_some(self.clip_norm), rates }
    }
    fn title(&self) -> &'static str {
        match self.name {
            OptimizerName::Adam => "Adam",
            OptimizerName::AdamW => "AdamW",
            OptimizerName::Sgd => "SGD",
        }
    }
    /// The optimiser in a few words for people.
    pub fn describe(&self, learning_rate: f64) -> String {
        let mut text = format!("{} {learning_rate}", self.title());
        if self.base_batch > 0 {
            text += &format!(" for steps of {} events", self.base_batch);
        }
        let falls = match self.schedule {
            RateDecay::Constant => "",
            RateDecay::Linear => " falling linearly",
            RateDecay::Cosine => " falling by a cosine",
        };
        text += falls;
        for (set, what) in [
            (self.warmup > 0, format!(" after a warm-up of {} steps", self.warmup)),
            (self.momentum > 0.0, format!(", momentum {}", self.momentum)),
            (self.weight_decay > 0.0, format!(", weight decay {}", self.weight_decay)),
            (self.clip_norm > 0.0, format!(", gradients clipped to {}", self.clip_norm)),
        ] {
            if set {
                text += &what;
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_described_by_name_and_rate_and_everything_else_is_told() {
        let mut c = OptimizerConfig::default();
        assert_eq!(c.describe(5e-4), "Adam 0.0005");
        (c.name, c.momentum, c.weight_decay, c.clip_norm) = (OptimizerName::Sgd, 0.9, 0.01, 1.5);
        (c.schedule, c.warmup, c.base_batch) = (RateDecay::Cosine, 100, 600);
        assert_eq!(
            (c.rate_of_step(0.1, 1200), OptimizerConfig::default().rate_of_step(0.1, 1200)),
            (0.2, 0.1)
        );
        assert_eq!(
            c.describe(0.1),
            "SGD 0.1 for steps of 600 events falling by a cosine after a warm-up of 100 steps, momentum 0.9, \
             weight decay 0.01, gradients clipped to 1.5"
        );
        assert_eq!(OptimizerConfig::default().optimizer(7).rule, UpdateRule::default());
    }
}
