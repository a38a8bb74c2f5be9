//! Labels of events as classes, from the command line: which values are classes, and what a run keeps.
use crate::support::program::{done, json, made, refused, small};
use serde_json::Value;
use std::{fmt::Write, fs, path::Path};

/// Writes events of two users and three items, whose labels are `label(i)`.
fn write(dir: &Path, name: &str, label: impl Fn(usize) -> String) {
    let mut text = "user,item,time,label\n".to_owned();
    for i in 0..200 {
        let _ = writeln!(text, "u{},i{},{},{}", i * 7 % 5, i * 11 % 6, 10 * i, label(i));
    }
    fs::write(dir.join(name), text).unwrap();
}

/// Whether event `i` is positive, at random.
fn yes(i: usize) -> bool {
    (i * i / 7 + i / 3).is_multiple_of(3)
}

/// Trains on the labels of `name`, and returns the summary.
fn train(dir: &Path, name: &str, more: &[&str]) -> Value {
    let words = ["--data", name, "--task", "node", "--epochs", "1", "--json"];
    json(&done(dir, &small(&[&words[..], more].concat())).out)
}

/// Writes labels, and returns the scores of a training on them, and what the classes stand for.
fn scores(dir: &Path, label: impl Fn(usize) -> String) -> (Value, Value) {
    write(dir, "events.csv", label);
    let summary = train(dir, "events.csv", &[]);
    (summary["test"].clone(), summary["data"]["classes"].clone())
}

