//! The arrays that PyTorch Geometric Temporal's loaders make of tiny files, as `tests/golden/temporal.py`
//! wrote them, against those that we read.
use super::{Normalise, SnapshotOptions, Snapshots, VertexFeatures};
use crate::ReadOptions;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/foreign/temporal");

/// What a loader makes of a data set, for each of its snapshots.
#[derive(Deserialize)]
struct Loaded {
    edges: Vec<Vec<(u32, u32)>>,
    weights: Vec<Vec<f32>>,
    features: Vec<Value>,
    targets: Vec<Value>,
}

fn loaded(name: &str) -> Loaded {
    let text = std::fs::read(Path::new(FOLDER).with_file_name("../temporal.json")).unwrap();
    let mut all: BTreeMap<String, Loaded> = serde_json::from_slice(&text).unwrap();
    all.remove(name).unwrap()
}

/// Reads a file or a folder. All steps train, so that normalised values are those of loaders, which look at
/// all of them.
fn read(file: &str, options: SnapshotOptions) -> Snapshots {
    let path = format!("{FOLDER}/{file}");
    assert!(Snapshots::are_at(&path), "{path}");
    Snapshots::load(&path, &ReadOptions::default(), &SnapshotOptions { train: 1.0, ..options }, 0).unwrap()
}

fn lags(lags: usize, normalise: Normalise) -> SnapshotOptions {
    SnapshotOptions { lags, normalise, ..SnapshotOptions::default() }
}

/// Returns the numbers of nested lists, in order.
fn flat(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap() as f32],
    }
}

fn assert_close(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() < 2e-5, "{what}: {ours:?} is not {theirs:?}");
    }
}

/// Returns the edges of a step with their weights.
fn edges(s: &Snapshots, step: usize) -> Vec<(u32, u32, f32)> {
    let weight = |i: usize| s.weight.as_ref().map_or(1.0, |w| w[i]);
    s.edges(step).map(|i| (s.src[i], s.dst[i], weight(i))).collect()
}

fn assert_edges(s: &Snapshots, step: usize, theirs: &Loaded, at: usize) {
    let pairs = theirs.edges[at].iter().zip(&theirs.weights[at]);
    let mut wanted: Vec<_> = pairs.map(|(&(src, dst), &w)| (src, dst, w)).collect();
    wanted.sort_by_key(|edge| (edge.0, edge.1));
    assert_eq!(edges(s, step), wanted, "step {step}");
}

/// Compares the series of a loader whose snapshot `i` has the values of steps `i .. i + lags` as features.
fn assert_series(s: &Snapshots, theirs: &Loaded, lags: usize, edges_at_end: bool) {
    let (features, targets) = (s.features.as_ref().unwrap(), s.targets.as_ref().unwrap());
    assert_eq!(theirs.features.len(), s.len() - lags - (targets.cols() - 1));
    for i in 0..theirs.features.len() {
        let rows = |of: &crate::Features, step: usize| -> Vec<f32> {
            (0..s.nodes).flat_map(|v| of.row(step * s.nodes + v).to_vec()).collect()
        };
        assert_close(&rows(features, i + lags - 1), &flat(&theirs.features[i]), "features");
        assert_close(&rows(targets, i + lags), &flat(&theirs.targets[i]), "targets");
        // Edges that change are those of the first step of a window in the loader.
        assert_edges(s, if edges_at_end { i + lags - 1 } else { i }, theirs, i);
    }
}

#[test]
fn series_are_those_of_the_loaders() {
    use Normalise::{Off, Vertex};
    for (name, count, normalise) in [
        ("chickenpox", 4, Off),
        ("pedalme_london", 4, Off),
        ("windmill_output", 8, Vertex),
        ("wikivital_mathematics", 8, Vertex),
        ("england_covid", 8, Vertex),
        ("montevideo_bus", 4, Vertex),
    ] {
        let s = read(&format!("{name}.json"), lags(count, normalise));
        assert_series(&s, &loaded(name), count, name != "england_covid");
    }
    let s = read("chickenpox.json", lags(4, Off));
    assert_eq!([0, 1, 2].map(|v| s.vertex_id(v).to_string()), ["ZALA", "PEST", "BEKES"]);
}

