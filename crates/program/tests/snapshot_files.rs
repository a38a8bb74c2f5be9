//! Files of snapshots, in the layouts of PyTorch Geometric Temporal, from the command line.
use crate::support::{
    paths::root,
    program::{done, json, refused},
};
use std::fs;

/// Returns the path of a file of the folder `temporal`.
fn at(file: &str) -> String {
    format!("{}/tests/golden/foreign/temporal/{file}", root().display())
}

#[test]
fn each_data_set_trains_with_one_command_at_the_task_that_it_suits() {
    let dir = tempfile::tempdir().unwrap();
    for (file, task) in [
        ("chickenpox.json", "regression"),
        ("pedalme_london.json", "regression"),
        ("windmill_output.json", "regression"),
        ("wikivital_mathematics.json", "regression"),
        ("england_covid.json", "regression"),
        ("montevideo_bus.json", "regression"),
        ("twitter_tennis_rg17.json", "regression"),
        ("mtm_1.json", "node"),
        ("metr_la", "regression"),
        ("metr_la/METR-LA.zip", "regression"),
        ("pems_bay/pems_node_values.npy", "regression"),
        ("si", "regression"),
    ] {
        let train = ["train", "--model", "t-gcn", "--data", &at(file), "--epochs", "1"];
        let ran = done(dir.path(), &train);
        assert!(
            ran.out.contains(&format!("note      the data suit the task {task}; ")),
            "{file}: {}",
            ran.err
        );
        assert!(ran.out.contains(&format!("test (task {task}, ")), "{file}: {}", ran.out);
    }
    let links = ["train", "--model", "t-gcn", "--data", &at("england_covid.json"), "--task", "link"];
    let ran = done(dir.path(), &[&links[..], &["--epochs", "1"]].concat());
    assert!(!ran.out.contains("suit") && ran.out.contains("test (task link, "), "{}", ran.err);
    fs::write(dir.path().join("c.toml"), "task = \"link\"\nmodel = \"t-gcn\"\nepochs = 1\n").unwrap();
    let ran = done(dir.path(), &["train", "c.toml", "--data", &at("england_covid.json")]);
    assert!(ran.out.contains("test (task link, "), "{}", ran.out);
}

#[test]
fn data_info_describes_snapshots_and_models_of_events_refuse_them() {
    let dir = tempfile::tempdir().unwrap();
    let info = |file: &str| done(dir.path(), &["data", "info", &at(file)]).out;
    let pox = info("chickenpox.json");
    for line in [
        "  steps           12  (0 to 11)\n",
        "  ids             ZALA, PEST, BEKES\n",
        "  graph           4 edges in every step, the same ones\n",
        "  targets         1 value\n",
        "  task            regression, for the models wd-gcn, t-gcn, ",
    ] {
        assert!(pox.contains(line), "{line}: {pox}");
    }
    assert!(info("england_covid.json").contains("  11 "), "one row per step");
    assert!(info("wikivital_mathematics.json").contains("(2019-03-16 to 2019-03-27)"));
    assert!(info("mtm_1.json").contains("  task            node, "));
    assert!(info("metr_la").contains("  features        8 columns, a row per step and vertex\n"));
    let stats = json(&done(dir.path(), &["data", "info", &at("si"), "--json"]).out);
    assert_eq!((&stats["vertices"], &stats["target_width"]), (&3.into(), &1.into()));
    let los = dir.path().join("los");
    fs::create_dir(&los).unwrap();
    fs::write(los.join("los_adj.csv"), "1,0.5\n0.5,1\n").unwrap();
    fs::write(los.join("los_speed.csv"), "773869,767541\n64,67\n62,68\n").unwrap();
    assert!(done(dir.path(), &["data", "info", "los"]).out.contains("773869, 767541\n"));
    let wanted = ["has snapshots, and tgn reads events; give --model wd-gcn, t-gcn, evolve-gcn-o or"];
    for file in ["chickenpox.json", "metr_la", "metr_la/METR-LA.zip", "si"] {
        refused(dir.path(), &["train", "--data", &at(file)], 2, &wanted);
    }
    refused(dir.path(), &["train", "--data", "los"], 2, &wanted);
}

#[test]
fn embeddings_are_asked_for_by_the_names_of_the_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let train = |file: &str, out: &str| {
        let words = ["train", "--model", "t-gcn", "--epochs", "1", "--data", &at(file), "--out", out];
        done(dir.path(), &words);
    };
    let embed = |run: &str, nodes: &str, out: &str| {
        done(dir.path(), &["embed", "--checkpoint", run, "--nodes", nodes, "--out", out]);
        fs::read(dir.path().join(out)).unwrap()
    };
    train("chickenpox.json", "pox");
    let (all, pest) = (embed("pox", "ZALA,PEST,BEKES", "all.npy"), embed("pox", "PEST", "one.npy"));
    let width = 4 * 64;
    assert_eq!(pest[pest.len() - width..], all[all.len() - 2 * width..all.len() - width]);
    let wrong = ["embed", "--checkpoint", "pox", "--nodes", "1", "--out", "no.npy"];
    refused(dir.path(), &wrong, 2, &["`1` is not a node; give ids of the data set, such as `ZALA`"]);
    train("montevideo_bus.json", "bus");
    assert_ne!(embed("bus", "5289", "a.npy"), embed("bus", "41", "b.npy"));
}
