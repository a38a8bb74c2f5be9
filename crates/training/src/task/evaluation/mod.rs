//! Evaluation: metrics, hard negatives, and baselines that learn nothing. This module does not depend on any
//! model.
mod classes;
pub mod edgebank;
pub(super) mod heuristics;
pub mod metrics;
mod ndcg;
pub mod negatives;
pub(super) mod pairs;
mod scores;

pub use edgebank::EdgeBank;
pub use metrics::Scores;
pub use ndcg::{Forecast, mean_over_times, ndcg};
pub use pairs::Pair;
pub use scores::{ScoresByMemory, TestScores};
