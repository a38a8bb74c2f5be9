//! Series on a graph: values per step and vertex, used as features and as targets.
//!
//! A model that predicts step `S` reads the steps before it. The targets of step `S` are the values of one
//! column of the series at `S, S + 1, .., S + horizon - 1`. The features of step `t` are the values of each
//! column at `t - lags + 1, .., t - 1, t`, so the last value read to predict step `S` is that of step `S -
//! 1`. PyTorch Geometric Temporal's loaders with `lags` pair the same values.
use super::{Normalise, SnapshotOptions, Snapshots, build::Edges};
use crate::{
    Features, Ids,
    format::graph::{Matrix, matrix},
    text::counted,
};
use std::path::{Path, PathBuf};
use tgnn::{
    error::{Error, Result},
    runtime::check_room,
};

/// Remedy if features and targets do not fit memory.
const ROOM: &str = "take fewer snapshots.lags, or a smaller snapshots.horizon";

/// Values of one or several columns for each step and vertex.
pub(super) struct Signal {
    /// Value of column `k` of vertex `v` in step `t`, at index `(t * nodes + v) * columns + k`.
    pub values: Vec<f32>,
    /// Number of vertices.
    pub nodes: usize,
    /// Number of columns.
    pub columns: usize,
    /// Column that is predicted, from 0.
    pub target: usize,
}

impl Signal {
    /// Returns a signal of one column, `[steps, nodes]` in row-major order.
    pub(super) fn of_column(values: Vec<f32>, nodes: usize) -> Self {
        Signal { values, nodes, columns: 1, target: 0 }
    }
}

impl Snapshots {
    /// Creates snapshots of a `signal` on `graphs`: one for each step, or one for all. `weighted` says
    /// whether the weights of the edges count. Lagged features from before the first step repeat a vertex's
    /// first value; targets after the last step are NaN.
    pub(super) fn of_series(
        name: String,
        (graphs, weighted): (Vec<Edges>, bool),
        mut signal: Signal,
        options: &SnapshotOptions,
    ) -> Result<Self> {
        let (nodes, columns, target) = (signal.nodes, signal.columns, signal.target);
        let steps = signal.values.len() / (nodes * columns);
        let labels: Vec<String> = (0..steps).map(|step| step.to_string()).collect();
        let mut s = if graphs.len() == 1 {
            let graph = Self::of_edges(name, nodes, graphs, Vec::new(), weighted)?;
            graph.repeated(steps, labels)?
        } else {
            Self::of_edges(name, nodes, graphs, labels, weighted)?
        };
        let train = options.trains(steps) * nodes * columns;
        match options.normalise {
            Normalise::Off => {}
            Normalise::Column => s.target_unit = normalise(&mut signal.values, columns, train)[target],
            Normalise::Vertex => {
                normalise(&mut signal.values, nodes * columns, train);
                s.notes.push("errors are in standard deviations of each vertex".into());
            }
        }
        let (lags, horizon) = (options.lags, options.horizon);
        let room = 4 * signal.values.len() * lags + 4 * steps * nodes * horizon;
        check_room("lags and horizon of a series", room, ROOM)?;
        let value = |step: usize, v: usize, k: usize| signal.values[(step * nodes + v) * columns + k];
        let rows = || (0..steps).flat_map(|t| (0..nodes).map(move |v| (t, v)));
        let lagged = |k: usize| (0..lags).map(move |lag| (k, lag));
        let features = rows().flat_map(|at| (0..columns).flat_map(lagged).map(move |of| (at, of)));
        let features = features.map(|((t, v), (k, lag))| value((t + lag + 1).saturating_sub(lags), v, k));
        let features = Features::from_vec(steps * nodes, columns * lags, features.collect())?;
        let targets = rows().flat_map(|(t, v)| (0..horizon).map(move |ahead| (t + ahead, v)));
        let targets = targets.map(|(t, v)| if t < steps { value(t, v, target) } else { f32::NAN }).collect();
        s.features = Some(features);
        s.targets = Some(Features::with_unknown(steps * nodes, horizon, targets)?);
        Ok(s)
    }

    /// Repeats the only step, once for each of the `labels`.
    pub(super) fn repeated(mut self, steps: usize, labels: Vec<String>) -> Result<Self> {
        let edges = self.src.len();
        check_room("the edges of all steps", 12 * edges * steps, "take a smaller graph, or fewer steps")?;
        (self.src, self.dst) = (self.src.repeat(steps), self.dst.repeat(steps));
        self.weight = self.weight.map(|w| w.repeat(steps));
        self.offsets = (0..=steps).map(|step| step * edges).collect();
        self.labels = labels;
        Ok(self)
    }
}

impl SnapshotOptions {
    /// Returns the number of training steps, as `tgnn_training::task::SnapshotSplit` computes it.
    pub(super) fn trains(&self, steps: usize) -> usize {
        ((steps as f64 * self.train) as usize).clamp(2.min(steps), steps)
    }

