//! Ranks that train several batches at the same time: epoch and memory parallelism (DistTGL).
use crate::support::{
    program::{done, json, refused},
    ranks::{STATE, accessed_on, apart, check_log, frozen, of_model, tensors, train},
    trainings::small,
};
use proptest::{
    prelude::*,
    test_runner::{Config as Cases, FileFailurePersistence},
};
use std::collections::BTreeMap;
use tgnn::{error::ErrorKind, runtime::Device};
use tgnn_data::{Events, SynthOptions, synth};
use tgnn_training::{
    model::{ModelName, StaticConfig, StaticMode},
    plan::{Access, access_log},
    task::{self, Checkpoint, Config, Protocol, Scores, TaskName},
};

/// Ranks that share a batch, groups that share a copy of the memory, and copies.
const PARALLEL: [[usize; 3]; 11] = [
    [1, 2, 1],
    [1, 1, 2],
    [1, 3, 1],
    [1, 1, 3],
    [2, 2, 1],
    [2, 1, 2],
    [1, 2, 2],
    [2, 2, 2],
    [3, 1, 2],
    [1, 8, 1],
    [1, 1, 8],
];

fn named([i, j, k]: [usize; 3]) -> String {
    format!("disttgl:{i}x{j}x{k}")
}

/// The state of the nodes, by the names of the tensors.
type State = BTreeMap<String, Vec<u8>>;
/// The last epoch of each pass, with the mean loss.
type Losses = Vec<(usize, f64)>;

/// Returns the state of the nodes after `epochs` epochs, and the mean loss of each pass.
fn trained(ranks: usize, config: &Config, events: &Events) -> (State, Losses) {
    let dir = tempfile::tempdir().unwrap();
    let summary = train(ranks, config, events, Some(dir.path()), false).unwrap();
    let losses: Vec<(usize, f64)> = summary.epochs.iter().map(|e| (e.epoch, e.train_loss)).collect();
    let last = losses.last().unwrap().0;
    let state = tensors(dir.path(), last).into_iter().filter(|(name, _)| STATE.contains(&name.as_str()));
    (state.collect(), losses)
}

#[test]
fn with_frozen_weights_turns_leave_the_memory_of_one_rank_and_train_its_epochs() {
    let events = small(700);
    for model in [ModelName::Tgn, ModelName::Jodie, ModelName::Apan, ModelName::DyRep] {
        let (_, losses) = trained(1, &frozen(model, "sequential", 16), &events);
        for parallel in PARALLEL {
            let [i, j, k] = parallel;
            if i * j * k > 4 && model != ModelName::Jodie {
                continue;
            }
            let what = format!("{model:?}, {}", named(parallel));
            let (state, passes) = trained(i * j * k, &frozen(model, &named(parallel), 2 * j * k), &events);
            let (want, _) = trained(1, &frozen(model, "sequential", 1), &events);
            assert_eq!(state.len(), want.len(), "{what}");
            let differ: Vec<&String> = want.keys().filter(|name| want[*name] != state[*name]).collect();
            assert!(differ.is_empty(), "{what}: {differ:?} differ");
            let ends: Vec<usize> = (1..=2 * k).map(|pass| pass * j).collect();
            assert_eq!(passes.iter().map(|pass| pass.0).collect::<Vec<_>>(), ends, "{what}");
            // Copies that begin in the middle of the stream know nothing of what came before. Once all have
            // begun anew, a pass has the losses of as many epochs of one rank.
            let differs = |pass: usize| {
                let of_epochs = &losses[pass * j..(pass + 1) * j];
                let mean = of_epochs.iter().map(|loss| loss.1).sum::<f64>() / j as f64;
                (passes[pass].1 / mean - 1.0).abs() > 1e-5
            };
            assert_eq!(differs(0), k > 1, "{what}: {passes:?}, with one rank {losses:?}");
            let complete = (k - 1..2 * k).find(|&pass| differs(pass));
            assert_eq!(complete, None, "{what}: {passes:?}, with one rank {losses:?}");
        }
    }
}

