//! `tgnn-bench predict` as its users see it.
use crate::support::program::{done, json, program, refused, trained};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// Starts `predict` on standard input.
fn piped(dir: &Path) -> Child {
    Command::new(program())
        .args(["predict", "--checkpoint", "run", "--after", "validation", "--threads", "1"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

const LINES: [&str; 3] = ["0,30,20000,0.1,0.2,0.3", "5,31,20000,-1,0,1", "0,31,20007.0,0.5,0.5,0.5"];

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn each_line_of_events_is_answered_at_once_and_a_file_gives_the_same_lines() {
    let dir = trained();
    let dir = dir.path();
    let mut child = piped(dir);
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut stdout, mut lines) = (BufReader::new(stdout), String::new());
    writeln!(stdin, "u,i,t,a,b,c").unwrap();
    for line in LINES {
        writeln!(stdin, "{line}").unwrap();
        // The input stays open: the line alone must be enough to get its score.
        stdout.read_line(&mut lines).unwrap();
    }
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    let report = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{report}");
    for text in ["scored    3 events in 3 steps of at most 1", "events/s", "p50 ", "p99 ", "MiB at most"] {
        assert!(report.contains(text), "no `{text}` in {report}");
    }
    for (line, event) in lines.lines().zip(LINES) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[..3], event.split(',').take(3).collect::<Vec<_>>());
        let [logit, probability] = [fields[3], fields[4]].map(|x| x.parse::<f64>().unwrap());
        assert!((probability - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{line}");
    }

    fs::write(dir.join("new.txt"), LINES.map(|l| l.replace(',', " ")).join("\n")).unwrap();
    let words = [
        "predict",
        "--checkpoint",
        "run",
        "--after",
        "validation",
        "--input",
        "new.txt",
        "--out",
        "scores.csv",
    ];
    assert_eq!(done(dir, &words).out, "");
    assert_eq!(text(&dir.join("scores.csv")), lines);
    let together = done(dir, &[&words[..7], &["--batch", "3"]].concat());
    assert!(together.err.contains("3 events in 1 step of at most 3"), "{}", together.err);
    assert_eq!(together.out.lines().next(), lines.lines().next());
    let z = done(dir, &[&words[..7], &["--embeddings"]].concat()).out;
    assert!(z.lines().count() == 3 && z.lines().all(|l| l.split(',').count() == 3 + 2 * 8), "{z}");
}

#[test]
fn a_stream_resumes_from_a_saved_predictor_with_nodes_that_training_never_saw() {
    let dir = trained();
    let dir = dir.path();
    let new = "41,40,20009,0,0,0";
    let words = |checkpoint, input| ["predict", "--checkpoint", checkpoint, "--input", input];
    let after = ["--after", "validation", "--nodes", "42"];
    fs::write(dir.join("all.csv"), [LINES.as_slice(), &[new]].concat().join("\n")).unwrap();
    fs::write(dir.join("first.csv"), LINES.join("\n")).unwrap();
    fs::write(dir.join("then.csv"), new).unwrap();
    let whole = done(dir, &[&words("run", "all.csv")[..], &after].concat()).out;
    let first = done(dir, &[&words("run", "first.csv")[..], &after, &["--save", "after"]].concat());
    assert!(first.err.contains("saved     after"), "{}", first.err);
    let then = done(dir, &words("after", "then.csv")).out;
    assert_eq!(first.out + &then, whole);
    refused(dir, &words("after", "first.csv"), 3, &["first.csv:1:6: the event is 7 ticks earlier"]);
    refused(
        dir,
        &[&words("after", "then.csv")[..], &after].concat(),
        9,
        &["has no state after validation; leave out --after"],
    );
    refused(dir, &["eval", "--checkpoint", "after"], 9, &["was saved after a stream; go on with `predict`"]);
}

/// The ids of the file are not numbers of nodes, and its times are not ticks from 0.
#[test]
fn a_stream_is_scored_from_the_run_folder_alone_with_the_ids_and_times_of_the_training_data() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ends = |i: u64| format!("{},{},{}.5", 1_000 + i * 7 % 30, 5_000_000_000 + i % 10, 900 + i);
    let old = (0..400).map(|i| format!("{},0,0.{}\n", ends(i), i % 7)).collect::<String>();
    fs::write(dir.join("events.csv"), format!("user_id,item_id,timestamp,state_label,features\n{old}"))
        .unwrap();
    done(
        dir,
        &[
            "train",
            "--data",
            "events.csv",
            "--epochs",
            "1",
            "--batch",
            "50",
            "--threads",
            "1",
            "--out",
            "run",
        ],
    );
    let new = (400..410).map(|i| format!("{},0.{}\n", ends(i), i % 7)).collect::<String>();
    fs::write(dir.join("new.csv"), new).unwrap();
    let words = ["predict", "--checkpoint", "run", "--after", "validation", "--input", "new.csv"];
    let want = done(dir, &words).out;
    fs::remove_file(dir.join("events.csv")).unwrap();
    assert_eq!(done(dir, &words).out, want);
    assert!(want.starts_with(&ends(400)), "{want}");
    refused(dir, &["eval", "--checkpoint", "run"], 10, &["events.csv"]);
    refused(dir, &[&words[..], &["--data", "events.csv"]].concat(), 2, &["--data"]);

    // Ids that training never saw get numbers, and keep them when the state is saved.
    let [first, then] = ["7,5000000001,1400.5,1", "1001,8,1401.5,1\n7,8,1402.5,1"];
    fs::write(dir.join("all.csv"), format!("{first}\n{then}")).unwrap();
    fs::write(dir.join("first.csv"), first).unwrap();
    fs::write(dir.join("then.csv"), then).unwrap();
    let run = |checkpoint, input, more: &[&'static str]| {
        let words = ["predict", "--checkpoint", checkpoint, "--nodes", "42", "--input", input];
        done(dir, &[&words, more].concat()).out
    };
    let whole = run("run", "all.csv", &[]);
    let halves = [run("run", "first.csv", &["--save", "after"]), run("after", "then.csv", &[])];
    assert_eq!(halves.concat(), whole);

    let extract = fs::read_dir(dir.join("run/checkpoint")).unwrap().map(|entry| entry.unwrap().path());
    for extract in extract.filter(|p| p.to_str().unwrap().contains("extract-")) {
        fs::write(extract, "damaged").unwrap();
    }
    refused(dir, &words, 9, &["run/checkpoint/extract-", "truncated", "--resume"]);
}

#[test]
fn a_wrong_event_is_reported_with_its_position_after_the_scores_of_the_events_before() {
    let dir = trained();
    let dir = dir.path();
    let words =
        ["predict", "--checkpoint", "run", "--after", "validation", "--input", "new.csv", "--batch", "8"];
    for (line, text) in [
        ("0,31", "new.csv:2: 2 fields; give src,dst,time,f0,f1,f2"),
        ("0,x,20001,1,1,1", "new.csv:2:3: `x` is not a node"),
        (
            "0,40,20001,1,1,1",
            "new.csv:2:3: node 40 does not fit: the predictor holds 40 nodes; allow it with --nodes 41 or more",
        ),
        (
            "0,31,19999,1,1,1",
            "new.csv:2:6: the event is 1 tick earlier than one before it; give events in order of time",
        ),
        ("0,31,20001,1,inf,1", "new.csv:2:14: `inf` is not a finite number"),
    ] {
        fs::write(dir.join("new.csv"), format!("{}\n{line}\n{}\n", LINES[0], LINES[2])).unwrap();
        refused(dir, &words, 3, &[text]);
        let _ = fs::remove_file(dir.join("scores.csv"));
    }
    refused(
        dir,
        &["predict", "--checkpoint", "run", "--after", "validation", "--batch", "0"],
        2,
        &["--batch is 0"],
    );
    refused(
        dir,
        &["predict", "--checkpoint", "run", "--after", "validation", "--input", "none.csv"],
        10,
        &["none.csv: cannot open"],
    );
    let save =
        ["predict", "--checkpoint", "run", "--after", "validation", "--input", "new.csv", "--save", "run"];
    refused(dir, &save, 2, &["holds the checkpoint of a training run; give another folder"]);
}

#[test]
fn the_program_ends_quietly_when_the_reader_of_its_output_goes_away() {
    let dir = trained();
    let mut child = piped(dir.path());
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // Writes until the pipe breaks, which means that the program has ended.
    while writeln!(stdin, "{}", LINES[0]).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Trains on a table whose features have a name, and returns the folder.
fn trained_on_names() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let row = |i: u64| format!("{},{},{},{}.5\n", i * 7 % 6, i * 7 % 5, 1_600_000_000 + 60 * i, i % 4);
    let rows: String = (0..80).map(row).collect();
    fs::write(dir.path().join("events.csv"), format!("user_id,item_id,timestamp,value\n{rows}")).unwrap();
    let words = ["train", "--data", "events.csv", "--epochs", "1", "--batch", "20", "--threads", "1"];
    done(dir.path(), &[&words[..], &["--out", "run"]].concat());
    dir
}

const LATER: &str = "user_id,item_id,timestamp,value\n3,4,1600005000,1.5\n2,4,1600005060,0.5\n";

/// Returns an Arrow stream with the later events.
fn arrow() -> Vec<u8> {
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use std::sync::Arc;
    let whole = |values: [i64; 2]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let columns = [
        ("timestamp", whole([1_600_005_000, 1_600_005_060])),
        ("value", Arc::new(Float64Array::from(vec![1.5, 0.5])) as ArrayRef),
        ("item_id", whole([4, 4])),
        ("user_id", whole([3, 2])),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn later_events_are_read_in_every_form_that_data_may_have_and_from_pipes() {
    let dir = trained_on_names();
    let dir = dir.path();
    fs::write(dir.join("later.csv"), LATER).unwrap();
    let words = ["predict", "--checkpoint", "run", "--threads", "1"];
    let want = done(dir, &[&words[..], &["--input", "later.csv"]].concat()).out;
    assert!(want.starts_with("3,4,1600005000,") && want.lines().count() == 2, "{want}");
    let json = "{\"timestamp\":1600005000,\"value\":1.5,\"item_id\":4,\"user_id\":3}\n\
                {\"user_id\":2,\"item_id\":4,\"timestamp\":\"1600005060\",\"value\":0.5}\n";
    let forms = [
        ("later.jsonl", json.as_bytes().to_vec()),
        ("later.csv.gz", gzip(LATER.as_bytes())),
        ("later.zst", zstd::encode_all(json.as_bytes(), 1).unwrap()),
        ("later.arrows", arrow()),
    ];
    fs::create_dir(dir.join("days")).unwrap();
    fs::write(dir.join("days/1.csv"), LATER).unwrap();
    assert_eq!(done(dir, &[&words[..], &["--input", "days", "--batch", "1"]].concat()).out, want);
    for (name, bytes) in forms {
        fs::write(dir.join(name), &bytes).unwrap();
        assert_eq!(done(dir, &[&words[..], &["--input", name]].concat()).out, want, "{name}");
        let mut child = Command::new(program())
            .args(words)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(ended.stdout).unwrap(), want, "{name}: {:?}", ended.stderr);
    }
}

#[test]
fn a_header_of_later_events_counts_or_is_refused_and_what_is_doubtful_is_noted() {
    let dir = trained_on_names();
    let dir = dir.path();
    let words = ["predict", "--checkpoint", "run", "--threads", "1", "--input", "later.csv"];
    let write = |text: &str| fs::write(dir.join("later.csv"), text).unwrap();
    write("item_id,user_id,timestamp,amount\n4,3,1600005000,1.5\n");
    refused(
        dir,
        &words,
        3,
        &["later.csv:1: the header does not name the feature `value`; its columns are item_id, "],
    );
    write("user_id,item_id,timestamp,value\n3,4,1600005000.5,1.5\n3,4,1600005001,\n");
    let ran = done(dir, &words);
    assert!(ran.out.starts_with("3,4,1600005000.5,"), "{}", ran.out);
    for note in ["note: 1 time cut to the ticks of the data\n", "note: 1 missing feature read as 0\n"] {
        assert!(ran.err.contains(note), "{}", ran.err);
    }
    write(&LATER.replace("1600005000", "1600005000000").replace("1600005060", "1600005060000"));
    let ran = done(dir, &words);
    let note =
        "note: later.csv:2:5: the event is 50650.4 years after the one before it; is its time in the unit";
    assert!(ran.err.matches("note: ").count() == 1 && ran.err.contains(note), "{}", ran.err);
}

/// Returns the destinations of a list and their logits.
fn ranked(list: &serde_json::Value) -> Vec<(u64, f64)> {
    let pair = |pair: &serde_json::Value| (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap());
    list.as_array().unwrap().iter().map(pair).collect()
}

#[test]
fn a_line_gets_its_best_destinations_of_all_or_of_its_own_and_a_question_is_no_event() {
    let dir = trained();
    let dir = dir.path();
    let predict = |input: &str, flags: &[&str]| {
        fs::write(dir.join("lines"), input).unwrap();
        let words = ["predict", "--checkpoint", "run", "--after", "validation", "--input", "lines"];
        done(dir, &[&words[..], flags].concat())
    };
    let plain = predict(&LINES.join("\n"), &[]).out;
    let top = predict(&LINES.join("\n"), &["--top", "4"]);
    assert!(top.err.contains("scored    3 lines and 30 candidates in 3 steps"), "{}", top.err);
    assert_eq!(top.out.lines().count(), 3);
    for (line, plain) in top.out.lines().zip(plain.lines()) {
        let list = line.strip_prefix(plain).unwrap().strip_prefix(",\"").unwrap().strip_suffix('"').unwrap();
        let best = ranked(&json(&list.replace("\"\"", "\"")));
        assert!(best.len() == 4 && best.iter().all(|(dst, _)| (30..40).contains(dst)), "{line}");
        assert!(best.is_sorted_by(|a, b| a.1 >= b.1), "{line}");
    }
    // The event's own destination is scored like any candidate, by the state before the event.
    let all = predict(&LINES.join("\n"), &["--top", "99", "--json"]).out;
    for (line, plain) in all.lines().zip(plain.lines()) {
        let line = json(line);
        let event: Vec<&str> = plain.split(',').collect();
        let best = ranked(&line["candidates"]);
        assert_eq!(best.len(), 10);
        let own = best.iter().find(|(dst, _)| event[1] == dst.to_string()).unwrap().1;
        assert_eq!(line["dst"].to_string(), event[1]);
        let logit = line["logit"].as_f64().unwrap();
        assert!((own - logit).abs() < 1e-4 && event[3].parse() == Ok(logit as f32), "{line} {plain}");
    }
    // A list of its own, and questions among the events, which change no score.
    let with = [
        r#"{"src": 0, "dst": 30, "time": 20000, "a": 0.1, "b": 0.2, "c": 0.3, "candidates": [33, 31, 39]}"#,
        r#"{"src": 5, "dst": 31, "time": 20000, "a": -1, "b": 0, "c": 1}"#,
        r#"{"src": 5, "dst": null, "time": 20007, "candidates": [30, 31]}"#,
        r#"{"src": 0, "dst": 31, "time": 20007, "a": 0.5, "b": 0.5, "c": 0.5}"#,
    ];
    let own = predict(&with.join("\n"), &[]).out;
    let own: Vec<&str> = own.lines().collect();
    let plain: Vec<&str> = plain.lines().collect();
    assert!(own[0].starts_with(plain[0]) && own[1] == format!("{},", plain[1]), "{own:?}");
    assert_eq!(own[3].replace("20007", "20007.0"), format!("{},", plain[2]));
    assert!(own[2].starts_with("5,,20007,,,\"[["), "{own:?}");
    let first = json(all.lines().next().unwrap());
    let of_three: Vec<(u64, f64)> =
        ranked(&first["candidates"]).into_iter().filter(|(dst, _)| [33, 31, 39].contains(dst)).collect();
    let list = own[0].split_once(",\"").unwrap().1.trim_end_matches('"');
    let listed: Vec<u64> = ranked(&json(list)).iter().map(|(dst, _)| *dst).collect();
    assert_eq!(listed, of_three.iter().map(|(dst, _)| *dst).collect::<Vec<_>>());
    // Nodes without an event are scored, and unknown again: a question takes no room from events.
    let unknown = [
        r#"{"src": 77, "dst": null, "time": 20000, "candidates": [30, 78]}"#,
        r#"{"src": 79, "dst": null, "time": 20000, "candidates": [30, 80]}"#,
    ];
    let asked = predict(&unknown.join("\n"), &["--nodes", "81"]).out;
    assert!(asked.lines().all(|line| line.contains("[30,")) && asked.contains("[80,"), "{asked}");
    let after = [&unknown[..], &[with[1], r#"{"src": 5, "dst": null, "time": 20001}"#]].concat().join("\n");
    let after = predict(&after, &["--nodes", "81", "--top", "99"]).out;
    assert!(!after.lines().last().unwrap().contains("[80,"), "{after}");
    for (input, flags, said) in [
        ("0,,20000,0,0,0", &[][..], "lines:1:3: the line has neither a destination nor candidates; give one"),
        (with[0], &["--embeddings"], "the line has candidates, and --embeddings writes no scores"),
        ("0,,20000,0,0,0", &["--embeddings"], "lines:1:3: "),
    ] {
        fs::write(dir.join("lines"), input).unwrap();
        let words = ["predict", "--checkpoint", "run", "--after", "validation", "--input", "lines"];
        refused(dir, &[&words[..], flags].concat(), 3, &[said]);
    }
    for (flags, said) in [
        (&["--top", "0"][..], "--top 0; give 1 or more"),
        (&["--out", "s.parquet"], "--out s.parquet: scores are text; let the name end in .csv"),
        (&["--out", "s.jsonl"], "scores are CSV without --json"),
        (&["--json", "--out", "s.csv"], "scores are JSON lines with --json; let the name end in .jsonl"),
    ] {
        refused(dir, &[&["predict", "--checkpoint", "run"], flags].concat(), 2, &[said]);
    }
}

#[test]
fn a_stream_that_was_saved_knows_which_new_nodes_are_destinations() {
    let dir = trained_on_names();
    let dir = dir.path();
    let header = "user_id,item_id,timestamp,value\n";
    let events = format!("{header}3,new,1600005000,1.5\nalso,4,1600005060,0.5\n");
    let question = "2,,1600005120,\n";
    let predict = |from: &str, input: String, flags: &[&str]| {
        fs::write(dir.join("lines.csv"), input).unwrap();
        let words = ["predict", "--checkpoint", from, "--input", "lines.csv", "--top", "99", "--nodes", "30"];
        done(dir, &[&words[..], flags].concat()).out
    };
    let whole = predict("run", format!("{events}{question}"), &[]);
    predict("run", events, &["--save", "stream"]);
    let resumed = predict("stream", format!("{header}{question}"), &[]);
    let last = |out: &str| out.lines().last().unwrap().to_owned();
    assert_eq!(last(&resumed), last(&whole));
    assert!(last(&whole).contains("new") && !last(&whole).contains("also"), "{whole}");
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let dir = trained_on_names();
    let dir = dir.path();
    let events = fs::read(dir.join("events.csv")).unwrap();
    fs::write(dir.join("later.csv"), LATER).unwrap();
    for words in [
        &["eval", "--checkpoint", "run", "--scores", "events.csv"][..],
        &["embed", "--checkpoint", "run", "--nodes", "3", "--out", "events.csv"],
        &["predict", "--checkpoint", "run", "--input", "later.csv", "--out", "./later.csv"],
        &["predict", "--checkpoint", "run", "--input", "later.csv", "--out", "events.csv"],
        &["eval", "--checkpoint", "run/checkpoint", "--scores", "events.csv"],
        &["train", "events.csv", "--accesses", "./events.csv"],
    ] {
        refused(dir, words, 2, &["the command reads this file and would write over it; give another name"]);
    }
    // Here the data are those by default.
    let words = ["train", "--timeline", "events.csv"];
    refused(
        dir,
        &words,
        2,
        &["--timeline events.csv: the file is written as json; let its name end in .json"],
    );
    fs::copy(dir.join("events.csv"), dir.join("run/summary.csv")).unwrap();
    done(dir, &["eval", "--checkpoint", "run", "--scores", "run/summary.csv"]);
    assert_eq!(
        (fs::read(dir.join("events.csv")).unwrap(), text(&dir.join("later.csv"))),
        (events, LATER.into())
    );
}
