//! Snapshots in JSON, in the layouts of PyTorch Geometric Temporal's loaders (Rozemberczki et al. 2021).
//!
//! | file | contents | loaders |
//! | --- | --- | --- |
//! | a graph with a signal | `edges`, optional `weights`, and one row of values per step in `FX`, `X` or `block` | Chickenpox, PedalMe, Windmill |
//! | a graph with a signal | `edges`, optional `weights`, and `"0"`, `"1"`, ..: one object per step, with `y` | WikiMaths |
//! | one object per step | `"0"`, `"1"`, ..: each with `edges` and optional `weights`, `X`, `y` | Twitter Tennis |
//!
//! A signal becomes features and targets in the same way as a [series](super::series). With one object per
//! step, `X` are the features of the step and `ln(1 + y)` its targets, which are predicted from the steps
//! before it: the original loader, too, shifts `y` by one step and takes its logarithm.
use super::{SnapshotOptions, Snapshots, build::Edges, series::normalise};
use crate::{
    data::{
        Features,
        format::{graph, stem},
    },
    error::{Error, Result},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt, path::Path};

/// Contents of a file; other keys are ignored.
#[derive(Default)]
struct File {
    graph: Graph,
    /// One row of values per step.
    signal: Option<Vec<Vec<f32>>>,
    steps: BTreeMap<usize, Step>,
    /// The number of steps that the file declares.
    periods: Option<usize>,
}

/// Static graph.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Graph {
    edges: Option<Vec<(u32, u32)>>,
    weights: Option<Vec<f32>>,
}

/// Object of a step.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Step {
    edges: Option<Vec<(u32, u32)>>,
    weights: Option<Vec<f32>>,
    #[serde(rename = "X")]
    features: Option<Vec<Vec<f32>>>,
    y: Option<Vec<f32>>,
}

// Written by hand because errors in fields under serde's `flatten` lose their line and column.
impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = File;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an object with the `edges` of a graph, or with one step under each of `0`, `1`, ..",
                )
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
                let mut file = File::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "edges" => file.graph.edges = Some(map.next_value()?),
                        "weights" => file.graph.weights = Some(map.next_value()?),
                        "FX" | "X" | "block" => file.signal = Some(map.next_value()?),
                        "time_periods" => file.periods = Some(map.next_value()?),
                        key => match key.parse() {
                            Ok(step) if file.steps.insert(step, map.next_value()?).is_some() => {
                                return Err(A::Error::custom(format!("step {step} occurs twice")));
                            }
                            Ok(_) => {}
                            Err(_) => drop(map.next_value::<IgnoredAny>()?),
                        },
                    }
                }
                Ok(file)
            }
        }
        from.deserialize_map(Fields)
    }
}

/// Whether a file name ends in `.json` or `.json.gz`, in any case of letters.
pub(super) fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// Reads a JSON file.
///
/// # Errors
/// Data, with line and column or with step and edge, if the file is faulty.
pub(super) fn read(path: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
    let file: File = serde_json::from_slice(&graph::bytes(path)?).map_err(|e| {
        let place = (e.line() as u64, e.column() as u64);
        let text = e.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        Error::data(path, what.to_owned())
            .at(place.0, place.1)
            .remedy("see docs/snapshots.md for the layout of a file of snapshots")
    })?;
    let bad = |what: String| Error::data(path, what).remedy("fix the file, or fetch it again");
    let steps = file.steps.len();
    if let Some((at, _)) = file.steps.keys().enumerate().find(|(i, step)| i != *step) {
        return Err(bad(format!("step {at} of {steps} is missing")));
    }
    if let Some(periods) = file.periods.filter(|p| steps > 0 && *p != steps) {
        return Err(bad(format!("time_periods is {periods}, but there are {steps} steps")));
    }
    let reader = Reader { path, options, bad: &bad };
    let steps = file.steps.into_values().collect();
    match (file.graph.edges.is_some(), file.signal) {
        (true, Some(signal)) => reader.series(file.graph, signal),
        (true, None) => reader.series(
            file.graph,
            values(steps, |step| step.y).ok_or_else(|| {
                bad("there are edges, but neither FX, X, block nor a y in each step".into())
            })?,
        ),
        (false, None) if !steps.is_empty() => reader.steps(steps),
        _ => Err(bad("there are neither edges nor steps".into())),
    }
}

