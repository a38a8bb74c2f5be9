//! Time series on a static graph: one value per step and vertex, used as features and as targets.
//!
//! A model that predicts step `S` reads the steps before it. The targets of step `S` are the values of the
//! series at `S, S + 1, .., S + horizon - 1`. The features of step `t` are the values at
//! `t - lags + 1, .., t - 1, t`, so the last value read to predict step `S` is that of step `S - 1`. PyTorch
//! Geometric Temporal's loaders with `lags` pair the same values.
use super::{SnapshotOptions, Snapshots, build::Edges};
use crate::{
    data::{
        Features, Ids,
        format::graph::{Matrix, matrix},
    },
    error::{Error, Result},
    runtime::check_room,
};
use std::path::{Path, PathBuf};

/// Remedy if features and targets do not fit memory.
const ROOM: &str = "take fewer snapshots.lags, or a smaller snapshots.horizon";

impl Snapshots {
    /// Creates snapshots of a static `graph` with a signal, `[steps, nodes]` in row-major order. `weighted`
    /// says whether the weights of the edges count. Lagged features from before the first step repeat a
    /// vertex's first value; targets after the last step are NaN.
    pub(super) fn of_series(
        name: String,
        (graph, weighted): (Edges, bool),
        mut signal: Vec<f32>,
        nodes: usize,
        options: &SnapshotOptions,
    ) -> Result<Self> {
        let steps = signal.len() / nodes;
        let mut s = Self::of_edges(name, nodes, vec![graph], Vec::new(), weighted)?;
        let edges = s.src.len();
        check_room("the edges of all steps", 12 * edges * steps, "take a smaller graph, or fewer steps")?;
        (s.src, s.dst) = (s.src.repeat(steps), s.dst.repeat(steps));
        s.weight = s.weight.map(|w| w.repeat(steps));
        s.offsets = (0..=steps).map(|step| step * edges).collect();
        s.labels = (0..steps).map(|step| step.to_string()).collect();
        if options.normalise {
            s.target_unit = normalise(&mut signal, nodes, options.trains(steps));
        }
        let (lags, horizon) = (options.lags, options.horizon);
        check_room("lags and horizon of a series", 4 * signal.len() * (lags + horizon), ROOM)?;
        let value = |step: usize, v: usize| signal[step * nodes + v];
        let rows = || (0..steps).flat_map(|t| (0..nodes).map(move |v| (t, v)));
        let features = rows().flat_map(|(t, v)| (0..lags).map(move |k| (t, v, k)));
        let features = features.map(|(t, v, k)| value((t + k + 1).saturating_sub(lags), v)).collect();
        let targets = rows().flat_map(|(t, v)| (0..horizon).map(move |k| (t + k, v)));
        let targets = targets.map(|(t, v)| if t < steps { value(t, v) } else { f32::NAN }).collect();
        s.features = Some(Features::from_vec(signal.len(), lags, features)?);
        s.targets = Some(Features::with_unknown(signal.len(), horizon, targets)?);
        Ok(s)
    }
}

impl SnapshotOptions {
    /// Returns the number of training steps, as [`SnapshotSplit`](crate::task::SnapshotSplit) computes it.
    pub(super) fn trains(&self, steps: usize) -> usize {
        ((steps as f64 * self.train) as usize).clamp(2.min(steps), steps)
    }
}

/// Shifts and scales all values so that the first `train` rows of `width` have mean 0 and standard deviation
/// 1, computed in f64. Returns the standard deviation before scaling, which is the size of one unit
/// afterwards. If all training values are equal, values are only shifted, and the unit is 1. NaNs do not
/// count and stay NaN.
pub(super) fn normalise(values: &mut [f32], width: usize, train: usize) -> f64 {
    let known = || values[..train * width].iter().filter(|v| !v.is_nan()).map(|v| f64::from(*v));
    let n = known().count().max(1) as f64;
    let mean = known().sum::<f64>() / n;
    let deviation = (known().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    let unit = if deviation > 0.0 { deviation } else { 1.0 };
    values.iter_mut().for_each(|v| *v = ((f64::from(*v) - mean) / unit) as f32);
    unit
}

/// Returns the two tables of a folder in the layout of T-GCN's data (Zhao et al. 2020): `NAME_adj.csv` and
/// the only other `NAME_*.csv`. `None` if there is no such pair.
pub(super) fn tables(dir: &Path) -> Option<[PathBuf; 2]> {
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path());
    let mut files: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "csv")).collect();
    files.sort();
    let name = |p: &Path| p.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let adjacency = files.iter().find(|p| name(p).ends_with("_adj"))?.clone();
    let prefix = name(&adjacency).trim_end_matches("adj").to_owned();
    let mut others = files.into_iter().filter(|p| name(p).starts_with(&prefix) && *p != adjacency);
    match (others.next(), others.next()) {
        (Some(signal), None) => Some([adjacency, signal]),
        _ => None,
    }
}

