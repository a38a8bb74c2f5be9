//! Which steps train, validate and test.
use crate::{
    data::Snapshots,
    error::{Error, Result},
};
use std::ops::Range;

/// Parts of the steps, by the step that is predicted. The first step has no history and is never predicted; the history of a
/// step may reach into the part before its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSplit {
    /// Steps that train.
    pub train: Range<usize>,
    /// Steps that validate.
    pub val: Range<usize>,
    /// Steps that test.
    pub test: Range<usize>,
}

impl SnapshotSplit {
    /// The first `train` of the steps, then `val` of them, then the rest. The first end is rounded down, the second to the nearest step.
    ///
    /// # Errors
    /// Usage where the shares leave no room for one another; data where there are fewer than two steps.
    pub fn of(snapshots: &Snapshots, train: f64, val: f64) -> Result<Self> {
        if !(train > 0.0 && val >= 0.0 && train + val <= 1.0) {
            return Err(Error::usage(format!("data.train is {train} and data.val is {val}"))
                .remedy("give shares of 1, the first of them above 0"));
        }
        let n = snapshots.len();
        if n < 2 {
            return Err(Error::data(
                &snapshots.name,
                format!("{n} snapshot has nothing to be predicted from"),
            )
            .remedy("take shorter ones: --every"));
        }
        let a = ((n as f64 * train) as usize).clamp(2, n);
        let b = ((n as f64 * (train + val)).round() as usize).clamp(a, n);
        Ok(SnapshotSplit { train: 1..a, val: a..b, test: b..n })
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
            ids: None,
            notes: vec![],
        }
    }

    #[test]
    fn parts_follow_one_another_and_the_first_step_is_in_none() {
        let s = SnapshotSplit::of(&snapshots(20), 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (1..14, 14..17, 17..20));
        let s = SnapshotSplit::of(&snapshots(2), 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (1..2, 2..2, 2..2));
        assert!(SnapshotSplit::of(&snapshots(1), 0.7, 0.15).is_err());
        assert!(SnapshotSplit::of(&snapshots(9), 0.7, 0.4).is_err());
    }
}