/// Returns a field of all steps; `None` if a step lacks it or there are no steps.
fn values<T>(steps: Vec<Step>, field: impl Fn(Step) -> Option<T>) -> Option<Vec<T>> {
    Some(steps.into_iter().map(field).collect::<Option<Vec<T>>>()?).filter(|values| !values.is_empty())
}

/// Context of converting a parsed file.
struct Reader<'a> {
    path: &'a Path,
    options: &'a SnapshotOptions,
    /// Creates a data error about the file.
    bad: &'a dyn Fn(String) -> Error,
}

impl Reader<'_> {
    /// Creates snapshots of a static graph with a signal.
    fn series(&self, graph: Graph, signal: Vec<Vec<f32>>) -> Result<Snapshots> {
        let nodes = signal.first().map_or(0, Vec::len);
        let signal = self.rows(&signal, nodes, "values")?;
        let weighted = graph.weights.is_some() && self.options.reads_weights(self.path)?;
        let edges =
            self.edges(graph.edges.unwrap_or_default(), graph.weights, weighted, nodes, "the graph")?;
        Snapshots::of_series(stem(self.path), (edges, weighted), signal, nodes, self.options)
    }

    /// Creates snapshots with the edges, features and targets of each step.
    fn steps(&self, steps: Vec<Step>) -> Result<Snapshots> {
        let (t, options) = (steps.len(), self.options);
        let weighted = steps.iter().any(|s| s.weights.is_some()) && options.reads_weights(self.path)?;
        let first = &steps[0];
        let known = first.y.as_ref().map(Vec::len).or(first.features.as_ref().map(Vec::len));
        let last_vertex = || steps.iter().flat_map(|s| s.edges.iter().flatten()).map(|e| e.0.max(e.1)).max();
        let nodes = known.unwrap_or_else(|| last_vertex().map_or(0, |v| v as usize + 1));
        let (mut edges, mut features, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (i, step) in steps.into_iter().enumerate() {
            let place = format!("step {i}");
            edges.push(self.edges(step.edges.unwrap_or_default(), step.weights, weighted, nodes, &place)?);
            features.extend(step.features);
            targets.extend(step.y);
        }
        let labels = (0..t).map(|s| s.to_string()).collect();
        let mut s = Snapshots::of_edges(stem(self.path), nodes, edges, labels, weighted)?;
        for (what, n) in [("X", features.len()), ("y", targets.len())] {
            if n > 0 && n < t {
                return Err((self.bad)(format!("only {n} of {t} steps have {what}")));
            }
        }
        if !features.is_empty() {
            s.features = Some(self.features(features, nodes)?);
        }
        if !targets.is_empty() {
            let (targets, unit) = self.targets(&targets, nodes)?;
            (s.targets, s.target_unit) = (Some(targets), unit);
            s.notes.push("targets are ln(1 + y), as in the loader of PyTorch Geometric Temporal".into());
        }
        if s.targets.is_none() && s.features.is_none() {
            s.mark_present(options.presence)?;
        }
        Ok(s)
    }

    /// Returns the features `[steps * nodes, width]`, normalised column by column if the options say so;
    /// `steps` has the rows of each step.
    fn features(&self, steps: Vec<Vec<Vec<f32>>>, nodes: usize) -> Result<Features> {
        let t = steps.len();
        let rows: Vec<Vec<f32>> = steps.into_iter().flatten().collect();
        if rows.len() != t * nodes {
            return Err((self.bad)(format!("{} rows of X for {nodes} vertices in {t} steps", rows.len())));
        }
        let cols = rows.first().map_or(0, Vec::len);
        let mut values = self.rows(&rows, cols, "features of a vertex")?;
        if self.options.normalise {
            let train = self.options.trains(t) * nodes;
            (0..cols).for_each(|column| normalise_column(&mut values, cols, column, train));
        }
        Features::from_vec(rows.len(), cols, values)
    }

    /// Returns the targets `ln(1 + y)`, `[steps * nodes, 1]`, normalised if the options say so, and the size
    /// of one unit of them; `steps` has the values `y` of each step.
    fn targets(&self, steps: &[Vec<f32>], nodes: usize) -> Result<(Features, f64)> {
        let mut values = self.rows(steps, nodes, "targets")?;
        if let Some(i) = values.iter().position(|y| *y < 0.0) {
            let (step, vertex) = (i / nodes, i % nodes);
            return Err((self.bad)(format!("y of vertex {vertex} in step {step} is {}", values[i])));
        }
        values.iter_mut().for_each(|y| *y = y.ln_1p());
        let train = self.options.trains(steps.len());
        let unit = if self.options.normalise { normalise(&mut values, nodes, train) } else { 1.0 };
        Ok((Features::from_vec(steps.len() * nodes, 1, values)?, unit))
    }

    /// Concatenates rows, each of which must have `width` numbers; error messages call the numbers `what`.
    fn rows(&self, rows: &[Vec<f32>], width: usize, what: &str) -> Result<Vec<f32>> {
        if rows.is_empty() || width == 0 {
            return Err((self.bad)(format!("there are no {what}")));
        }
        match rows.iter().position(|row| row.len() != width) {
            Some(i) => {
                Err((self.bad)(format!("row {i} has {} {what}, the first one has {width}", rows[i].len())))
            }
            None => Ok(rows.concat()),
        }
    }

    /// Checks edges and combines them with their weights, which are 1 unless `weighted`. Error messages call
    /// the list of edges `place`.
    fn edges(
        &self,
        edges: Vec<(u32, u32)>,
        weights: Option<Vec<f32>>,
        weighted: bool,
        nodes: usize,
        place: &str,
    ) -> Result<Edges> {
        if let Some(weights) = weights.as_ref().filter(|w| w.len() != edges.len()) {
            return Err((self.bad)(format!(
                "{place} has {} weights for {} edges",
                weights.len(),
                edges.len()
            )));
        }
        let weight = |i: usize| weights.as_ref().filter(|_| weighted).map_or(1.0, |w| w[i]);
        let edge = |(i, (src, dst)): (usize, (u32, u32))| {
            if src.max(dst) as usize >= nodes {
                let what =
                    format!("edge {i} of {place} is ({src}, {dst}), but there are only {nodes} vertices");
                return Err((self.bad)(what));
            }
            match weight(i) {
                w if w > 0.0 => Ok((src, dst, w)),
                w => Err((self.bad)(format!("edge {i} of {place} has the weight {w}, which is not above 0"))),
            }
        };
        edges.into_iter().enumerate().map(edge).collect()
    }
}

