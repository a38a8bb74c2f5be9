//! The split of the steps into training, validation and test parts.
use std::ops::Range;
use tgnn::error::{Error, Result};
use tgnn_data::Snapshots;

/// The steps that each part predicts. The first step has no history and is never predicted. The history of a
/// step may reach into the part before its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSplit {
    /// Steps of the training part.
    pub train: Range<usize>,
    /// Steps of the validation part.
    pub val: Range<usize>,
    /// Steps of the test part.
    pub test: Range<usize>,
}

impl SnapshotSplit {
    /// Splits the steps in order: the fraction `train`, the fraction `val`, and the rest. The end of the
    /// training part is rounded down, the end of the validation part to the nearest step.
    ///
    /// # Errors
    /// `Usage` if the fractions are not valid; `Data` if there are fewer than two steps.
    pub fn new(snapshots: &Snapshots, train: f64, val: f64) -> Result<Self> {
        if !(train > 0.0 && val >= 0.0 && train + val <= 1.0) {
            return Err(Error::usage(format!("data.train is {train} and data.val is {val}"))
                .remedy("give fractions that add up to at most 1, with data.train above 0"));
        }
        let n = snapshots.len();
        if n < 2 {
            return Err(Error::data(
                &snapshots.name,
                format!("{n} snapshot has nothing to be predicted from"),
            )
            .remedy("make the snapshots shorter with --every"));
        }
        let train_end = ((n as f64 * train) as usize).clamp(2, n);
        let val_end = ((n as f64 * (train + val)).round() as usize).clamp(train_end, n);
        Ok(SnapshotSplit { train: 1..train_end, val: train_end..val_end, test: val_end..n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshots(steps: usize) -> Snapshots {
        Snapshots {
            name: "test".into(),
            nodes: 1,
            offsets: vec![0; steps + 1],
            src: vec![],
            dst: vec![],
            weight: None,
            labels: vec![String::new(); steps],
            present: None,
            features: None,
            targets: None,
            target_unit: 1.0,
            classes: None,
            encoding: None,
            class_values: None,
            ids: None,
            notes: vec![],
        }
    }

    #[test]
    fn parts_are_consecutive_and_exclude_the_first_step() {
        let s = SnapshotSplit::new(&snapshots(20), 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (1..14, 14..17, 17..20));
        let s = SnapshotSplit::new(&snapshots(2), 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (1..2, 2..2, 2..2));
        assert!(SnapshotSplit::new(&snapshots(1), 0.7, 0.15).is_err());
        assert!(SnapshotSplit::new(&snapshots(9), 0.7, 0.4).is_err());
    }
}