/// See [`accessed_on`].
fn accessed(ranks: [usize; 3], config: &Config, events: &Events) -> (Vec<Access>, usize, usize) {
    accessed_on((ranks.iter().product(), ranks[2]), &|_| Device::cpu(1), config, events)
}

/// Products of up to eight ranks.
fn parallels() -> impl Strategy<Value = [usize; 3]> {
    (1usize..9, 1usize..9, 1usize..9)
        .prop_map(|(i, j, k)| {
            let j = j.min(8 / i);
            [i, j, k.min(8 / (i * j))]
        })
        .boxed()
}

proptest! {
    #![proptest_config(Cases {
        cases: 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/turns.txt"))),
        ..Cases::default()
    })]
    #[test]
    fn whatever_the_sizes_memory_is_that_of_one_rank_and_accesses_are_in_the_order_of_the_paper(
        parallel in parallels(), batch in 20usize..200, events in 60usize..500,
        model in prop_oneof![Just(ModelName::Tgn), Just(ModelName::Jodie), Just(ModelName::Apan)],
    ) {
        let [i, j, k] = parallel;
        let (events, what) = (small(events), format!("{model:?}, {parallel:?}"));
        let of = |plan: &str, epochs| Config { batch, evaluate: false, ..frozen(model, plan, epochs) };
        let plan = of(&named(parallel), j * k);
        let (state, _) = trained(i * j * k, &plan, &events);
        let (want, _) = trained(1, &of("sequential", 1), &events);
        prop_assert!(state == want, "{}", what);
        let (log, batches, traversed) = accessed(parallel, &plan, &events);
        check_log(&log, parallel, batches, &what);
        let (_, _, of_one) = accessed([1; 3], &of("sequential", 1), &events);
        prop_assert_eq!(traversed, j * k * of_one, "{}", what);
    }
}

/// A stream like GDELT: events among nodes of one kind, each with 6 of 56 classes.
fn like_gdelt(events: usize) -> Events {
    let like = SynthOptions::like("gdelt").unwrap();
    synth(&SynthOptions { events, sources: 70, edge_features: 4, node_features: 8, ..like }).unwrap()
}

#[test]
fn reciprocal_ranks_and_classes_of_edges_are_scored_as_by_one_rank() {
    let (links, edges) = (small(700), like_gdelt(700));
    let classes = edges.classes.as_ref().unwrap();
    assert!(classes.count() == 56 && (0..700).any(|event| classes.get(event).len() == 6));
    for (events, task) in [(&links, TaskName::Link), (&edges, TaskName::Edge)] {
        let scores = |ranks, plan: &str| {
            let protocol = if task == TaskName::Link { Protocol::Disttgl } else { Protocol::Dyglib };
            // After two epochs, the memory of two copies is complete.
            let config = Config { task, protocol, ..frozen(ModelName::Tgn, plan, 2) };
            let summary = train(ranks, &config, events, None, false).unwrap();
            [summary.epochs[1].val.unwrap(), summary.test_by_memory.unwrap().replayed.unwrap().transductive]
        };
        let one = scores(1, "sequential");
        for (ranks, plan) in [(2, "disttgl:1x1x2"), (4, "disttgl:2x1x2"), (3, "disttgl:3x1x1")] {
            for (a, b) in one.iter().zip(scores(ranks, plan)) {
                let figures = |s: &Scores| if task == TaskName::Link { s.mrr } else { s.f1 };
                let [a, b] = [a, &b].map(|s| figures(s).unwrap());
                assert!((a - b).abs() < 1e-3, "{task:?}, {plan}: {b} instead of {a}");
            }
        }
    }
    // With some training, memory copies learn the classes better than guesses of the frequent ones.
    let mut config =
        Config { task: TaskName::Edge, learning_rate: 5e-3, ..of_model(ModelName::Tgn, "disttgl:1x1x2", 20) };
    config.classify.positive_weight = 3.0;
    let summary = train(2, &config, &edges, None, false).unwrap();
    let f1 = |at: usize| summary.epochs[at].val.unwrap().f1.unwrap();
    assert!(f1(9) > 0.25 && f1(9) > f1(0) + 0.02, "{:?}", summary.epochs);
}