/// Normalises one column of a row-major table, as [`normalise`] does; `train` is the number of training rows.
fn normalise_column(values: &mut [f32], cols: usize, column: usize, train: usize) {
    let mut of_column: Vec<f32> = values.iter().skip(column).step_by(cols).copied().collect();
    normalise(&mut of_column, 1, train);
    values.iter_mut().skip(column).step_by(cols).zip(of_column).for_each(|(to, v)| *to = v);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Presence;

    fn read_with(text: &str, options: &SnapshotOptions) -> Result<Snapshots> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pox.json");
        std::fs::write(&path, text).unwrap();
        let s = read(&path, options)?;
        s.validate("pox").map(|()| s)
    }

    fn plain() -> SnapshotOptions {
        SnapshotOptions { normalise: false, lags: 2, ..SnapshotOptions::default() }
    }

    #[test]
    fn a_graph_with_a_signal_is_a_series_under_any_of_the_keys() {
        let text = |signal: &str| {
            format!(r#"{{"edges": [[0, 1], [1, 1]], "node_ids": {{"A": 0, "B": 1}}, {signal}}}"#)
        };
        let rows = "[[1, 2], [3, 4], [5, 6]]";
        let steps =
            r#""time_periods": 3, "1": {"y": [3, 4]}, "0": {"y": [1, 2]}, "2": {"index": 2, "y": [5, 6]}"#;
        for signal in [format!(r#""FX": {rows}"#), format!(r#""block": {rows}"#), steps.into()] {
            let s = read_with(&text(&signal), &plain()).unwrap();
            assert_eq!((s.len(), s.nodes, s.src.len(), s.name.as_str()), (3, 2, 6, "pox"));
            assert_eq!(s.features.unwrap().values(), [1., 1., 2., 2., 1., 3., 2., 4., 3., 5., 4., 6.]);
            assert_eq!(s.targets.unwrap().values(), [1., 2., 3., 4., 5., 6.]);
        }
    }

    const STEPS: &str = r#"{"0": {"index": 0, "edges": [[1, 0], [0, 1]], "weights": [2, 1], "y": [0, 3], "X": [[1, 0.5], [2, 0]]},
        "1": {"edges": [[0, 1]], "weights": [4], "y": [1, 0], "X": [[3, 0], [4, 0]]}, "time_periods": 2, "node_ids": {}}"#;

    #[test]
    fn an_object_per_step_gives_the_features_and_targets_of_that_step() {
        let s = read_with(STEPS, &plain()).unwrap();
        assert_eq!((&s.offsets[..], s.weight.unwrap()), (&[0, 2, 3][..], vec![1., 2., 4.]));
        assert_eq!(s.features.unwrap().values(), [1., 0.5, 2., 0., 3., 0., 4., 0.]);
        let (ln2, ln4) = (2f32.ln(), 4f32.ln());
        assert_eq!(s.targets.unwrap().values(), [0., ln4, ln2, 0.]);
        assert_eq!((s.present, s.target_unit), (None, 1.0));
        let s = read_with(STEPS, &SnapshotOptions::default()).unwrap();
        let features = s.features.unwrap();
        let column: f32 = features.values().iter().step_by(2).sum();
        assert!(column.abs() < 1e-6 && s.target_unit != 1.0);
    }

    #[test]
    fn steps_with_only_edges_mark_vertices_as_present() {
        let text = r#"{"0": {"edges": [[0, 1]]}, "1": {"edges": [[2, 1]]}}"#;
        let s = read_with(text, &SnapshotOptions { presence: Presence::Active, ..plain() }).unwrap();
        assert_eq!((s.present.unwrap(), s.weight), (vec![true, true, false, false, true, true], None));
    }

    #[test]
    fn errors_name_line_and_column_or_step_and_edge() {
        let said = |from: &str, to: &str| {
            let text = STEPS.replacen(from, to, 1);
            assert_ne!(text, STEPS);
            let e = read_with(&text, &plain()).unwrap_err().to_string();
            assert!(!e.contains('\n') && e.contains("; "), "{e}");
            e[e.find("pox.json").unwrap() + 8..].to_owned()
        };
        let wrong = said("[2, 1]", "[2, true]");
        assert!(wrong.starts_with(":1:65: invalid type: boolean `true`, expected f32; "), "{wrong}");
        let wrong = said("\"time", "oops");
        assert!(wrong.starts_with(":2:"), "{wrong}");
        assert!(said("[0, 1]], \"w", "[0, 1], \"w").starts_with(":1:"));
        assert!(said(r#""1": {"#, r#""2": {"#).starts_with(": step 1 of 2 is missing; "));
        assert!(said(": 2,", ": 3,").starts_with(": time_periods is 3, but there are 2 steps; "));
        assert!(said("[4]", "[4, 4]").starts_with(": step 1 has 2 weights for 1 edges; "));
        assert!(
            said("[4]", "[0]").starts_with(": edge 0 of step 1 has the weight 0, which is not above 0; ")
        );
        assert!(
            said("[[1, 0]", "[[1, 2]")
                .starts_with(": edge 0 of step 0 is (1, 2), but there are only 2 vertices; ")
        );
        assert!(said("[0, 3]", "[0, -3]").starts_with(": y of vertex 1 in step 0 is -3; "));
        assert!(
            said("[1, 0], \"X\"", "[1], \"X\"").starts_with(": row 1 has 1 targets, the first one has 2; ")
        );
        assert!(
            said("[4, 0]]", "[4]]").starts_with(": row 3 has 1 features of a vertex, the first one has 2; ")
        );
        assert!(said(", \"y\": [1, 0]", "").starts_with(": only 1 of 2 steps have y; "));
        assert!(said(", \"X\": [[3, 0], [4, 0]]", "").starts_with(": only 1 of 2 steps have X; "));
        assert!(said(", [4, 0]]", "]").starts_with(": 3 rows of X for 2 vertices in 2 steps; "));
        for empty in ["[]", "[[]]"] {
            let e =
                read_with(&format!(r#"{{"edges": [], "FX": {empty}}}"#), &plain()).unwrap_err().to_string();
            assert!(e.contains("there are no values; "), "{e}");
        }
        assert!(read_with("{}", &plain()).unwrap_err().to_string().contains("neither edges nor steps"));
        assert!(
            read_with("[1]", &plain())
                .unwrap_err()
                .to_string()
                .contains("expected an object with the `edges`")
        );
        let e = read_with(r#"{"edges": [[0, 1]]}"#, &plain()).unwrap_err().to_string();
        assert!(e.contains("neither FX, X, block nor"), "{e}");
    }
}