    /// Returns the column to predict, from 0, of a series of `columns` columns in `file`, of which the loader
    /// predicts the column `loaders`.
    pub(super) fn target_column(&self, file: &Path, columns: usize, loaders: usize) -> Result<usize> {
        match self.target {
            0 => Ok(loaders.min(columns - 1)),
            k if k <= columns => Ok(k - 1),
            k => {
                let (file, has) = (file.display(), counted(columns as u64, "column"));
                Err(Error::usage(format!("snapshots.target is {k}, but {file} has {has}"))
                    .remedy(format!("give a column from 1 to {columns}")))
            }
        }
    }
}

/// Shifts and scales the values `i`, `i + columns`, `i + 2 columns`, .. for each `i < columns` so that those
/// among the first `train` values have mean 0 and standard deviation 1, computed in f64. Returns their
/// standard deviations before, which are the size of one unit afterwards. If all training values of a column
/// are equal, it is only shifted, and the unit is 1. NaNs do not count and stay NaN.
pub(super) fn normalise(values: &mut [f32], columns: usize, train: usize) -> Vec<f64> {
    let mean_of = |values: &[f32], of: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
        let (mut sums, mut counts) = (vec![0f64; columns], vec![0usize; columns]);
        for (i, value) in values[..train].iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            sums[i % columns] += of(i % columns, f64::from(*value));
            counts[i % columns] += 1;
        }
        sums.into_iter().zip(counts).map(|(sum, n)| sum / n.max(1) as f64).collect()
    };
    let means = mean_of(values, &|_, value| value);
    let variances = mean_of(values, &|column, value| (value - means[column]).powi(2));
    let unit = |variance: f64| if variance > 0.0 { variance.sqrt() } else { 1.0 };
    let units: Vec<f64> = variances.into_iter().map(unit).collect();
    for (i, value) in values.iter_mut().enumerate() {
        *value = ((f64::from(*value) - means[i % columns]) / units[i % columns]) as f32;
    }
    units
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
    let notes = [a.lines.note(adjacency), values.lines.note(signal)];
    let signal = Signal::of_column(values.values, v);
    let mut s = Snapshots::of_series(name, (vec![edges], weighted), signal, options)?;
    s.ids = ids;
    s.notes.extend(notes.into_iter().flatten());
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
        let signal = Signal::of_column(signal, 2);
        let graphs = (vec![vec![(0, 1, 1.0)]], true);
        let s = Snapshots::of_series("s".into(), graphs, signal, options).unwrap();
        s.validate("s").unwrap();
        s
    }

    #[test]
    fn features_end_one_step_before_the_first_predicted_value() {
        let options =
            SnapshotOptions { lags: 3, horizon: 2, normalise: Normalise::Off, ..SnapshotOptions::default() };
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
        assert_eq!(normalise(&mut alike, 1, 3), [1.0]);
        assert_eq!((alike[0], alike[3], alike[2].is_nan()), (0.0, 2.0, true));
    }

    #[test]
    fn each_vertex_has_its_own_mean_and_deviation_on_request() {
        let options = SnapshotOptions { lags: 1, normalise: Normalise::Vertex, ..SnapshotOptions::default() };
        let s = series(&options);
        // The training values of vertex 1 are 1, 11, 21.
        let wanted = (30.0 / (200.0f64 / 3.0).sqrt()) as f32;
        assert_eq!((s.features.unwrap().row(9), s.target_unit), (&[wanted][..], 1.0));
        assert_eq!(s.notes, ["errors are in standard deviations of each vertex"]);
    }

    #[test]
    fn of_several_columns_all_are_features_and_one_is_predicted() {
        // Step t, vertex v, column k: 100 t + 10 v + k.
        let values = (0..3).flat_map(|t| (0..2).flat_map(move |v| [0, 1].map(|k| 100 * t + 10 * v + k)));
        let values = values.map(|x| x as f32).collect();
        let options =
            SnapshotOptions { lags: 2, normalise: Normalise::Off, target: 2, ..SnapshotOptions::default() };
        let target = options.target_column(Path::new("f"), 2, 0).unwrap();
        let signal = Signal { values, nodes: 2, columns: 2, target };
        let graphs = vec![vec![(0, 1, 1.0)], vec![], vec![(1, 0, 1.0), (0, 1, 1.0)]];
        let s = Snapshots::of_series("s".into(), (graphs, true), signal, &options).unwrap();
        s.validate("s").unwrap();
        assert_eq!(s.features.unwrap().row(2 * 2 + 1), [110., 210., 111., 211.]);
        assert_eq!(
            (s.targets.unwrap().values(), &s.offsets[..]),
            (&[1., 11., 101., 111., 201., 211.][..], &[0, 1, 1, 3][..])
        );
        let said = |target| {
            let options = SnapshotOptions { target, ..options.clone() };
            options.target_column(Path::new("f"), 2, 1).map_err(|e| e.to_string())
        };
        assert_eq!((said(0), said(1)), (Ok(1), Ok(0)));
        assert_eq!(
            said(3).unwrap_err(),
            "snapshots.target is 3, but f has 2 columns; give a column from 1 to 2"
        );
    }
}
