//! The program as its users see it: what it prints, what it writes, and how it refuses bad input.
use crate::support::{
    paths::root,
    program::{SYNTH, done, json, made, refused, small, tgnn, write_npy},
};
use serde_json::Value;
use std::{fs, path::Path};
use tempfile::TempDir;

/// Keys of the summary that `train --json` prints, in order.
const SUMMARY_KEYS: &[&str] = &[
    "schema",
    "version",
    "commit",
    "command",
    "device",
    "data",
    "model",
    "task",
    "plan",
    "seed",
    "protocol",
    "negatives",
    "ties",
    "batch",
    "eval_batch",
    "history",
    "precision",
    "features_as",
    "memory_as",
    "epochs",
    "best_epoch",
    "settled",
    "stopped_early",
    "test",
    "test_by_memory",
    "rules",
    "past",
    "edgebank",
    "baselines",
    "strictly_earlier",
    "baselines_seconds",
    "same_time",
    "peak_memory_bytes",
    "parameters",
];

/// Checks the summary of the short training.
fn check_summary(summary: &Value) {
    assert_eq!(summary.as_object().unwrap().keys().collect::<Vec<_>>(), SUMMARY_KEYS);
    assert_eq!(summary["schema"], 1);
    assert_eq!(summary["version"], env!("CARGO_PKG_VERSION"));
    assert!(summary["command"].as_str().unwrap().starts_with("tgnn-bench train small.toml --out run"));
    assert_eq!((&summary["device"]["kind"], &summary["device"]["threads"]), (&"cpu".into(), &1.into()));
    assert!(!summary["device"]["name"].as_str().unwrap().is_empty());
    let data = &summary["data"];
    assert_eq!((&data["name"], &data["events"]), (&"made".into(), &400.into()));
    assert_eq!((&data["nodes"], &data["edge_features"]), (&40.into(), &3.into()));
    assert!(data["fingerprint"]["events"].is_u64() && data["fingerprint"]["node_features"] == 0, "{data}");
    assert_eq!((&summary["model"], &summary["protocol"]), (&"tgn".into(), &"dyglib".into()));
    assert_eq!((&summary["seed"], &summary["batch"]), (&1.into(), &50.into()));
    assert_eq!(summary["precision"], "f32");
    assert!(summary["peak_memory_bytes"]["host"].as_u64().unwrap() > 1 << 20);
    assert!(summary["parameters"].as_u64().unwrap() > 500);
    let epochs = summary["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 2);
    for (i, e) in epochs.iter().enumerate() {
        assert_eq!(e["epoch"], i + 1);
        assert!(e["train_loss"].as_f64().unwrap() > 0.0 && e["events_per_second"].as_f64().unwrap() > 0.0);
        assert!((0.0..=1.0).contains(&e["val"]["ap"].as_f64().unwrap()));
    }
    let bank = &summary["edgebank"]["window"]["inductive"]["ap"];
    assert!(bank.is_f64() && summary["stopped_early"] == false, "{summary}");
    let best = summary["best_epoch"].as_u64().unwrap() as usize;
    assert!(epochs.iter().all(|e| e["val"]["ap"].as_f64() <= epochs[best - 1]["val"]["ap"].as_f64()));
}

#[test]
fn training_prints_a_summary_that_eval_reproduces_and_embed_writes_an_array() {
    let dir = made();
    let dir = dir.path();
    let summary = json(&done(dir, &small(&["--out", "run", "--json"])).out);
    check_summary(&summary);

    // The files of the run agree with the summary.
    assert_eq!(json(&fs::read_to_string(dir.join("run/summary.json")).unwrap()), summary);
    let lines = fs::read_to_string(dir.join("run/metrics.jsonl")).unwrap();
    let records = lines.lines().map(|line| {
        let mut record = json(line);
        assert!(record.as_object_mut().unwrap().remove("checksum").is_some());
        record
    });
    assert_eq!(records.collect::<Vec<_>>(), *summary["epochs"].as_array().unwrap());

    let tested = json(&done(dir, &["eval", "--checkpoint", "run", "--json"]).out);
    assert_eq!(tested["test"], summary["test"]);
    assert!(tested["test"]["transductive"]["ap"].is_f64(), "{tested}");
    // The configuration that the run saved reproduces the run.
    let again = json(&done(dir, &["train", "run/config.toml", "--json"]).out);
    assert_eq!(again["test"], summary["test"]);

    done(dir, &["embed", "--checkpoint", "run", "--nodes", "0,39,7", "--out", "z.npy"]);
    let (shape, values) = npy(&dir.join("z.npy"));
    assert_eq!((shape.as_str(), values.len()), ("(3, 8)", 24));
    assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0));
    fs::write(dir.join("nodes.txt"), "0\n39\n7\n").unwrap();
    let words =
        ["embed", "--checkpoint", "run", "--nodes", "nodes.txt", "--times", "1e9,1e9,1e9", "--out", "y.npy"];
    done(dir, &words);
    assert_ne!(npy(&dir.join("y.npy")).1, values, "another time, another embedding");
}

