//! Events as people have them, from the command line: names, dates, odd headers, many kinds of files.
use crate::support::{
    paths::root,
    program::{done, program, refused},
};
use std::{fmt::Write, fs, path::Path};

/// Returns 60 rows of `line(user, page, seconds)`.
fn rows(line: impl Fn(usize, usize, usize) -> String) -> String {
    (0..60).fold(String::new(), |mut text, i| {
        let (user, page) = (i * 7 % 6, (i * 7 + i % 2) % 6);
        let _ = writeln!(text, "{}", line(user, page, 60 * i));
        text
    })
}

/// Returns a tar archive of ten days with six edges each, without times.
fn days() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for day in 1..=10 {
        let text = (0..6).fold("# FromNodeId\tToNodeId\n".to_owned(), |text, i| {
            text + &format!("{i}\t{}\n", (i * day) % 6)
        });
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("as/as199711{day:02}.txt"), text.as_bytes()).unwrap();
    }
    zstd::encode_all(&archive.into_inner().unwrap()[..], 1).unwrap()
}

/// Writes the files; returns each with the flags that it needs.
fn files(dir: &Path) -> Vec<(String, Vec<&'static str>)> {
    let clock = |s: usize| format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    let texts = [
        (
            "strings.csv",
            "user,page,when\n".to_owned() + &rows(|u, p, s| format!("u{u},p{p},2023-11-14T{}", clock(s))),
        ),
        (
            "flights.csv",
            "origin,dest,time_hour,carrier\n".to_owned()
                + &rows(|u, p, s| format!("A{u},B{p},2013-01-01 {},C{}", clock(s), u % 2)),
        ),
        (
            "movies.csv",
            "user,movie,timestamp,weight\n".to_owned()
                + &rows(|u, p, s| format!("{u},{p},{},{}", s + 1_200_000_000, p % 5)),
        ),
        (
            "german.csv",
            "\u{feff}Kunde;\"Ware\";Datum\r\n".to_owned()
                + &rows(|u, p, s| format!("K{u};\"W;{p}\";14.11.2023 {}\r", clock(s))),
        ),
        (
            "millis.tsv",
            "sender\treceiver\tts_ms\n".to_owned()
                + &rows(|u, p, s| format!("u {u}\tp {p}\t{}", 1_700_000_000_000 + 1000 * s)),
        ),
        (
            "log.jsonl",
            rows(|u, p, s| {
                format!("{{\"from\": \"u{u}\", \"to\": {p}, \"time\": \"2023-11-14T{}+01:00\"}}", clock(s))
            }),
        ),
    ];
    for (name, text) in &texts {
        fs::write(dir.join(name), text).unwrap();
    }
    fs::write(dir.join("days.tar.zst"), days()).unwrap();
    fs::create_dir(dir.join("days")).unwrap();
    for day in 0..10 {
        let rows =
            |e: usize| format!("u{},p{},2023-11-{:02}T0{e}:00\n", (day + e) % 5, (day * e) % 3, day + 1);
        let text = "user,item,created_at\n".to_owned() + &(0..6).map(rows).collect::<String>();
        fs::write(dir.join(format!("days/{day}.csv")), text).unwrap();
    }
    let flags = |name: &str| match name {
        "flights.csv" => vec!["--columns", "one-hot=carrier"],
        "german.csv" => {
            vec!["--columns", "src=Kunde,dst=Ware,time=datum", "--time-format", "%d.%m.%Y %H:%M:%S"]
        }
        _ => vec![],
    };
    let own = texts.iter().map(|(name, _)| *name).chain(["days.tar.zst", "days"]);
    let own = own.map(|name| (dir.join(name).to_str().unwrap().to_owned(), flags(name)));
    let tables = ["pandas.parquet", "pandas.feather", "polars.parquet", "polars.arrows"];
    let tables = tables.map(|name| root().join("tests/golden/foreign/own").join(name));
    own.chain(tables.map(|path| (path.to_str().unwrap().to_owned(), vec![]))).collect()
}

#[test]
fn twelve_kinds_of_files_train_with_one_command_each() {
    let dir = tempfile::tempdir().unwrap();
    for (file, flags) in files(dir.path()) {
        let train = ["train", "--data", &file, "--epochs", "1", "--batch", "10"];
        let ran = done(dir.path(), &[&train[..], &flags].concat());
        assert!(ran.out.contains("60 events") && ran.out.contains("test (task link"), "{file}: {}", ran.out);
    }
}