#[test]
fn traffic_is_read_from_folders_files_and_archives() {
    for (name, files) in [
        ("METR-LA", ["metr_la", "metr_la/node_values.npy", "metr_la/METR-LA.zip"]),
        ("PEMS-BAY", ["pems_bay", "pems_bay/pems_node_values.npy", "pems_bay/PEMS-BAY.zip"]),
    ] {
        let mut theirs = loaded(name);
        let options = SnapshotOptions { horizon: 2, ..lags(4, Normalise::Column) };
        if name == "PEMS-BAY" {
            // Its loader predicts both columns.
            let both: Vec<Vec<Vec<Vec<f32>>>> =
                theirs.targets.iter().map(|t| serde_json::from_value(t.clone()).unwrap()).collect();
            let column = |k: usize| -> Vec<Value> {
                let of = |t: &Vec<Vec<Vec<f32>>>| t.iter().map(|of_vertex| of_vertex[k].clone()).collect();
                both.iter().map(of).map(|t: Vec<Vec<f32>>| t.into()).collect()
            };
            theirs.targets = column(1);
            let s = read(files[0], SnapshotOptions { target: 2, ..options.clone() });
            assert_series(&s, &theirs, 4, true);
            theirs.targets = column(0);
        }
        for file in files {
            let s = read(file, options.clone());
            assert_series(&s, &theirs, 4, true);
            assert_eq!(s.name, if file.ends_with("zip") { name } else { &files[0] });
        }
    }
}

#[test]
fn a_simulation_has_its_edges_in_a_tensor() {
    let s = read("si", lags(4, Normalise::Off));
    assert_series(&s, &loaded("SI"), 4, true);
    assert_eq!(s.target_unit, 1.0);
}

#[test]
fn twitter_tennis_is_encoded_as_by_its_loader() {
    let options = SnapshotOptions { features: VertexFeatures::Encoded, ..lags(1, Normalise::Off) };
    let (s, theirs) = (read("twitter_tennis_rg17.json", options), loaded("twitter_tennis_rg17"));
    let (features, targets) = (s.features.as_ref().unwrap(), s.targets.as_ref().unwrap());
    for step in 0..s.len() {
        let at = step * s.nodes * 16;
        assert_close(&features.values()[at..][..s.nodes * 16], &flat(&theirs.features[step]), "features");
        assert_edges(&s, step, &theirs, step);
        if step + 1 < s.len() {
            let at = (step + 1) * s.nodes;
            assert_close(&targets.values()[at..][..s.nodes], &flat(&theirs.targets[step]), "targets");
        }
    }
}

#[test]
fn motions_have_the_classes_of_the_frames_that_are_read() {
    let (s, theirs) = (read("mtm_1.json", lags(1, Normalise::Off)), loaded("mtm_1"));
    let (features, classes) = (s.features.as_ref().unwrap(), s.classes.as_ref().unwrap());
    for i in 0..theirs.features.len() {
        // [axis, joint, frame] and [frame, class].
        let x: Vec<Vec<Vec<f32>>> = serde_json::from_value(theirs.features[i].clone()).unwrap();
        let y: Vec<Vec<f32>> = serde_json::from_value(theirs.targets[i].clone()).unwrap();
        let position = |joint: usize, frame: usize| [0, 1, 2].map(|axis: usize| x[axis][joint][frame]);
        for (frame, one_hot) in y.iter().enumerate() {
            for joint in 0..s.nodes {
                let ours = features.row((i + frame) * s.nodes + joint);
                assert_close(ours, &position(joint, frame), "positions");
                let class = one_hot.iter().position(|one| *one == 1.0).unwrap();
                let ours = classes.get((i + frame + 1) * s.nodes + joint);
                assert!(ours.is_none_or(|&ours| ours as usize == class));
            }
        }
        assert_edges(&s, i, &theirs, i);
    }
}