/// Reads a `.npy` of f32: its shape as the header writes it, and its values.
fn npy(path: &Path) -> (String, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..start]).unwrap();
    assert!(header.contains("'<f4'") && header.contains("'fortran_order': False"), "{header}");
    let shape = &header[header.find('(').unwrap()..=header.find(')').unwrap()];
    let values = bytes[start..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    (shape.to_owned(), values)
}

#[test]
fn data_is_generated_described_and_imported() {
    let dir = made();
    let dir = dir.path();
    let info = |path: &str| json(&done(dir, &["data", "info", path, "--json"]).out);
    let stats = info("made");
    assert_eq!(
        (&stats["events"], &stats["nodes"], &stats["bipartite"]),
        (&400.into(), &40.into(), &true.into())
    );
    assert!(done(dir, &["data", "info", "made"]).out.lines().all(|l| l.chars().count() <= 80));

    // Three events with node ids of their own, out of order, with two features.
    fs::write(dir.join("e.csv"), "src,dst,time,f0,f1\n70,9,5,1,2\n9,70,3,0,0.5\n4000000000000,9,9,-1,3\n")
        .unwrap();
    done(dir, &["data", "import", "e.csv", "--out", "kept", "--name", "three"]);
    let (from_file, from_folder) = (info("e.csv"), info("kept"));
    assert_eq!((&from_folder["events"], &from_folder["nodes"]), (&3.into(), &3.into()));
    assert_eq!((&from_folder["name"], &from_file["span_seconds"]), (&"three".into(), &6.0.into()));
    assert_eq!(from_folder["span_seconds"], from_file["span_seconds"]);
    let run = json(&done(dir, &["train", "--data", "kept", "--epochs", "1", "--json"]).out);
    assert_eq!((&run["data"]["name"], &run["data"]["edge_features"]), (&"three".into(), &2.into()));
    refused(dir, &["data", "import", "e.csv", "--out", "kept"], 2, &["kept", "--force"]);
    done(dir, &["data", "import", "e.csv", "--out", "kept", "--force"]);
    refused(dir, SYNTH, 2, &["made", "--force"]);
}

#[test]
fn a_folder_of_tgb_is_imported_with_its_negatives_unless_it_is_read_as_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tgb = format!("{}/tests/golden/foreign/tgbl_wiki", root().display());
    done(dir, &["data", "import", &tgb, "--out", "whole"]);
    done(dir, &["data", "import", &tgb, "--out", "plain", "--format", "jodie"]);
    for file in ["val_negatives.npy", "test_negatives.npy"] {
        assert!(dir.join("whole").join(file).is_file() && !dir.join("plain").join(file).exists());
    }
    let stats = json(&done(dir, &["data", "info", "whole", "--json"]).out);
    assert_eq!((&stats["name"], &stats["events"]), (&"tgbl-wiki".into(), &20.into()));
}