#[test]
fn every_subcommand_takes_and_prints_the_ids_and_times_of_the_data() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let on = |args: &[&str]| done(dir.path(), args);
    on(&["train", "--data", "flights.csv", "--columns", "one-hot=carrier", "--epochs", "1", "--out", "run"]);
    let info = on(&["data", "info", "flights.csv"]).out;
    assert!(info.contains("2013-01-01T00:00:00 to 2013-01-01T00:59:00"), "{info}");
    on(&[
        "embed",
        "--checkpoint",
        "run",
        "--nodes",
        "A3,B0",
        "--times",
        "2013-01-01 01:00",
        "--out",
        "z.csv",
    ]);
    let z = fs::read_to_string(dir.path().join("z.csv")).unwrap();
    let ids: Vec<&str> = z.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["node", "A3", "B0"]);
    on(&["embed", "--checkpoint", "run", "--out", "all.csv"]);
    assert_eq!(fs::read_to_string(dir.path().join("all.csv")).unwrap().lines().count(), 10);
    let later = "carrier,time_hour,dest,origin\nC1,2013-01-01 01:00:00,B1,A0\nC9,2013-01-02,B1,new\n";
    fs::write(dir.path().join("later.csv"), later).unwrap();
    let scores = on(&["predict", "--checkpoint", "run", "--input", "later.csv", "--nodes", "20"]).out;
    let starts: Vec<&str> = scores.lines().map(|line| line.rsplitn(3, ',').last().unwrap()).collect();
    assert_eq!(starts, ["A0,B1,2013-01-01 01:00:00", "new,B1,2013-01-02"]);
    // A folder that `import` wrote has the ids and times, too.
    on(&["data", "import", "flights.csv", "--out", "flights"]);
    on(&["train", "--data", "flights", "--epochs", "1", "--out", "again"]);
    on(&["embed", "--checkpoint", "again", "--nodes", "A3", "--times", "2013-01-01T01:00", "--out", "y.npy"]);
    for (args, said) in [
        (
            &["embed", "--checkpoint", "run", "--nodes", "3"][..],
            "--nodes: `3` is not a node; give ids of the data set, such as `A",
        ),
        (
            &["embed", "--checkpoint", "run", "--times", "5"],
            "--times: `5` is not a time; write a date and time as in the data",
        ),
        (
            &[
                "embed",
                "--checkpoint",
                "run",
                "--nodes",
                "A1,A2",
                "--times",
                "2013-01-01,2013-01-02,2013-01-03",
            ],
            "--times: 2 nodes and 3 times",
        ),
    ] {
        refused(dir.path(), &[args, &["--out", "x.npy"]].concat(), 2, &[said]);
    }
}

#[test]
fn sparse_numbers_are_the_same_ids_in_embed_and_predict() {
    let dir = tempfile::tempdir().unwrap();
    let text = rows(|u, p, s| format!("{} {} {}", 1000 * u + 7, 1000 * p + 7, 500 + s));
    fs::write(dir.path().join("sparse.txt"), text).unwrap();
    fs::write(dir.path().join("later.txt"), "1007 2007 9000\n").unwrap();
    done(dir.path(), &["train", "--data", "sparse.txt", "--epochs", "1", "--out", "run"]);
    let scores = done(dir.path(), &["predict", "--checkpoint", "run", "--input", "later.txt"]).out;
    assert!(scores.starts_with("1007,2007,9000,"), "{scores}");
    done(
        dir.path(),
        &["embed", "--checkpoint", "run", "--nodes", "1007", "--times", "9000", "--out", "z.npy"],
    );
    let said = "`3` is not a node; give ids of the data set, such as `7`";
    refused(dir.path(), &["embed", "--checkpoint", "run", "--nodes", "3", "--out", "z.npy"], 2, &[said]);
}

#[test]
fn the_last_of_equal_flags_counts() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let args = ["train", "--data", "wikipedia", "--epochs", "9", "--data", "strings.csv", "--epochs", "1"];
    let ran = done(dir.path(), &args);
    assert!(ran.out.contains("60 events") && ran.out.contains("1 epoch"), "{}", ran.out);
}

