//! Tests of the layouts in JSON.
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
    SnapshotOptions { normalise: Normalise::Off, lags: 2, ..SnapshotOptions::default() }
}

#[test]
fn a_graph_with_a_signal_is_a_series_under_any_of_the_keys() {
    let text =
        |signal: &str| format!(r#"{{"edges": [[0, 1], [1, 1]], "node_ids": {{"A": 0, "B": 1}}, {signal}}}"#);
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
    assert!(said("[4]", "[0]").starts_with(": edge 0 of step 1 has the weight 0, which is not above 0; "));
    assert!(
        said("[[1, 0]", "[[1, 2]")
            .starts_with(": edge 0 of step 0 is (1, 2), but there are only 2 vertices; ")
    );
    assert!(said("[0, 3]", "[0, -3]").starts_with(": y of vertex 1 in step 0 is -3; "));
    assert!(said("[1, 0], \"X\"", "[1], \"X\"").starts_with(": row 1 has 1 targets, the first one has 2; "));
    assert!(said("[4, 0]]", "[4]]").starts_with(": row 3 has 1 features of a vertex, the first one has 2; "));
    assert!(said(", \"y\": [1, 0]", "").starts_with(": only 1 of 2 steps have y; "));
    assert!(said(", \"X\": [[3, 0], [4, 0]]", "").starts_with(": only 1 of 2 steps have X; "));
    assert!(said(", [4, 0]]", "]").starts_with(": 3 rows of X for 2 vertices in 2 steps; "));
    for empty in ["[]", "[[]]"] {
        let e = read_with(&format!(r#"{{"edges": [], "FX": {empty}}}"#), &plain()).unwrap_err().to_string();
        assert!(e.contains("there are no values; "), "{e}");
    }
    assert!(read_with("{}", &plain()).unwrap_err().to_string().contains("neither edges nor steps"));
    assert!(
        read_with("[1]", &plain()).unwrap_err().to_string().contains("expected an object with the `edges`")
    );
    let e = read_with(r#"{"edges": [[0, 1]]}"#, &plain()).unwrap_err().to_string();
    assert!(e.contains("neither FX, X, block nor"), "{e}");
}