#[test]
fn the_program_writes_the_log_of_accesses() {
    let dir = tempfile::tempdir().unwrap();
    let log = |more: &[&str]| {
        let common = ["train", "--epochs", "1", "--max-batches", "3", "--no-eval", "--accesses", "log.csv"];
        done(dir.path(), &[&common[..], more].concat());
        let text = std::fs::read_to_string(dir.path().join("log.csv")).unwrap();
        let order = |line: &str| line.split(',').take(5).collect::<Vec<_>>().join(",");
        text.lines().map(order).collect::<Vec<_>>()
    };
    let turns = log(&["--ranks", "2", "--plan", "disttgl:1x2x1"]);
    let want =
        ["copy,step,access,rank,batch", "0,0,R,0,0", "0,0,W,0,0", "0,1,R,0,0", "0,1,R,1,1", "0,1,W,1,1"];
    assert_eq!(turns[..6], want);
    assert_eq!(turns.len(), 1 + 3 * (2 + 1), "{turns:?}");
    // A single rank, and ranks that share each batch.
    assert_eq!(log(&[])[1..], ["0,0,R,0,0", "0,0,W,0,0", "0,1,R,0,1", "0,1,W,0,1", "0,2,R,0,2", "0,2,W,0,2"]);
    assert_eq!(log(&["--ranks", "2"]).len(), 1 + 3 * 4);
    let wrong = |args: &[&str], said: &str| refused(dir.path(), &[&["train"], args].concat(), 2, &[said]);
    wrong(&["--model", "tgat", "--accesses", "log.csv"], "the model tgat has no node memory");
    wrong(&["--accesses", "nowhere/log.csv"], "there is no folder nowhere");
    assert_eq!(access_log(Vec::new()).lines().count(), 1);
}