/// Reads the tables that [`tables`] returned: an adjacency matrix, whose entries above 0 are weights of
/// edges, and a signal with one row per step below a header of vertex ids.
pub(super) fn read_tables(
    [adjacency, signal]: &[PathBuf; 2],
    options: &SnapshotOptions,
) -> Result<Snapshots> {
    let weighted = options.reads_weights(adjacency)?;
    let (a, values) = (matrix(adjacency, false, 0.0)?, matrix(signal, true, f32::NEG_INFINITY)?);
    let (rows, v) = (a.values.len() / a.cols, values.cols);
    if rows != v || a.cols != v {
        let what = format!("the adjacency matrix is [{rows}, {}], but there are {v} vertices", a.cols);
        return Err(Error::data(adjacency, what)
            .remedy(format!("there must be a row and a column for each column of {}", signal.display())));
    }
    let edge = |(i, w): (usize, &f32)| (*w > 0.0).then_some(((i / v) as u32, (i % v) as u32, *w));
    let edges: Edges = a.values.iter().enumerate().filter_map(edge).collect();
    let name = adjacency.file_stem().map(|n| n.to_string_lossy().replace("_adj", "")).unwrap_or_default();
    let ids = ids(&values);
    let mut s = Snapshots::of_series(name, (edges, weighted), values.values, v, options)?;
    s.ids = ids;
    Ok(s)
}

/// Returns the column names as ids; `None` unless all of them are integers.
fn ids(signal: &Matrix) -> Option<Ids> {
    signal.names.iter().map(|n| n.parse().ok()).collect::<Option<Vec<u64>>>().map(Ids::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(options: &SnapshotOptions) -> Snapshots {
        // The value of vertex v at step t is 10 t + v.
        let signal = (0..5).flat_map(|t| (0..2).map(move |v| (10 * t + v) as f32)).collect();
        let s = Snapshots::of_series("s".into(), (vec![(0, 1, 1.0)], true), signal, 2, options).unwrap();
        s.validate("s").unwrap();
        s
    }

    #[test]
    fn features_end_one_step_before_the_first_predicted_value() {
        let options = SnapshotOptions { lags: 3, horizon: 2, normalise: false, ..SnapshotOptions::default() };
        let s = series(&options);
        let (features, targets) = (s.features.as_ref().unwrap(), s.targets.as_ref().unwrap());
        // Step 3 is predicted from the features of step 2: values up to 20 for vertex 0; the targets are 30
        // and 40.
        assert_eq!((features.row(2 * 2), targets.row(3 * 2)), (&[0., 10., 20.][..], &[30., 40.][..]));
        assert_eq!((features.row(3), features.row(1)), (&[1., 1., 11.][..], &[1., 1., 1.][..]));
        let last = targets.row(4 * 2 + 1);
        assert!(last[0] == 41. && last[1].is_nan());
        assert_eq!((s.len(), s.target_unit, s.present, s.weight), (5, 1.0, None, None));
        for step in 1..5 {
            let seen = &features.values()[..step * 2 * 3];
            assert!(targets.row(step * 2).iter().all(|wanted| !seen.contains(wanted)), "step {step}");
        }
    }

    #[test]
    fn normalised_values_have_mean_0_and_deviation_1_over_the_training_steps_only() {
        let options = SnapshotOptions { lags: 1, train: 0.6, ..SnapshotOptions::default() };
        let s = series(&options);
        // The training values are 0, 1, 10, 11, 20, 21: mean 10.5, variance 200 / 3 + 1 / 4.
        let deviation = (200.0f64 / 3.0 + 0.25).sqrt();
        assert!((s.target_unit - deviation).abs() < 1e-12);
        let wanted = |x: f64| ((x - 10.5) / deviation) as f32;
        assert_eq!(s.features.unwrap().row(9), [wanted(41.)]);
        assert_eq!(s.targets.unwrap().row(9), [wanted(41.)]);
        let mut alike = [3.0f32, 3.0, f32::NAN, 5.0];
        assert_eq!(normalise(&mut alike, 1, 3), 1.0);
        assert_eq!((alike[0], alike[3], alike[2].is_nan()), (0.0, 2.0, true));
    }
}