#[test]
fn a_run_resumes_where_it_ended_and_no_folder_is_overwritten() {
    let dir = made();
    let dir = dir.path();
    refused(dir, &small(&["--resume"]), 2, &["--resume", "--out"]);
    done(dir, &small(&["--out", "run"]));
    refused(dir, &small(&["--out", "run"]), 2, &["run is not empty", "--resume"]);
    refused(dir, &small(&["--out", "run", "--resume", "--seed", "9"]), 9, &["another configuration"]);
    let longer = json(&done(dir, &small(&["--out", "run", "--resume", "--epochs", "3", "--json"])).out);
    assert_eq!(longer["epochs"].as_array().unwrap().len(), 3);
    // The precision of products belongs to the run's configuration.
    let manifest = dir.join("run/checkpoint/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let changed = text.replace("\"precision\": \"f32\"", "\"precision\": \"tf32\"");
    fs::write(&manifest, &changed).unwrap();
    refused(
        dir,
        &["eval", "--checkpoint", "run"],
        9,
        &["manifest.json", "does not have its own checksum", "line 2"],
    );
    fs::write(&manifest, json(&changed).to_string()).unwrap();
    refused(dir, &small(&["--out", "run", "--resume", "--epochs", "4"]), 9, &["another configuration"]);
    refused(dir, &["eval", "--checkpoint", "run"], 2, &["precision is tf32, and the CPU"]);
    done(dir, &["eval", "--checkpoint", "run", "--precision", "f32"]);
    fs::write(&manifest, text).unwrap();

    // A folder that holds a file, and a file in place of a folder.
    fs::create_dir(dir.join("full")).unwrap();
    fs::write(dir.join("full/notes.txt"), "mine").unwrap();
    refused(dir, &small(&["--out", "full"]), 2, &["full is not empty"]);
    refused(dir, &small(&["--out", "made/src.npy"]), 10, &["made/src.npy"]);
    fs::create_dir(dir.join("empty")).unwrap();
    done(dir, &small(&["--out", "empty"]));

    for entry in fs::read_dir(dir.join("run/checkpoint")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    refused(dir, &["eval", "--checkpoint", "run"], 9, &["run/checkpoint/epoch-"]);
    refused(dir, &["eval", "--checkpoint", "nowhere"], 9, &["nowhere"]);
    let embed = |nodes, more: &[&'static str]| {
        [&["embed", "--checkpoint", "empty", "--out", "z.npy", "--nodes", nodes], more].concat()
    };
    refused(dir, &embed("3,40", &[]), 2, &["`40` is not a node", "0 to 39"]);
    refused(dir, &embed("3,x", &[]), 2, &["`x` is not a node"]);
    refused(dir, &embed("-3", &[]), 2, &["-3"]);
    refused(dir, &embed("3,4,5", &["--times", "1,2"]), 2, &["3 nodes and 2 times"]);
    for time in ["nan", "inf", "1e300"] {
        refused(dir, &embed("3", &["--times", time]), 2, &["--times: `"]);
    }
    done(
        dir,
        &["data", "synth", "--out", "other", "--events", "50", "--sources", "5", "--destinations", "5"],
    );
    refused(dir, &["eval", "--checkpoint", "empty", "--data", "other"], 9, &["400 events"]);
}

/// Returns event files with an error: name, content, and texts that the error message contains.
fn broken_event_files(good: &str) -> [(&'static str, String, &'static [&'static str]); 10] {
    [
        ("empty.csv", String::new(), &["empty.csv: ", "empty"]),
        ("blank.csv", "\n# nothing\n".into(), &["blank.csv: ", "only comments"]),
        ("header.csv", "src,dst,time\n".into(), &["header.csv: ", "no event"]),
        ("narrow.csv", good.replace("20,0.5", "20"), &["narrow.csv:3", "3 columns", "4"]),
        ("wide.csv", good.replace("20,0.5", "20,0.5,7"), &["wide.csv:3:12", "5 columns"]),
        ("text.csv", good.replace("20", "noon"), &["text.csv:3:5", "`noon`", "time"]),
        ("inf.csv", good.replace("20,0.5", "20,1e99"), &["inf.csv:3:8", "1e99"]),
        ("nantime.csv", good.replace("20", "nan"), &["nantime.csv:3:5", "nan"]),
        ("columns.csv", "a,b,c\n0,1,2\n".into(), &["columns.csv"]),
        ("gap.csv", good.replace("1,2,20", "1,,20"), &["gap.csv:3:3"]),
    ]
}

#[test]
fn a_wrong_event_file_is_refused_with_the_position_of_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let good = "src,dst,time,f0\n0,1,10,0.5\n1,2,20,0.5\n2,0,30,0.5\n";
    for (file, content, texts) in broken_event_files(good) {
        fs::write(dir.join(file), content).unwrap();
        refused(dir, &["train", "--data", file, "--out", "run"], 3, texts);
        refused(dir, &["data", "import", file, "--out", "kept"], 3, texts);
        refused(dir, &["data", "info", file], 3, texts);
    }
    refused(
        dir,
        &["train", "--data", "none.csv", "--out", "run"],
        10,
        &["none.csv: cannot open", "give an event file"],
    );
    refused(
        dir,
        &["train", "--data", "tgbl-wiki", "--out", "run"],
        10,
        &["tgbl-wiki: cannot open", "pip install py-tgb"],
    );
    refused(dir, &["sweep"], 2, &["arguments were not provided: --out <DIR>; see --help"]);
    refused(dir, &["data", "info", "wikipedai"], 10, &["did you mean", "wikipedia"]);
    fs::write(dir.join("cut.csv.gz"), b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b").unwrap();
    refused(dir, &["train", "--data", "cut.csv.gz"], 3, &["cut.csv.gz", "damaged or cut short"]);
    fs::create_dir(dir.join("folder")).unwrap();
    refused(dir, &["train", "--data", "folder"], 3, &["folder: ", "src.npy"]);

    fs::write(dir.join("good.csv"), good).unwrap();
    fs::write(dir.join("late.csv"), good.replace("30", "15")).unwrap();
    refused(
        dir,
        &["train", "--data", "late.csv", "--strict", "--out", "run"],
        3,
        &["late.csv:4:5", "earlier"],
    );
    write_npy(&dir.join("short.npy"), "<f4", 2, 1, &[1.0f32, 2.0]);
    write_npy(&dir.join("nan.npy"), "<f4", 3, 1, &[1.0f32, f32::NAN, 2.0]);
    for (features, said) in [("short.npy", "2 rows of features for 3 events"), ("nan.npy", "NaN")] {
        let words = [
            "data",
            "import",
            "good.csv",
            "--out",
            "kept",
            "--missing",
            "refuse",
            "--edge-features",
            features,
        ];
        refused(dir, &words, 3, &[features, said]);
    }
    refused(
        dir,
        &["data", "info", "good.csv", "--node-features", "short.npy"],
        3,
        &["short.npy", "2 rows", "3 nodes"],
    );
    refused(dir, &["data", "info", "good.csv", "--edge-features", "no.npy"], 10, &["no.npy"]);
}

#[test]
fn a_stream_that_is_too_short_and_a_batch_that_is_too_large_get_a_note() {
    let dir = made();
    fs::write(dir.path().join("one.txt"), "7 8 9\n").unwrap();
    let ran = done(dir.path(), &["train", "--data", "one.txt", "--epochs", "1"]);
    for note in ["1 event,", "one step an epoch", "too short a stream"] {
        assert!(ran.out.contains(note), "{note} is missing in\n{}", ran.out);
    }
    let ran = done(dir.path(), &small(&["--batch", "8", "--set", "static.mode=off"]));
    assert!(!ran.out.contains("note "), "{}", ran.out);
}

#[test]
fn a_wrong_flag_or_key_is_refused_with_its_valid_values() {
    let dir = made();
    let dir = dir.path();
    refused(dir, &small(&["--epoch", "3"]), 2, &["--epoch"]);
    refused(dir, &small(&["--bogus"]), 2, &["--bogus"]);
    refused(dir, &["trian"], 2, &["trian"]);
    refused(dir, &["eval"], 2, &["--checkpoint"]);
    refused(dir, &["data", "synth", "--out", "x", "--repeat", "1.5"], 2, &["1.5"]);
    for (flag, value, said) in [
        ("--seed", "-1", "-1"),
        ("--batch", "0", "batch is 0"),
        ("--batch", "many", "many"),
        ("--epochs", "0", "epochs is 0"),
        ("--threads", "5000", "threads is 5000"),
        ("--learning-rate", "NaN", "learning_rate is NaN"),
        ("--learning-rate", "-0.1", "-0.1"),
        ("--model", "gcn", "no model `gcn`"),
        ("--protocol", "best", "dyglib, tgl, disttgl or tgb"),
        ("--random-edge-features", "5", "edge features of its own"),
        ("--set", "tgn.layers=5", "tgn.layers is 5; give 0 to 4"),
        ("--set", "tgn.heads=3", "give a divisor of tgn.embedding"),
        ("--set", "tgn.dropout=1", "tgn.dropout is 1"),
        ("--set", "tgn.gap_quantile=0", "tgn.gap_quantile is 0; give more than 0"),
        ("--set", "tgn.sampling=latest", "give recent or uniform"),
        ("--set", "tgn.combiner=sum", "give last or mean"),
        ("--set", "tgn.updater=lstm", "--set tgn.updater=lstm: unknown variant `lstm`; give gru or rnn"),
        ("--set", "tgn.depth=2", "--set tgn.depth=2: unknown field `depth`"),
        (
            "--set",
            "learning-rate=1",
            "--set learning-rate=1: unknown field `learning-rate`; did you mean `learning_rate`?",
        ),
        ("--set", "seed=-1", "--set seed=-1: "),
        ("--seed", "-1", "invalid value '-1' for '--seed <N>': give a whole number, 0 or more"),
        ("--set", "tgn", "KEY=VALUE"),
        ("--set", "data.train=0.95", "0.95"),
        ("--precision", "fp8", "give f32 or tf32"),
        (
            "--precision",
            "tf32",
            "precision is tf32, and the CPU multiplies in f32; give --precision f32, or a CUDA device",
        ),
        ("--set", "precision=tf32", "precision is tf32, and the CPU multiplies in f32"),
    ] {
        let flag = format!("{flag}={value}");
        refused(dir, &small(&[&flag, "--out", "run"]), 2, &[said]);
    }
    refused(dir, &small(&["--device", "tpu", "--out", "run"]), 5, &["no device `tpu`"]);

    for (content, said) in [
        ("epochs = 1\nbatchsize = 4\n", ["run.toml:2:1", "batchsize"]),
        ("[tgn]\nwidth = 4\n", ["run.toml:2:1", "width"]),
        ("[tgn]\nheads = \"two\"\n", ["run.toml:2:9", "two"]),
        ("epochs = \n", ["run.toml:1:", "run.toml"]),
        ("seed = -1\n", ["run.toml:1:8", "-1"]),
    ] {
        fs::write(dir.join("run.toml"), content).unwrap();
        refused(dir, &["train", "run.toml", "--out", "run"], 2, &said);
    }
    refused(dir, &["train", "none.toml", "--out", "run"], 10, &["none.toml: cannot read"]);
}

#[test]
fn an_error_of_the_command_line_says_in_one_line_what_is_wrong_and_what_to_give() {
    let dir = tempfile::tempdir().unwrap();
    for (words, said) in [
        ("train --epoch 3", "unexpected argument '--epoch' found; did you mean '--epochs'?"),
        ("train --bogus", "unexpected argument '--bogus' found; see --help"),
        ("train a b", "a and b are both data; give one of them"),
        ("train a --data b", "the data are given twice: a and --data b; give one of them"),
        (
            "train a b c",
            "unexpected value 'c' for '[DATA|CONFIG]...' found; no more were expected; see --help",
        ),
        ("trian", "unrecognized subcommand 'trian'; did you mean 'train'?"),
        (
            "embed",
            "the following required arguments were not provided: --checkpoint <DIR>, --out <FILE>; see --help",
        ),
        (
            "train --tensorboard",
            "the following required arguments were not provided: --out <DIR>; see --help",
        ),
        ("train --json=3", "unexpected value '3' for '--json' found; no more were expected; see --help"),
        ("train --seed", "a value is required for '--seed <N>' but none was supplied; see --help"),
        (
            "train --seed 1.5",
            "invalid value '1.5' for '--seed <N>': give a whole number, 0 or more; see --help",
        ),
        (
            "train --batch 99999999999999999999",
            "invalid value '99999999999999999999' for '--batch <N>': the number is too large; see --help",
        ),
        (
            "train --learning-rate fast",
            "invalid value 'fast' for '--learning-rate <X>': give a number; see --help",
        ),
        (
            "train --from f --weights w",
            "the argument '--from <DIR>' cannot be used with '--weights <FILE>'; see --help",
        ),
        (
            "train --from f --weights w --resume",
            "the argument '--from <DIR>' cannot be used with '--weights <FILE>' or '--resume'; see --help",
        ),
        (
            "compare --as pdf",
            "invalid value 'pdf' for '--as <FORMAT>'; give one of table, markdown, json, csv, html, tgb",
        ),
        (
            "train --precision fp8",
            "invalid value 'fp8' for '--precision <PRECISION>': there is no precision `fp8`; give f32 or tf32",
        ),
        (
            "train --model TGN",
            "invalid value 'TGN' for '--model <MODEL>': there is no model `TGN`; did you mean `tgn`?",
        ),
        (
            "eval --protocol Tgb",
            "invalid value 'Tgb' for '--protocol <PROTOCOL>': there is no protocol `Tgb`; did you mean `tgb`?",
        ),
        (
            "data info x --missing skip",
            "invalid value 'skip' for '--missing <RULE>': there is no rule for missing values `skip`; give zero, \
             drop or refuse",
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        refused(dir.path(), &words, 2, &[&format!("error: {said}\n")]);
    }
    refused(dir.path(), &["train", "--seed", "1\n2"], 2, &["invalid value '1 2' for '--seed <N>'"]);
    let bare = tgnn(dir.path(), &["data"]);
    assert!(bare.code == 2 && bare.out.is_empty() && bare.err.contains("Usage: tgnn-bench data <COMMAND>"));
}

#[test]
fn data_and_a_configuration_are_told_apart_without_flags() {
    let dir = made();
    let dir = dir.path();
    fs::write(
        dir.join("events.csv"),
        "src,dst,time\n".to_owned()
            + &(0..60).map(|i| format!("{},{},{i}\n", i % 7, i % 5)).collect::<String>(),
    )
    .unwrap();
    let summary =
        |words: &[&str]| json(&done(dir, &[&["train"], words, &["--json", "--epochs", "1"]].concat()).out);
    assert_eq!(summary(&["events.csv"])["data"]["events"], 60);
    for words in [["events.csv", "small.toml"], ["small.toml", "events.csv"]] {
        let both = summary(&words);
        assert_eq!((&both["data"]["events"], &both["batch"]), (&60.into(), &50.into()));
    }
    assert_eq!(summary(&["small.toml"])["data"]["name"], "made");
    assert_eq!(summary(&["made"])["data"]["name"], "made");
    refused(dir, &["train", "nothing.csv"], 10, &["nothing.csv: cannot open", "give an event file"]);
}

#[test]
fn a_key_that_nothing_reads_is_refused_in_a_command_line_and_noted_in_a_file() {
    let dir = made();
    let dir = dir.path();
    for (words, said) in [
        (
            "train made --model jodie --set tgn.layers=2",
            "tgn.layers is set, and the model jodie does not read it",
        ),
        ("train made --set snapshots.width=8", "snapshots.width is set, and the model tgn does not read it"),
        ("train made --set property.rows=8", "property.rows is set, and the task is link"),
        ("profile step --data made --set jodie.memory=8", "give model=jodie"),
        ("sweep made --model jodie --grid tgn.layers=1,2 --out s", "tgn.layers is set, and the model jodie"),
        ("sweep made --grid model=tgn,jodie --set apan.mails=2 --out s", "apan.mails is set"),
    ] {
        refused(dir, &words.split(' ').collect::<Vec<_>>(), 2, &[said]);
    }
    let noted = done(dir, &small(&["--model", "jodie", "--epochs", "1"]));
    assert!(noted.out.contains("tgn.memory is set, and the model jodie does not read it"), "{}", noted.out);
    assert!(!noted.out.contains("tgn.layers"), "a default is not noted: {}", noted.out);
}

#[test]
fn a_run_starts_from_the_weights_of_a_file_or_reports_what_is_wrong_with_them() {
    let dir = made();
    let dir = dir.path();
    done(dir, &small(&["--epochs", "1", "--out", "first"]));
    let file = "first/checkpoint/epoch-1.safetensors";
    let loss = |words: &[&str]| {
        let ran = done(dir, &small(&[&["--epochs", "1", "--json"], words].concat()));
        json(&ran.out)["epochs"][0]["train_loss"].as_f64().unwrap()
    };
    assert!(loss(&["--weights", file]) < loss(&[]), "what was learned is not learned again");
    fs::write(dir.join("text.safetensors"), "no weights").unwrap();
    let refused = |words: &[&str], code, said: &[&str]| refused(dir, &small(words), code, said);
    refused(&["--weights", "none.safetensors", "--out", "run"], 10, &["none.safetensors", "cannot read"]);
    refused(
        &["--weights", "text.safetensors", "--out", "run"],
        9,
        &["text.safetensors", "not a safetensors file"],
    );
    let wider = ["--weights", file, "--set", "tgn.memory=33", "--out", "run"];
    refused(&wider, 9, &["`memory.w_x` is F32", "give F32 [99, "]);
    let gru_weights = ["--weights", file, "--set", "tgn.updater=rnn", "--out", "run"];
    refused(&gru_weights, 9, &["`memory.w_x` is F32", "or configure that size"]);
    let resumed = ["--resume", "--set", "tgn.updater=rnn", "--out", "first"];
    refused(&resumed, 9, &["the checkpoint was trained with another configuration"]);
    refused(&["--weights", file, "--set", "tgn.layers=2", "--out", "run"], 9, &["`embed.1.", "is missing"]);
    refused(&["--weights", file, "--resume", "--out", "first"], 2, &["--resume"]);
}

#[test]
fn snapshots_are_generated_and_described_and_a_wrong_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let made = done(
        dir.path(),
        &["data", "synth-snapshots", "--out", "made", "--trend", "40,60,60", "--features", "3"],
    );
    assert_eq!(made.out, "wrote made: 3 steps, 1,000 vertices, 160 edges in all\n");
    let stats = json(&done(dir.path(), &["data", "snapshots", "made", "--json", "--presence", "active"]).out);
    assert_eq!((&stats["edges"], &stats["feature_width"]), (&160.into(), &3.into()));
    assert_eq!(stats["steps"][1]["present"], stats["steps"][1]["active"]);
    let table = done(dir.path(), &["data", "snapshots", "wikipedia", "--every", "1d"]).out;
    assert!(table.contains("\n  steps           31  (+0d to +30d)\n"), "{table}");
    refused(dir.path(), &["data", "synth-snapshots", "--out", "made"], 2, &["not empty", "--force"]);
    refused(
        dir.path(),
        &["data", "snapshots", "made", "--every", "often"],
        2,
        &["`often`", "1000e (events)"],
    );
    fs::write(dir.path().join("made/1.txt"), "0 1\n2 x\n").unwrap();
    refused(dir.path(), &["data", "snapshots", "made"], 3, &["1.txt:2:3: `x` is not a vertex id"]);
}

#[test]
fn completions_exist_for_every_shell_and_man_pages_for_every_subcommand() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = done(dir.path(), &["completions", shell]).out;
        assert!(script.contains("max-batches") && script.contains("completions"), "{shell}");
    }
    refused(dir.path(), &["completions", "tcsh"], 2, &["tcsh", "bash, elvish, fish, powershell, zsh"]);
    assert!(done(dir.path(), &["man"]).out.contains(".TH tgnn-bench 1"));
    done(dir.path(), &["man", "--out", "pages"]);
    let page = |name: &str| fs::read_to_string(dir.path().join("pages").join(name)).unwrap();
    assert!(
        page("tgnn-bench-train.1").contains("max\\-batches")
            && page("tgnn-bench-data-synth.1").contains(".TH")
    );
    fs::write(dir.path().join("taken"), "").unwrap();
    refused(dir.path(), &["man", "--out", "taken"], 10, &["taken"]);
}

/// The model has no memory, so a test depends on nothing but its own batch and rule.
#[test]
fn a_test_has_the_batch_and_the_history_that_eval_gives_it() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    done(dir, SYNTH);
    let train = |out: &str, more: &[&str]| {
        let words = "train --data made --model tgat --epochs 1 --batch 50 --threads 1 --set static.mode=off --json --out";
        let words: Vec<&str> = words.split(' ').chain([out]).chain(more.iter().copied()).collect();
        json(&done(dir, &words).out)
    };
    let mut small = train("small", &["--eval-batch", "20"]);
    train("large", &["--eval-batch", "60"]);
    let eval = |more: &[&str]| {
        let words = ["eval", "--checkpoint", "large", "--threads", "1", "--json"];
        json(&done(dir, &[&words[..], more].concat()).out)
    };
    let mut found = eval(&["--batch", "20"]);
    assert_eq!(found["eval_batch"], 20);
    assert_eq!(found["test"].take(), small["test"].take());
    let [by_time, by_batch] = ["time", "batch"].map(|rule| eval(&["--history", rule]));
    assert_eq!([&by_time["history"], &by_batch["history"]], ["time", "batch"]);
    assert_ne!(by_time["test"], by_batch["test"]);
    // Another protocol leaves the rule of the run.
    assert_eq!(eval(&["--protocol", "disttgl"])["history"], "time");
    let label = ["train", "--data", "made", "--model", "t-gcn", "--every", "50e", "--history", "batch"];
    refused(dir, &label, 2, &["history is set, and t-gcn reads snapshots"]);
    let label = ["train", "--data", "made", "--task", "property", "--eval-batch", "50"];
    refused(dir, &label, 2, &["task property evaluates in batches of `batch`"]);
}
