//! What an optimiser does with gradients: its update, its clipping, its learning rates.
use crate::{
    error::{Error, Result},
    ops::adam::WeightDecay,
    runtime::check_room,
};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How a gradient changes its parameter. The formulas and other constants are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum UpdateRule {
    /// Adam, or AdamW if the decay is decoupled: see [`adam`](crate::ops::adam).
    Adam(WeightDecay),
    /// Stochastic gradient descent: see [`sgd`](crate::ops::sgd).
    Sgd {
        /// Share of the last step that the next one keeps; 0: no momentum.
        momentum: f64,
        /// Share of a parameter that its gradient has as a summand; 0: no decay.
        decay: f64,
    },
}

impl UpdateRule {
    /// Returns AdamW, which takes `lr * decay` of every parameter in every step.
    pub const fn adamw(decay: f64) -> Self {
        UpdateRule::Adam(WeightDecay { amount: decay, decoupled: true })
    }
}

impl Default for UpdateRule {
    fn default() -> Self {
        UpdateRule::Adam(WeightDecay::default())
    }
}

/// An optimiser. The default is Adam with a constant learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Optimizer {
    /// How a gradient changes its parameter.
    pub rule: UpdateRule,
    /// Largest norm of all gradients together; `None`: gradients are not clipped.
    pub clip_norm: Option<f64>,
    /// Learning rates of the steps.
    pub rates: LearningRates,
}

impl Optimizer {
    /// Checks every number, and the learning rate that goes with it.
    pub(super) fn check(&self, learning_rate: f64) -> Result<()> {
        positive("learning rate", learning_rate)?;
        match self.rule {
            UpdateRule::Adam(decay) => positive("weight decay", decay.amount)?,
            UpdateRule::Sgd { momentum, decay } => {
                positive("momentum", momentum)?;
                positive("weight decay", decay)?;
            }
        }
        match self.clip_norm {
            Some(0.0) => {
                Err(Error::usage("clip_norm is 0").remedy("leave it out, or give a positive number"))
            }
            Some(norm) => positive("clip_norm", norm),
            None => Ok(()),
        }
    }
}

/// Checks that `x` is finite and not negative.
fn positive(what: &str, x: f64) -> Result<()> {
    if x >= 0.0 && x.is_finite() {
        return Ok(());
    }
    Err(Error::usage(format!("{what} is {x}")).remedy("give a finite number of 0 or more"))
}

/// How learning rates fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateDecay {
    /// They do not fall.
    #[default]
    Constant,
    /// To zero, by the same amount in every step.
    Linear,
    /// To zero, along half a period of a cosine.
    Cosine,
}

/// The learning rates of a training: they rise, then they stay or fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearningRates {
    /// How they fall after the warm-up.
    pub decay: RateDecay,
    /// Steps over which they rise to the full rate, by the same amount in every step.
    pub warmup: usize,
    /// Steps after which they have fallen to zero; not read where they stay constant.
    pub steps: usize,
}

impl LearningRates {
    /// Whether all steps have the same rate.
    pub fn are_constant(&self) -> bool {
        self.decay == RateDecay::Constant && self.warmup == 0
    }
    /// Share of the full rate that a step has; the first step is number 0.
    pub fn share(&self, step: usize) -> f64 {
        if step < self.warmup {
            return (step + 1) as f64 / self.warmup as f64;
        }
        let falling = self.steps.saturating_sub(self.warmup).max(1);
        let fallen = ((step - self.warmup) as f64 / falling as f64).min(1.0);
        match self.decay {
            RateDecay::Constant => 1.0,
            RateDecay::Linear => 1.0 - fallen,
            RateDecay::Cosine => 0.5 * (1.0 + (PI * fallen).cos()),
        }
    }
    /// Checks that `steps` are not too many to have a rate each.
    ///
    /// # Errors
    /// `Usage` if an op cannot count them; `OutOfMemory` if their rates have no room.
    pub fn check_steps(steps: usize) -> Result<()> {
        if steps >= i32::MAX as usize {
            let what = format!("{steps} steps, and at most {} can have rates that differ", i32::MAX - 1);
            return Err(Error::usage(what).remedy("take fewer epochs, or a constant learning rate"));
        }
        check_room("learning rates", steps * 2 * size_of::<f64>(), "take fewer epochs")
    }
    /// The rates of the first steps, of which the last one holds for all later steps.
    pub(super) fn table(&self, full: f64) -> Result<Vec<f64>> {
        let steps = match self.decay {
            RateDecay::Constant => self.warmup.max(1),
            _ => self.steps.saturating_add(1),
        };
        Self::check_steps(steps - 1)?;
        Ok((0..steps).map(|step| full * self.share(step)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_in_equal_steps_and_stay_or_fall_to_zero() {
        let rates = |decay, warmup, steps| LearningRates { decay, warmup, steps };
        let table = |rates: LearningRates| rates.table(2.0).unwrap();
        assert_eq!(table(LearningRates::default()), [2.0]);
        assert_eq!(table(rates(RateDecay::Constant, 4, 0)), [0.5, 1.0, 1.5, 2.0]);
        assert_eq!(table(rates(RateDecay::Linear, 0, 4)), [2.0, 1.5, 1.0, 0.5, 0.0]);
        assert_eq!(table(rates(RateDecay::Linear, 2, 6)), [1.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0]);
        let cosine = table(rates(RateDecay::Cosine, 1, 5));
        let want = [2.0, 2.0, 1.0 + 0.5f64.sqrt(), 1.0, 1.0 - 0.5f64.sqrt(), 0.0];
        assert!(cosine.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-15), "{cosine:?}");
        assert_eq!(cosine.len(), want.len());
        // A warm-up longer than the training ends with it.
        assert_eq!(table(rates(RateDecay::Linear, 9, 2)).len(), 3);
        assert_eq!(table(rates(RateDecay::Cosine, 0, 0)).len(), 1);
        assert_eq!(rates(RateDecay::Linear, 3, 6).share(usize::MAX), 0.0);
        assert!(rates(RateDecay::Linear, 0, usize::MAX).table(1.0).is_err());
    }
}