/// Runs a call with `bytes` on standard input.
fn piped(dir: &Path, words: &[&str], bytes: &[u8]) -> (i32, String, String) {
    use std::{io::Write as _, process::Command, process::Stdio};
    let mut child = Command::new(program())
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn pipes_are_read_like_files_as_data_and_as_every_table_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = "user,page,time\n".to_owned() + &rows(|u, p, s| format!("u{u},p{p},{}", 1_700_000_000 + s));
    fs::write(dir.join("stdin.csv"), &text).unwrap();
    let parquet = fs::read(root().join("tests/golden/foreign/own/pandas.parquet")).unwrap();
    fs::write(dir.join("stdin.parquet"), &parquet).unwrap();
    let compressed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (file, bytes) in
        [("stdin.csv", text.as_bytes()), ("stdin.csv", &compressed), ("stdin.parquet", &parquet)]
    {
        let want = done(dir, &["data", "info", file]).out;
        for name in ["-", "/dev/stdin"] {
            let (code, out, err) = piped(dir, &["data", "info", name], bytes);
            assert_eq!((code, out.as_str()), (0, want.as_str()), "{err}");
        }
    }
    for (flag, table, shown) in [
        ("--node-features", "id,age\nu1,3\np2,4\n", "node features"),
        (
            "--edge-features",
            &"x\n".to_owned().chars().chain("1\n".repeat(60).chars()).collect::<String>(),
            "edge features",
        ),
        ("--labels", "time,node,label\n1700000000,u1,a\n1700000060,u2,b\n", "label"),
    ] {
        let (code, out, err) =
            piped(dir, &["data", "info", "stdin.csv", flag, "/dev/stdin"], table.as_bytes());
        assert!(code == 0 && out.contains(shown), "{flag}: {err} {out}");
    }
    let (code, _, err) = piped(dir, &["data", "info", "-"], b"");
    assert_eq!(
        (code, err.as_str()),
        (3, "error: standard input: the file is empty; write one event per line: src,dst,time\n")
    );
    done(dir, &["train", "--data", "stdin.csv", "--epochs", "1", "--batch", "20", "--out", "run"]);
    let embed = ["embed", "--checkpoint", "run", "--out", "z.csv", "--nodes", "-"];
    let (code, _, err) = piped(dir, &embed, "\u{feff}u1\r\np2\r\n".as_bytes());
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_to_string(dir.join("z.csv")).unwrap().lines().count(), 3);
    // What was piped is gone.
    let train = ["train", "-", "--epochs", "1", "--batch", "20", "--out", "piped"];
    let (code, _, err) = piped(dir, &train, text.as_bytes());
    assert_eq!(code, 0, "{err}");
    for words in
        [&["eval", "--checkpoint", "piped"][..], &["embed", "--checkpoint", "piped", "--out", "y.csv"]]
    {
        let said = "the run read its data from standard input; say with --data where they are now";
        refused(dir, words, 2, &[said]);
        done(dir, &[words, &["--data", "stdin.csv"]].concat());
    }
}

#[test]
fn embeddings_are_written_as_the_name_ends_and_ids_with_commas_are_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let line = |i: usize| format!("\"Doe, J{}\",p{},{}\n", i % 3, i % 4, 1_700_000_000 + i);
    fs::write(dir.join("events.csv"), "user,page,time\n".to_owned() + &(0..60).map(line).collect::<String>())
        .unwrap();
    done(dir, &["train", "events.csv", "--epochs", "1", "--batch", "20", "--out", "run"]);
    let embed = ["embed", "--checkpoint", "run", "--out"];
    let nodes = ["--nodes", "\"Doe, J1\",p3"];
    done(dir, &[&embed[..], &["z.csv"], &nodes].concat());
    let z = fs::read_to_string(dir.join("z.csv")).unwrap();
    assert!(
        z.lines().nth(1).unwrap().starts_with("\"Doe, J1\",") && z.lines().nth(2).unwrap().starts_with("p3,")
    );
    done(dir, &[&embed[..], &["z.parquet"], &nodes].concat());
    assert!(fs::read(dir.join("z.parquet")).unwrap().starts_with(b"PAR1"));
    done(dir, &[&embed[..], &["z.npy"], &nodes].concat());
    assert!(fs::read(dir.join("z.npy")).unwrap().starts_with(b"\x93NUMPY"));
    for name in ["z.txt", "z", "z.CSV.gz"] {
        refused(dir, &[&embed[..], &[name]].concat(), 2, &["end in .npy, .csv or .parquet", name]);
    }
    let open = ["z.npy", "--nodes", "\"Doe, J1,p3"];
    refused(dir, &[&embed[..], &open].concat(), 2, &["a quote does not end; quote an id with a comma"]);
}
