//! Tests of the layouts in JSON.
use super::*;
use crate::Presence;

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
    assert!(e.contains("neither FX, X, y, block nor"), "{e}");
}

/// Five vertices of England, of which two have edges in the second step.
const COVID: &str = r#"{"edge_mapping": {
  "edge_index": {"1": [[0, 1]], "0": [[0, 1], [1, 0]], "2": []},
  "edge_weight": {"0": [3, 1.5], "2": [], "1": [4]}},
 "time_periods": 3,
 "y": [[1, 2], [3, 4], [5, 6]]}"#;

#[test]
fn edges_of_each_step_may_be_in_a_dictionary_beside_a_signal() {
    let s = read_with(COVID, &plain()).unwrap();
    assert_eq!((&s.offsets[..], s.weight.unwrap()), (&[0, 2, 3, 3][..], vec![3., 1.5, 4.]));
    assert_eq!(s.features.unwrap().values(), [1., 1., 2., 2., 1., 3., 2., 4., 3., 5., 4., 6.]);
    assert_eq!((s.targets.unwrap().values(), s.present), (&[1., 2., 3., 4., 5., 6.][..], None));
    let unweighted = COVID.replace("edge_weight", "no_weight");
    assert_eq!(read_with(&unweighted, &plain()).unwrap().weight, None);
}

/// Two bus stops, in the node-link layout of networkx.
const BUS: &str = r#"{"directed": true, "graph": {"name": "lines"}, "nodes": [
  {"bus_stop": 5289, "lon": 1, "y": [0, 1, 2], "X": {"y": [0, 1, 2]}, "id": 7},
  {"bus_stop": 41, "y": [3, 4, 5], "X": {"y": [3, 4, 5]}, "id": 8}],
 "links": [{"weight": 172.5, "source": 5289, "target": 41}, {"weight": 2, "source": 41, "target": 41}]}"#;

