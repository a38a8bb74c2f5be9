//! The choices that a plan leaves to predictions, as made in one run.
use serde::{Deserialize, Serialize};
use std::fmt;

/// The assignment of the snapshots of a run's groups to lanes, and the exchanged layers, as chosen by
/// predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupChoice {
    /// Number of snapshots of a group.
    pub snapshots: usize,
    /// Number of snapshots on the first lane, if it is the same for every group; `None` if each round is
    /// balanced separately.
    pub first: Option<usize>,
    /// For each of the two lanes, whether each layer aggregates and transforms in the order contrary to its
    /// default; empty if the plan exchanges no layers.
    pub exchanged: [Vec<bool>; 2],
    /// Mean absolute error of the predicted op times, as a fraction of the measured times.
    pub op_error: f64,
}

/// One line for the user.
impl fmt::Display for GroupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshots = self.snapshots;
        match self.first {
            Some(first) => write!(f, "the first lane takes {first} of {snapshots} snapshots")?,
            None => write!(
                f,
                "the first lane takes the number of {snapshots} snapshots that balances each group"
            )?,
        }
        let lanes = self.exchanged.iter().enumerate();
        let layers = lanes.flat_map(|(lane, layers)| layers.iter().enumerate().map(move |l| (lane, l)));
        let exchanged = layers.filter(|(_, (_, exchanged))| **exchanged);
        let exchanged: Vec<String> =
            exchanged.map(|(lane, (layer, _))| format!("layer {} on lane {}", layer + 1, lane + 1)).collect();
        match &exchanged[..] {
            [] => write!(f, "; no layer exchanged")?,
            layers => write!(f, "; exchanged: {}", layers.join(", "))?,
        }
        write!(f, "; predictions of ops are off by {:.0} %", 100.0 * self.op_error)
    }
}