#[test]
fn ranks_that_do_not_fit_and_tasks_without_negatives_are_refused() {
    let events = small(700);
    let refused = |ranks, config: &Config, said: &str| {
        let e = train(ranks, config, &events, None, false).unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    };
    let of = |plan: &str| of_model(ModelName::Jodie, plan, 1);
    refused(3, &of("disttgl:1x2x1"), "1x2x1 is 2 ranks, and there are 3; give I x J x K = 3: 3x1x1, 1x1x3");
    refused(1, &of("disttgl:2x1x1"), "2x1x1 is 2 ranks, and there are 1");
    refused(2, &of("disttgl:0x2x1"), "`0x2x1` is not IxJxK");
    refused(2, &of("disttgl:2x1"), "`2x1` is not IxJxK");
    let dir = tempfile::tempdir().unwrap();
    let plan = |memory: &str, parallel: &str| {
        let path = dir.path().join("mine.toml");
        let ranks = format!("[ranks]\nmemory = \"{memory}\"\n[ranks.parallel]\n{parallel}\n");
        std::fs::write(&path, format!("name = \"mine\"\n{ranks}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    refused(2, &of(&plan("partitioned", "epoch = 2")), "the memory of a copy is not replicated");
    refused(2, &of(&plan("replicated", "memory = 65")), "ranks.parallel.memory is 65; give 1 to 64");
    refused(3, &of(&plan("replicated", "epoch = 2")), "2 x 1 do not divide 3 ranks");
    let nodes = Config { task: TaskName::Node, ..of("disttgl:1x2x1") };
    refused(2, &nodes, "trains 2 times in a row on the same events, with other negatives");
    // Chunks move the place where a copy goes on; groups that share one copy begin anew in every pass.
    let chunked = |plan: &str| Config { chunks: 4, ..of(plan) };
    refused(2, &chunked("disttgl:1x1x2"), "chunks is 4, and plan disttgl:1x1x2 has 2 memory copies");
    refused(4, &chunked("pipetgl:k=2"), "give a plan with one memory copy");
    refused(2, &Config { task: TaskName::Node, ..chunked("disttgl:1x1x2") }, "and chunks move that place");
    train(2, &chunked("disttgl:1x2x1"), &events, None, false).unwrap();
    // The ranks that the other two leave share batches.
    let summary = train(4, &of(&plan("replicated", "epoch = 2")), &events, None, false).unwrap();
    assert_eq!(summary.ranks.unwrap().parallel.to_string(), "2x2x1");
}

#[test]
fn static_memory_is_learned_before_or_along_with_the_model() {
    let events = small(700);
    let rows = |ranks, plan: &str, mode| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = of_model(ModelName::Jodie, plan, 1);
        (config.static_memory.mode, config.static_memory.width) = (mode, 6);
        (config.static_memory.epochs, config.static_memory.batch) = (3, 150);
        let summary = train(ranks, &config, &events, Some(dir.path()), false).unwrap();
        let all = tensors(dir.path(), summary.epochs[0].epoch);
        all.into_iter().find(|(name, _)| name == StaticConfig::ROWS).unwrap().1
    };
    // Before: in the same epochs, of batches that all ranks share, whatever the plan.
    let want = rows(1, "sequential", StaticMode::Pretrained);
    assert!(want.iter().any(|&byte| byte != 0));
    for (ranks, plan) in [(2, "auto"), (3, "depcache"), (2, "disttgl:1x1x2"), (4, "disttgl:1x2x2")] {
        let off = apart(&want, &rows(ranks, plan, StaticMode::Pretrained));
        assert!(off < 1e-3, "{plan}: {off}");
    }
    // Along with the model.
    let want = rows(1, "sequential", StaticMode::Trained);
    assert!(apart(&want, &rows(2, "auto", StaticMode::Trained)) < 1e-3);
    let in_turns = rows(2, "disttgl:1x1x2", StaticMode::Trained);
    assert!(apart(&want, &in_turns) > 1e-3, "two batches a step learn as one");
}

#[test]
fn copies_that_do_not_fit_are_refused_before_anything_starts() {
    let kib = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: f64 = kib
        .lines()
        .find(|l| l.starts_with("MemAvailable"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    // Four of these copies fit, eight do not.
    let width = 4096;
    let nodes = (kib * 1024.0 / 5.0 / (8 * width) as f64) as usize;
    let events = synth(&SynthOptions { events: 300, sources: nodes, ..SynthOptions::default() }).unwrap();
    let mut config = of_model(ModelName::Jodie, "disttgl:1x1x8", 1);
    config.jodie.memory = width;
    let e = train(8, &config, &events, None, false).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfMemory);
    let said = "8 copies of node memory and mailbox, one for each rank of this computer, need ";
    assert!(e.to_string().contains(said) && e.to_string().contains("take fewer ranks a computer"), "{e}");
}

#[test]
fn a_run_learns_with_turns_and_is_resumed_with_others() {
    let (events, dir) = (small(700), tempfile::tempdir().unwrap());
    let of = |plan: &str, epochs| {
        let mut config = of_model(ModelName::Tgn, plan, epochs);
        config.optimizer.base_batch = config.batch;
        config
    };
    let first = train(4, &of("disttgl:1x2x2", 8), &events, Some(dir.path()), false).unwrap();
    assert_eq!(first.epochs.iter().map(|e| e.epoch).collect::<Vec<_>>(), [2, 4, 6, 8]);
    assert!(first.epochs[3].train_loss < first.epochs[0].train_loss, "{:?}", first.epochs);
    // Interrupted or not, copies go on where they are.
    let run = |epochs: &[usize]| {
        let dir = tempfile::tempdir().unwrap();
        for (nth, &epochs) in epochs.iter().enumerate() {
            train(4, &of("disttgl:1x2x2", epochs), &events, Some(dir.path()), nth > 0).unwrap();
        }
        let copies = std::fs::read_dir(dir.path().join("checkpoint")).unwrap().flatten();
        let copies = copies.filter(|file| file.file_name().to_str().unwrap().starts_with("copy-1-")).count();
        (tensors(dir.path(), *epochs.last().unwrap()), copies)
    };
    let whole = run(&[12]);
    assert!(whole == run(&[4, 12]) && whole == run(&[2, 6, 12]) && whole.1 == 1);
    // One rank can use the model.
    let (checkpoint, cpu) = (Checkpoint::at(dir.path()), Device::cpu(1).unwrap());
    let config = checkpoint.manifest().unwrap().config;
    assert_eq!(config.plan, "disttgl:1x2x2");
    let again = task::evaluate(&checkpoint, &config, &events, &cpu, "", false, &mut ()).unwrap();
    let [ap, want] = [again, first].map(|summary| summary.test.unwrap().transductive.ap.unwrap());
    assert!((ap - want).abs() < 1e-4, "{ap} instead of {want}");
    let more = train(2, &of("disttgl:1x1x2", 12), &events, Some(dir.path()), true).unwrap();
    let epochs = more.epochs.iter().map(|e| e.epoch).collect::<Vec<_>>();
    assert_eq!(epochs, [2, 4, 6, 8, 9, 10, 11, 12]);
    let last = train(3, &of("disttgl:3x1x1", 13), &events, Some(dir.path()), true).unwrap();
    assert_eq!(last.epochs.last().unwrap().epoch, 13);
    // The number of epochs is rounded up to whole turns.
    let up = train(2, &of("disttgl:1x2x1", 1), &events, None, false).unwrap();
    assert_eq!(up.epochs.last().unwrap().epoch, 2);
}

#[test]
fn epochs_that_are_rounded_up_or_too_few_are_said_with_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let told = |ranks: &str, plan: &str, epochs: &str| {
        let quick = ["train", "--max-batches", "2", "--no-eval", "--model", "jodie", "--set", "settle=false"];
        done(dir.path(), &[&quick[..], &["--ranks", ranks, "--plan", plan, "--epochs", epochs]].concat()).out
    };
    let text = told("4", "disttgl:1x4x1", "5");
    assert!(text.contains(" 8 epochs, ") && text.contains("epoch   8 "), "{text}");
    let note =
        "note      8 epochs instead of 5: with plan disttgl:1x4x1, ranks train 4 epochs at the same time";
    assert!(text.contains(note), "{text}");
    // A copy that begins in the middle of the stream does not know all of it when it is at its end.
    let text = told("2", "disttgl:1x1x2", "1");
    assert!(
        text.contains("note      plan disttgl:1x1x2: memory is complete after 2 epochs, and there is 1"),
        "{text}"
    );
    // Copies of another number do not know what those of the run have seen.
    let run = |ranks: &str, plan: &str, more: &[&str]| {
        let quick = ["train", "--max-batches", "2", "--no-eval", "--model", "jodie", "--out", "run"];
        let args = [&quick[..], &["--set", "settle=false", "--ranks", ranks, "--plan", plan], more].concat();
        done(dir.path(), &args).out
    };
    run("2", "disttgl:1x1x2", &["--epochs", "2"]);
    let text = run("2", "disttgl:1x1x2", &["--epochs", "3", "--resume"]);
    assert!(!text.contains("begin empty"), "{text}");
    let text = run("3", "disttgl:1x1x3", &["--epochs", "4", "--resume"]);
    let said = "note      3 memory copies go on with a run that had 2: all but the first begin empty, and memory is \
                complete after epoch 6\n";
    assert!(text.contains(said), "{text}");
    // One copy begins every epoch anew.
    let text = run("3", "auto", &["--epochs", "5", "--resume"]);
    assert!(!text.contains("begin empty"), "{text}");
    // What is advised counts epochs, too.
    let quick = ["train", "--max-batches", "2", "--model", "jodie", "--set", "settle=false", "--epochs", "2"];
    let text = done(dir.path(), &[&quick[..], &["--ranks", "2", "--plan", "disttgl:1x2x1"]].concat()).out;
    assert!(text.contains("more epochs, since the last ones were the best: --epochs 6"), "{text}");
    for (plan, epochs) in
        [("disttgl:1x2x1", "2"), ("disttgl:2x1x1", "1"), ("disttgl:1x1x2", "3"), ("sven", "1")]
    {
        let text = told("2", plan, epochs);
        assert!(!text.contains("instead of") && !text.contains("complete after"), "{text}");
    }
}

#[test]
fn the_planner_says_what_it_chooses_and_why() {
    let dir = tempfile::TempDir::new().unwrap();
    let explained = |args: &[&str]| done(dir.path(), &[&["plan", "explain", "disttgl"], args].concat()).out;
    let text = explained(&["--ranks", "4", "--svg", "captured.svg"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("plan disttgl:1x1x4, batches of 200"), "{text}");
    assert!(lines[1].contains("i = 1") && lines[2].contains("j = 1") && lines[3].contains("k = 4"), "{text}");
    assert!(text.contains("batches of 3200") && text.contains(" nodes"), "{text}");
    let svg = std::fs::read_to_string(dir.path().join("captured.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 6, "{svg}");
    assert!(
        lines[3].contains(
            "k = 4: the ranks that are left; each keeps the memory it trains with in any case, 8 MB"
        ),
        "{text}"
    );
    let busy = explained(&["--ranks", "4", "--lost", "1", "--lost-by-busiest", "0.02"]);
    assert!(
        busy.contains("i = 1: batches of 200 lose 0.0 %")
            && busy.contains("the busiest hundredth of the nodes loses "),
        "{busy}"
    );
    // All events may be lost: the ranks of a computer share a batch.
    let numbers = json(&explained(&["--ranks", "16", "--machine", "t4", "--lost", "1", "--json"]));
    assert_eq!((&numbers["plan"], &numbers["batch"]), (&"disttgl:8x1x2".into(), &1600.into()), "{numbers}");
    let captured: Vec<f64> =
        numbers["captured"].as_array().unwrap().iter().map(|c| c["fraction"].as_f64().unwrap()).collect();
    assert!(captured[0] == 1.0 && captured.is_sorted_by(|a, b| a > b), "{captured:?}");
    let refused = |args: &[&str], said: &str| {
        refused(dir.path(), &[&["plan", "explain"], args].concat(), 2, &[said]);
    };
    refused(&["sven", "--ranks", "2"], "plan sven leaves nothing to a planner; give disttgl");
    refused(&["disttgl", "--ranks", "0"], "0 ranks may lose 0.1 of the events");
    refused(&["disttgl", "--ranks", "2", "--lost", "2"], "a fraction from 0 to 1");
    refused(&["disttgl", "--ranks", "2", "--lost-by-busiest", "-1"], "2 ranks may lose -1 of the events");
    refused(&["disttgl", "--ranks", "2", "--batch", "0"], "--batch 0");
    refused(&["disttgl", "--ranks", "2", "--model", "t-gcn"], "t-gcn is a model of snapshots");
    refused(&["disttgl", "--ranks", "33", "--machine", "t4"], "machine t4 has 32 devices for 33 ranks");
    // Training takes its choice, and keeps it in its configuration; the run is evaluated by any number of
    // ranks.
    let trained = done(
        dir.path(),
        &[
            "train",
            "--plan",
            "disttgl",
            "--ranks",
            "2",
            "--epochs",
            "2",
            "--max-batches",
            "3",
            "--out",
            "run",
        ],
    );
    assert!(trained.err.contains("i = 1: batches of 200") || trained.out.contains("i = 1: batches of 200"));
    let config = std::fs::read_to_string(dir.path().join("run/config.toml")).unwrap();
    assert!(config.contains("plan = \"disttgl:1x1x2\""), "{config}");
    done(dir.path(), &["eval", "--checkpoint", "run"]);
    done(dir.path(), &["eval", "--checkpoint", "run", "--ranks", "3"]);
}