#[test]
fn scores_do_not_depend_on_how_classes_are_written() {
    let dir = made();
    let two =
        |no: &str, yes_: &str| scores(dir.path(), |i| if yes(i) { yes_.to_owned() } else { no.to_owned() });
    let (wanted, classes) = two("0", "1");
    assert_eq!(classes["decision"], json("[0.0, 1.0]"));
    for (no, yes) in [("1", "2"), ("0", "10"), ("-1", "1"), ("-1", "0"), ("0.5", "1.5"), ("false", "true")] {
        assert_eq!(two(no, yes).0, wanted, "{no} and {yes}");
    }
    let (found, classes) = two("fraud", "legit");
    assert_eq!((found, &classes["decision"]), (wanted, &json(r#"["fraud", "legit"]"#)));
    let three = |values: [&str; 3]| scores(dir.path(), |i| values[(i * i / 5 + i) % 3].to_owned());
    let (wanted, classes) = three(["0", "1", "2"]);
    assert_eq!(classes["values"], json("[0.0, 1.0, 2.0]"));
    for values in [["1", "2", "3"], ["0", "7", "40"], ["a", "b", "c"], ["-1", "0.5", "2"]] {
        assert_eq!(three(values).0, wanted, "{values:?}");
    }
}

#[test]
fn an_event_without_a_label_is_seen_and_neither_learned_nor_scored() {
    let dir = made();
    let (path, number) = (dir.path(), |i: usize| u8::from(yes(i)).to_string());
    let lacking =
        |none: &'static str| scores(path, move |i| if i % 3 == 0 { none.into() } else { number(i) });
    let wanted = lacking("NaN");
    assert_eq!(wanted.1["decision"], json("[0.0, 1.0]"));
    for none in ["", "-1", "null"] {
        assert_eq!(lacking(none), wanted, "`{none}`");
    }
    assert_ne!(wanted.0, scores(path, number).0);
    // Labels that only the test part lacks change nothing of the training.
    let parameters = |late: bool| {
        write(path, "late.csv", |i| if late && i > 180 { String::new() } else { number(i) });
        let out = if late { "late" } else { "all" };
        let summary = train(path, "late.csv", &["--out", out]);
        (fs::read(path.join(out).join("checkpoint/epoch-1.safetensors")).unwrap(), summary["test"].clone())
    };
    let (all, late) = (parameters(false), parameters(true));
    assert!(all.0 == late.0 && all.1 != late.1);
    let ran = done(path, &small(&["--data", "late.csv", "--task", "node", "--max-batches", "1"]));
    let note = "note      19 of 200 events have no label: the model sees them, no score counts them";
    assert!(ran.out.contains("classes   0 is no, 1 is yes\n") && ran.out.contains(note), "{}", ran.out);
    write(path, "none.csv", |i| if i < 150 { String::new() } else { number(i) });
    let words = small(&["--data", "none.csv", "--task", "node"]);
    refused(path, &words, 3, &["none: no event of the training part has a label; "]);
}

#[test]
fn a_run_keeps_what_its_classes_stand_for() {
    let dir = made();
    let path = dir.path();
    write(path, "events.csv", |i| if yes(i) { "7".into() } else { "3".into() });
    let test = train(path, "events.csv", &["--out", "run", "--positive", "3"])["test"].clone();
    let eval = |more: &[&str]| done(path, &[&["eval", "--checkpoint", "run"], more].concat()).out;
    assert!(eval(&[]).contains("classes   7 is no, 3 is yes\n"), "{}", eval(&[]));
    assert_eq!(json(&eval(&["--json"]))["test"], test);
    write(path, "new.csv", |i| {
        if i == 50 {
            "9".into()
        } else if yes(i) {
            "7".into()
        } else {
            "3".into()
        }
    });
    let said =
        "new: event 50 has the label `9`, which is no class; the classes are 7, 3: correct it, or train anew";
    refused(path, &["eval", "--checkpoint", "run", "--data", "new.csv"], 3, &[said]);
    let resume =
        ["train", "run/config.toml", "--data", "new.csv", "--epochs", "2", "--out", "run", "--resume"];
    refused(path, &resume, 3, &[said]);
    // Another run starts from the model alone: its head, and its classes, are new.
    let again = train(path, "new.csv", &["--from", "run"]);
    assert_eq!(again["data"]["classes"]["values"], json("[3.0, 7.0, 9.0]"));
    for (more, said) in [
        (["--positive", "9"], "no label is `9`; give 3 or 7"),
        (["--task", "link"], "classify.positive is set, and no labels of events are predicted; "),
    ] {
        let words = ["--data", "events.csv", "--task", "node", "--set", "classify.positive=9"];
        refused(path, &small(&[&words[..], &more].concat()), 2, &[said]);
    }
    write(path, "equal.csv", |_| "5".into());
    let words = small(&["--data", "equal.csv", "--task", "edge"]);
    refused(path, &words, 3, &["equal: all labels are 5; classification needs two different labels"]);
}

#[test]
fn a_run_of_an_earlier_version_has_a_class_for_every_number() {
    let dir = made();
    let path = dir.path();
    write(path, "events.csv", |i| ((i * i / 5 + i) % 4).to_string());
    let test = train(path, "events.csv", &["--out", "run"])["test"].clone();
    let file = path.join("run/checkpoint/manifest.json");
    let mut manifest = json(&fs::read_to_string(&file).unwrap());
    assert!(manifest.as_object_mut().unwrap().remove("classes").is_some());
    fs::write(&file, manifest.to_string()).unwrap();
    let ran = done(path, &["eval", "--checkpoint", "run", "--json"]);
    assert_eq!(json(&ran.out)["test"], test);
    let note = "every number from 0 to the largest label is a class, also if it never occurs";
    assert!(ran.err.contains(note), "{}", ran.err);
}

#[test]
fn classes_that_only_later_events_have_are_told_and_sets_have_those_that_occur() {
    let dir = made();
    let path = dir.path();
    write(path, "late.csv", |i| if i > 170 { "2".into() } else { u8::from(yes(i)).to_string() });
    let ran = done(path, &small(&["--data", "late.csv", "--task", "node", "--max-batches", "1"]));
    let note = "note      classes only after the training part: 2\n";
    assert!(ran.out.contains("classes   3: 0, 1, 2\n") && ran.out.contains(note), "{}", ran.out);
    fs::create_dir(path.join("icews")).unwrap();
    let facts = |from: usize, to: usize, gap: usize| {
        (from..to).fold(String::new(), |text, i| {
            text + &format!("{} {} {} {}\n", i % 5, gap * (i * i % 3), (i + 1) % 5, 24 * i)
        })
    };
    let relations = |gap: usize| {
        for (name, part) in [("train", 0..140), ("valid", 140..170), ("test", 170..200)] {
            fs::write(path.join(format!("icews/{name}.txt")), facts(part.start, part.end, gap)).unwrap();
        }
        train(path, "icews", &["--task=edge"])
    };
    let [dense, gaps] = [1, 9].map(relations);
    assert_eq!(dense["test"], gaps["test"]);
    assert_eq!(gaps["data"]["classes"]["sets"], json("[0, 9]"));
}

#[test]
fn features_that_mean_something_else_are_refused() {
    let dir = made();
    let path = dir.path();
    let kinds = |name: &str, kinds: [&str; 2]| {
        let rows = (0..200).fold("src,dst,time,kind\n".to_owned(), |text, i| {
            text + &format!("{},{},{},{}\n", i * 7 % 5, 5 + i * 11 % 6, 10 * i, kinds[usize::from(yes(i))])
        });
        fs::write(path.join(name), rows).unwrap();
    };
    kinds("a.csv", ["cash", "visa"]);
    kinds("b.csv", ["visa", "wire"]);
    let flags = ["--columns", "one-hot=kind", "--epochs", "1"];
    let words =
        |data: &'static str, more: &[&'static str]| small(&[&["--data", data][..], &flags, more].concat());
    done(path, &words("a.csv", &["--out", "run"]));
    let said = "the edge features mean something else: the column `kind` has categories that the model lacks: \
                `wire`; and lacks of its: `cash`; give data with the model's columns and categories, or train anew";
    refused(path, &words("b.csv", &["--from", "run"]), 9, &[said]);
    refused(path, &["eval", "--checkpoint", "run", "--data", "b.csv"], 9, &[said]);
    let weights = "run/checkpoint/epoch-1.safetensors";
    refused(path, &words("b.csv", &["--weights", weights]), 9, &[said]);
    done(path, &words("a.csv", &["--from", "run"]));
    fs::copy(path.join(weights), path.join("weights.safetensors")).unwrap();
    let ran = done(path, &words("b.csv", &["--weights", "weights.safetensors"]));
    assert!(ran.out.contains("note      the weights do not say which columns and categories"), "{}", ran.out);
    // Categories of nodes.
    let nodes = |name: &str, kinds: [&str; 2]| {
        let rows = (0..11).fold("id,kind\n".to_owned(), |text, i| text + &format!("{i},{}\n", kinds[i % 2]));
        fs::write(path.join(name), rows).unwrap();
    };
    nodes("old.csv", ["shop", "home"]);
    nodes("new.csv", ["shop", "bank"]);
    done(path, &words("a.csv", &["--node-features", "old.csv", "--out", "nodes"]));
    let said = "the node features mean something else: the column `kind` has categories that the model lacks: \
                `bank`; and lacks of its: `home`; ";
    refused(path, &words("a.csv", &["--node-features", "new.csv", "--from", "nodes"]), 9, &[said]);
    done(
        path,
        &[
            "data",
            "import",
            "a.csv",
            "--columns",
            "one-hot=kind",
            "--node-features",
            "new.csv",
            "--out",
            "kept",
        ],
    );
    refused(path, &small(&["--data", "kept", "--from", "nodes"]), 9, &[said]);
}
