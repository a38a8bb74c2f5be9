//! Sets with types compared with the results of `py-tgb`; see `tests/golden/tgb_types.py`.
use super::tests::{GOLDEN, copy, number, numbers, read};
use crate::{Encoding, Events, GivenNegatives, Part, ReadOptions, Split, Stats, load};
use serde_json::Value;
use std::{fs, path::Path};
use tgnn::error::ErrorKind;

const SETS: [&str; 6] =
    ["thgl-software", "thgl-forum", "tkgl-yago", "tkgl-smallpedia", "tkgl-wikidata", "tkgl-icews"];

fn golden(set: &str) -> Value {
    let text = fs::read_to_string(Path::new(GOLDEN).join("tgb_types.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[set].clone()
}

fn folder(set: &str) -> String {
    format!("{GOLDEN}/{}", set.replace('-', "_"))
}

fn types(e: &Events) -> Vec<u32> {
    (0..e.len()).map(|i| e.classes.as_ref().unwrap().get(i)[0]).collect()
}

#[test]
fn nodes_times_types_and_inverse_edges_are_those_that_tgbs_own_package_reads() {
    for set in SETS {
        let (e, wanted) = (read(&folder(set)).unwrap(), golden(set));
        let original = |nodes: &[u32]| nodes.iter().map(|&v| number(&e, v)).collect::<Vec<_>>();
        assert_eq!(original(&e.src), numbers::<Vec<u64>>(&wanted["src"]), "{set}");
        assert_eq!(original(&e.dst), numbers::<Vec<u64>>(&wanted["dst"]), "{set}");
        let times: Vec<i64> = e.time.iter().map(|t| t + e.origin).collect();
        assert_eq!(times, numbers::<Vec<i64>>(&wanted["time"]), "{set}");
        assert_eq!(types(&e), numbers::<Vec<u32>>(&wanted["type"]), "{set}");
        assert_eq!((e.name.as_str(), e.ticks_per_second), (set, 1.0));
    }
}

#[test]
fn types_of_edges_are_one_hot_features_and_many_types_are_hashed() {
    for set in SETS {
        let e = read(&folder(set)).unwrap();
        let (features, encoding) = (e.edge_features.as_ref().unwrap(), e.encoding.as_ref().unwrap());
        match &encoding.0[0].values {
            Encoding::OneHot(names) => {
                for (i, t) in types(&e).iter().enumerate() {
                    let code: Vec<f32> =
                        names.iter().map(|n| f32::from(u8::from(**n == t.to_string()))).collect();
                    assert_eq!(
                        (&features.row(i)[..names.len()], code.iter().sum()),
                        (&code[..], 1.0),
                        "{set}"
                    );
                }
            }
            Encoding::Hashed(width) => {
                assert_eq!((set, *width), ("tkgl-icews", 32));
                let nonzero = |i| features.row(i).iter().filter(|v| **v != 0.0).count();
                assert!((0..e.len()).all(|i| nonzero(i) == 1));
            }
            other => panic!("{set}: {other:?}"),
        }
    }
    let e = read(&folder("thgl-forum")).unwrap();
    assert_eq!(
        e.encoding.as_ref().unwrap().names(),
        ["relation_type=0", "relation_type=1", "num_words/10000", "score/10000"]
    );
    let rows: Vec<Vec<f64>> = numbers(&golden("thgl-forum")["features"]);
    let told: Vec<f32> = rows.concat().into_iter().map(|v| v as f32).collect();
    let here: Vec<f32> =
        (0..e.len()).flat_map(|i| e.edge_features.as_ref().unwrap().row(i)[2..].to_vec()).collect();
    assert_eq!(here, told);
}

#[test]
fn types_of_nodes_are_one_hot_features() {
    for set in ["thgl-software", "thgl-forum"] {
        let e = read(&folder(set)).unwrap();
        let told: Vec<u32> = numbers(&golden(set)["node_type"]);
        let features = e.node_features.as_ref().unwrap();
        assert_eq!(features.cols(), 2, "types 0 and 2");
        for node in 0..e.nodes as u32 {
            let wanted = if told[number(&e, node) as usize] == 0 { [1.0, 0.0] } else { [0.0, 1.0] };
            assert_eq!(features.row(node as usize), wanted, "{set}, node {node}");
        }
        // `data info` shows both kinds of types.
        let notes = Stats::new(&e).notes.join("\n");
        assert!(
            notes.contains("2 types of nodes: 0 has ") && notes.contains("types of edges: classes"),
            "{notes}"
        );
    }
    // Sources and destinations of different kinds are renumbered, and their features go with them.
    let options = ReadOptions { bipartite: Some(true), ..ReadOptions::default() };
    let e = load(&folder("thgl-software"), &options).unwrap();
    let told: Vec<u32> = numbers(&golden("thgl-software")["node_type"]);
    let features = e.node_features.as_ref().unwrap();
    for node in 0..e.nodes as u32 {
        assert_eq!(features.row(node as usize)[0] == 1.0, told[number(&e, node) as usize] == 0);
    }
}

#[test]
fn parts_and_negatives_are_those_of_tgb() {
    for set in SETS {
        let (e, wanted) = (read(&folder(set)).unwrap(), golden(set));
        let [train, val] = Split::fractions(&e.name);
        let split = Split::by_time(&e, train, val).unwrap();
        let all = GivenNegatives::all_beside(&folder(set), &e).unwrap();
        for ((part, range), all) in [(Part::Val, split.val), (Part::Test, split.test)].into_iter().zip(all) {
            assert_eq!(wanted[part.name()], range.len(), "{set}");
            let given = GivenNegatives::beside(&folder(set), part, &e, range.clone()).unwrap().unwrap();
            let found: Vec<Vec<u64>> =
                range.map(|i| given.get(i).iter().map(|&v| number(&e, v)).collect()).collect();
            assert_eq!(
                found,
                numbers::<Vec<Vec<u64>>>(&wanted[format!("{}_negatives", part.name())]),
                "{set}"
            );
            assert_eq!(all.unwrap(), given);
        }
    }
}

#[test]
fn airports_are_the_node_features_that_tgbs_own_package_reads() {
    let e = read(&folder("tgbl-flight")).unwrap();
    let told: Vec<Vec<f32>> = numbers(&golden("airports"));
    let features = e.node_features.as_ref().unwrap();
    assert_eq!((features.rows(), features.cols()), (told.len(), 20));
    for node in 0..e.nodes as u32 {
        assert_eq!(features.row(node as usize), told[number(&e, node) as usize]);
    }
    let (_dir, path) = copy("tgbl_flight");
    fs::remove_file(format!("{path}/airport_node_feat_v2.csv")).unwrap();
    let e = read(&path).unwrap();
    assert!(
        e.node_features.is_none() && e.notes.iter().any(|n| n.contains("so no node features")),
        "{:?}",
        e.notes
    );
}

#[test]
fn a_faulty_or_missing_file_is_one_line_with_its_place() {
    let (_dir, path) = copy("thgl_software");
    let header = "timestamp,head,tail,relation_type\n";
    let (edges, nodes) = ("thgl-software_edgelist.csv", "thgl-software_nodetype.csv");
    let list = format!("{path}/{edges}");
    let said = |options: &ReadOptions| {
        let e = load(&path, options).unwrap_err();
        let line = e.to_string();
        assert!(line.contains("; ") && !line.contains('\n'), "{line}");
        (e.kind(), line)
    };
    for (rows, wanted) in [
        ("5,1,2\n", "edgelist.csv:2: this row has 3 columns, expected 4; "),
        ("5.5,1,2,0\n", "edgelist.csv:2:1: `5.5` is not a time in whole seconds; "),
        ("5,x,2,0\n", "edgelist.csv:2:3: `x` is not a node id; "),
        ("5,1,,0\n", "edgelist.csv:2:5: an empty field is not a node id; "),
        ("5,1,2,a\n", "edgelist.csv:2:7: `a` is not a type; "),
        ("5,1,2,70000\n", "70001 classes; there can be 1 to 65536"),
        ("5,1,2,4294967295\n", "edgelist.csv: 4294967296 classes; "),
        ("5,1,2,4294967296\n", "edgelist.csv:2:7: `4294967296` is too large for a type; "),
        ("", "edgelist.csv: there are no events; "),
    ] {
        fs::write(&list, format!("{header}{rows}")).unwrap();
        fs::write(format!("{path}/{nodes}"), "node_id,type\n").unwrap();
        let (kind, line) = said(&ReadOptions::default());
        assert!(kind == ErrorKind::Data && line.contains(wanted), "{line}");
    }
    fs::write(&list, format!("{header}5,1,2,0\n4,1,2,0\n")).unwrap();
    let (_, line) = said(&ReadOptions { strict: true, ..ReadOptions::default() });
    assert!(line.contains("edgelist.csv:3:1: this event is earlier"), "{line}");
    for (rows, wanted) in [
        ("7,0\n", "nodetype.csv:2:1: `7` is not a node of the edge list; "),
        ("1\n", "nodetype.csv:2: this row has 1 columns, expected 2; "),
        ("1,a\n", "nodetype.csv:2:3: `a` is not a type; "),
    ] {
        fs::write(format!("{path}/{nodes}"), format!("node_id,type\n{rows}")).unwrap();
        let (_, line) = said(&ReadOptions::default());
        assert!(line.contains(wanted), "{line}");
    }
    fs::remove_file(format!("{path}/{nodes}")).unwrap();
    let (kind, line) = said(&ReadOptions::default());
    assert!(
        kind == ErrorKind::Io && line.contains("nodetype.csv: ") && line.contains("belongs to it"),
        "{line}"
    );
}

#[test]
fn lists_of_other_events_and_of_other_keys_are_refused() {
    let (_dir, path) = copy("tkgl_yago");
    let e = read(&path).unwrap();
    let split = Split::by_time(&e, 0.70, 0.15).unwrap();
    let line = GivenNegatives::beside(&path, Part::Val, &e, split.val).unwrap_err().to_string();
    assert!(
        line.contains("tkgl-yago_val_ns.pkl: no negatives for event ") && line.contains(" with type "),
        "{line}"
    );
    let wiki = format!("{GOLDEN}/tgbl_wiki/tgbl-wiki_val_ns_v2.pkl");
    fs::copy(wiki, format!("{path}/tkgl-yago_test_ns.pkl")).unwrap();
    let line = GivenNegatives::beside(&path, Part::Test, &e, 70..80).unwrap_err().to_string();
    assert!(line.contains("test_ns.pkl: no negatives for event 70, from "), "{line}");
    // Negatives that do not fit are refused before they are made.
    let mut vast = e.clone();
    vast.nodes = u32::MAX as usize;
    let e = GivenNegatives::beside(&path, Part::Val, &vast, 0..80).unwrap_err();
    let line = e.to_string();
    let told = "tkgl-yago ranks each event against all 4,294,967,295 nodes: its negatives need ";
    assert!(e.kind() == ErrorKind::OutOfMemory && line.starts_with(told), "{line}");
    assert!(line.ends_with("take another protocol, such as --protocol disttgl"), "{line}");
    let mut plain = vast;
    plain.nodes = 16;
    plain.classes = None;
    let line = GivenNegatives::beside(&path, Part::Val, &plain, 0..1).unwrap_err().to_string();
    assert!(line.contains("val_ns.pkl: event 0 has no type; "), "{line}");
}