#[test]
fn nodes_with_a_series_each_are_a_series_on_their_links() {
    let s = read_with(BUS, &plain()).unwrap();
    assert_eq!((s.len(), s.nodes, &s.src[..2], &s.dst[..2]), (3, 2, &[0, 1][..], &[1, 1][..]));
    assert_eq!(s.weight.as_ref().unwrap()[..2], [172.5, 2.0]);
    assert_eq!(s.targets.as_ref().unwrap().values(), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(["41", "5289"].map(|id| s.vertex_names().find(id).unwrap()), [1, 0]);
    assert!(s.notes.is_empty(), "{:?}", s.notes);
    let more = BUS.replace(r#"{"y": [3, 4, 5]}"#, r#"{"rain": [1, 2, 3]}"#);
    assert_eq!(
        read_with(&more, &plain()).unwrap().notes,
        ["not read: X.rain; y is the feature and the target"]
    );
    let named = BUS.replace("bus_stop", "x").replace(r#""id": 8"#, r#""id": "B""#);
    let named = named.replace("5289", "7").replace("41", "\"B\"");
    assert_eq!(read_with(&named, &plain()).unwrap().ids.unwrap().names().unwrap(), ["7".into(), "B".into()]);
}

/// A hand of two joints in three frames, as pandas writes a table by columns.
const HAND: &str = r#"{"edges": [[0, 1]],
 "0": {"0": "(0.5, 1.0, -2.0)", "1": "(0, 0, 1)", "2": "(nan, nan, nan)"},
 "1": {"0": "(1, 2, 3)", "1": "(4, 5, 6)", "2": "(7, 8, 9e-1)"},
 "LABEL": {"0": 4, "1": 2, "2": 0}}"#;

#[test]
fn the_class_of_a_frame_is_predicted_from_the_frames_up_to_it() {
    let s = read_with(HAND, &plain()).unwrap();
    assert_eq!((s.len(), s.nodes, s.src.len(), s.targets.is_none()), (3, 2, 3, true));
    let features = s.features.unwrap();
    let rows = [0, 3, 4, 5].map(|row| features.row(row));
    assert_eq!(rows, [[0.5, 1., -2.], [4., 5., 6.], [0., 0., 0.], [7., 8., 0.9]]);
    assert_eq!(s.classes.unwrap(), [NONE, NONE, 4, 4, 2, 2]);
}

#[test]
fn steps_are_named_by_their_date_and_vertices_by_their_names() {
    let text = r#"{"edges": [[0, 1]], "weights": [2], "node_ids": {"Set theory": 1, "Zero": 0}, "time_periods": 2,
        "0": {"index": 0, "year": 2019, "month": 3, "day": 16, "y": [1, 2]},
        "1": {"index": 1, "year": 2019, "month": 3, "day": 17, "y": [3, 4]}}"#;
    let s = read_with(text, &plain()).unwrap();
    assert_eq!((s.labels.join(" "), s.weight.unwrap()), ("2019-03-16 2019-03-17".into(), vec![2., 2.]));
    assert_eq!(s.ids.unwrap().names().unwrap(), ["Zero".into(), "Set theory".into()]);
}

#[test]
fn the_features_of_twitter_tennis_are_encoded_on_request() {
    let options = SnapshotOptions { features: VertexFeatures::Encoded, ..SnapshotOptions::default() };
    let mut s = read_with(STEPS, &options).unwrap();
    s.choose_features(&options, 0).unwrap();
    let features = s.features.unwrap();
    let set = |row: usize| (0..16).filter(|&k| features.row(row)[k] == 1.0).collect::<Vec<_>>();
    assert_eq!([0, 1, 2, 3].map(set), [[1, 10], [2, 5], [2, 5], [2, 5]]);
}

#[test]
fn each_vertex_is_normalised_by_itself_on_request() {
    let options = SnapshotOptions { lags: 1, normalise: Normalise::Vertex, ..SnapshotOptions::default() };
    let s = read_with(COVID, &options).unwrap();
    // Two of three steps train: 1, 3 and 2, 4.
    assert_eq!((s.targets.unwrap().values(), s.target_unit), (&[-1., -1., 1., 1., 3., 3.][..], 1.0));
    let s = read_with(&STEPS.replace("[0, 3]", "[0, 7]"), &options).unwrap();
    let (targets, features) = (s.targets.unwrap(), s.features.unwrap());
    assert_eq!((targets.values(), features.row(0)), (&[-1., 1., 1., -1.][..], &[-1., 1.][..]));
}

/// Changes of one place of a layout: what is replaced, by what, and the error.
const WRONG: &[(&str, &str, &str, &str)] = &[
    (COVID, "[0, 1]], ", "[0, true]], ", ":2:31: invalid type: boolean `true`, expected u32; "),
    (COVID, "[0, 1], [1", "[0, 2], [1", ": edge 0 of step 0 is (0, 2), but there are only 2 vertices; "),
    (COVID, "\"1\": [[", "\"one\": [[", ":2:22: `one` is not the number of a step; "),
    (COVID, "\"1\": [[", "\"0\": [[", ":2:53: step 0 occurs twice; "),
    (
        COVID,
        ", \"2\": []}",
        "}",
        ": y has 3 rows, but edge_mapping.edge_index has 2 lists, and none is that of step 2; ",
    ),
    (
        COVID,
        ", \"1\": [4]",
        ", \"1\": [4], \"3\": []",
        ": y has 3 rows, but edge_mapping.edge_weight has 4 lists; ",
    ),
    (COVID, "[4]", "[4, 5]", ": step 1 has 2 weights for 1 edges; "),
    (COVID, "[4]", "[-4]", ": edge 0 of step 1 has the weight -4, which is not above 0; "),
    (COVID, "[3, 4]", "[3]", ": row 1 has 1 values, the first one has 2; "),
    (COVID, "[3, 4]", "[3, null]", ":5:23: invalid type: null, expected f32; "),
    (COVID, "[3, 4]", "[3, 1e300]", ":5:24: number out of range; "),
    (COVID, "\"time_periods\": 3", "\"time_periods\": 4", ": time_periods is 4, but there are 3 steps; "),
    (COVID, "\"y\"", "\"z\"", ": there is edge_mapping, but no y; "),
    (COVID, "\"y\"", "\"FX\": [], \"y\"", ":5:14: there are two signals, FX and y; "),
    (BUS, "\"bus_stop\": 41", "\"bus_stop\": 5289", ": node 1 has the id 5289 of an earlier one; "),
    (
        BUS,
        "\"bus_stop\": 41",
        "\"bus_stop\": 4.5",
        ":3:18: invalid type: floating point `4.5`, expected an id",
    ),
    (BUS, "\"source\": 5289", "\"source\": 52", ": link 0 has an end 52, and no node has; "),
    (BUS, "\"weight\": 172.5, ", "", ": the graph has 1 weights for 2 edges; "),
    (BUS, "\"weight\": 2", "\"weight\": 0", ": edge 1 of the graph has the weight 0, which is not above 0; "),
    (BUS, "\"y\": [3, 4, 5], ", "", ":3:50: missing field `y`; "),
    (BUS, "\"y\": [3, 4, 5]", "\"y\": [3, 4]", ": row 1 has 2 values of y, the first one has 3; "),
    (HAND, "(0, 0, 1)", "(0, 0)", ":2:45: `(0, 0)` is not a position, such as (0.1, 0.2, 0.3); "),
    (HAND, ", \"2\": 0}", "}", ": joint 0 has 3 positions, but there are 2 labels; "),
    (HAND, "\"0\": 4", "\"0\": 70000", ": the label of frame 0 is 70000; at most 65535 are read; "),
    (HAND, "\"1\": {", "\"2\": {", ": joint 1 of 2 is missing; "),
    (HAND, "[[0, 1]]", "[[0, 2]]", ": edge 0 of the graph is (0, 2), but there are only 2 vertices; "),
    (STEPS, "\"node_ids\": {}", "\"node_ids\": {\"A\": 0}", ": node_ids has 1 names for 2 vertices; "),
    (STEPS, "\"node_ids\": {}", "\"node_ids\": {\"A\": 1, \"B\": 1}", ": node_ids names vertex 1 A and B; "),
    (
        STEPS,
        "\"node_ids\": {}",
        "\"node_ids\": {\"A\": 0, \"B\": 2}",
        ": node_ids.B is 2, but there are only 2 vertices; ",
    ),
];

#[test]
fn errors_in_the_other_layouts_name_their_place_too() {
    let said = |whole: &str, from: &str, to: &str| {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole, "{from}");
        let e = read_with(&text, &plain()).unwrap_err().to_string();
        assert!(!e.contains('\n') && e.contains("; "), "{e}");
        e[e.find("pox.json").unwrap() + 8..].to_owned()
    };
    let mut wrong = Vec::new();
    for &(whole, from, to, wanted) in WRONG {
        let text = said(whole, from, to);
        if !text.starts_with(wanted) {
            wrong.push(format!("{to}\n  {text}\n  {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let e = read_with(r#"{"graph": 1, "snapshots": []}"#, &plain()).unwrap_err().to_string();
    assert!(e.contains("there are neither edges nor steps; it has graph, snapshots; see docs/"), "{e}");
}
