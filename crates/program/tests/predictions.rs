//! Passes over ranks that are recorded, and what other machines would take for them.
use crate::support::{
    paths::root,
    program::{done, json, refused},
    ranks::of_model,
    trainings::small,
};
use tgnn::{
    autograd::MAX_LANES,
    runtime::{
        Device,
        comm::{DEADLINE, TrafficKind},
    },
};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    plan::{CostModel, Machine, Timeline, predict_ranks},
    task::{Config, EventTask, RankPass, RecordedRun, Task, on_local_ranks, record_passes},
};

/// More steps than any epoch here has.
const ALL: usize = 1_000;

/// Returns the bytes that each rank sends in an epoch, by its own counters.
fn counted_bytes(ranks: usize, config: &Config, events: &Events) -> Vec<u64> {
    let of_rank = |device: Device| {
        let ranks = device.ranks().unwrap().clone();
        let mut task = EventTask::new(config, events, device)?;
        task.train_epoch(0, &mut |_| {})?;
        let mut all = vec![0.0; ranks.size()];
        all[ranks.rank()] = TrafficKind::ALL.iter().map(|&kind| ranks.traffic().bytes(kind) as f32).sum();
        ranks.sum(&mut all)?;
        Ok(all.into_iter().map(|bytes| bytes as u64).collect())
    };
    on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), of_rank).unwrap()
}

#[test]
fn a_recording_holds_what_every_rank_sends_on_lanes_or_not() {
    let events = small(400);
    for (model, plan, ranks) in [
        (ModelName::Tgn, "sven", 3),
        (ModelName::Jodie, "depcache", 2),
        (ModelName::Apan, "depcomm", 4),
        (ModelName::Tgn, "sven-cached", 2),
        // Idle ranks leave nodes out. They still take part in every exchange, in the same order.
        (ModelName::Tgn, "pipetgl", 3),
    ] {
        let config = of_model(model, plan, 1);
        let want = counted_bytes(ranks, &config, &events);
        assert!(want.iter().all(|&bytes| bytes > 0), "{plan}: {want:?}");
        for on_lanes in [true, false] {
            let run = RecordedRun { ranks, threads: 1, passes: 1, steps: ALL, on_lanes };
            let recorded = record_passes(&config, &events, run).unwrap();
            assert_eq!((recorded.steps, recorded.events), (3, 280), "{plan}");
            let sent: Vec<u64> = recorded.passes[0].iter().map(|rank| rank.recording.sent_bytes()).collect();
            assert_eq!(sent, want, "{plan}, on lanes: {on_lanes}");
        }
    }
}

#[test]
fn the_costs_of_a_run_are_those_of_its_live_rows() {
    let events = small(400);
    let run = RecordedRun { ranks: 1, threads: 1, passes: 1, steps: ALL, on_lanes: true };
    let recorded = record_passes(&of_model(ModelName::Tgn, "sequential", 1), &events, run).unwrap();
    let spans = recorded.passes[0][0].timeline.spans();
    assert!(
        spans
            .iter()
            .all(|s| s.cost.bytes <= s.node_info.cost.bytes && s.cost.flops <= s.node_info.cost.flops)
    );
    // The last batch has 80 events instead of 100.
    let bytes = |step: usize| -> usize {
        spans.iter().filter(|s| s.step == step && s.node_info.op == "bce_loss").map(|s| s.cost.bytes).sum()
    };
    assert!(bytes(2) < bytes(1) && bytes(2) > 0, "{} {}", bytes(2), bytes(1));
}

/// Returns the steps and nodes that each lane runs, in order.
fn by_lane(timeline: &Timeline) -> [Vec<(usize, usize)>; MAX_LANES] {
    std::array::from_fn(|lane| {
        let spans = timeline.spans().iter().filter(|s| s.node_info.lane == lane);
        spans.map(|s| (s.step, s.node)).collect()
    })
}

#[test]
fn predicted_ranks_run_what_they_ran_and_a_slower_machine_takes_longer() {
    let events = small(400);
    let ranks = 3;
    let run = RecordedRun { ranks, threads: 1, passes: 1, steps: ALL, on_lanes: true };
    let recorded = record_passes(&of_model(ModelName::Tgn, "sven", 1), &events, run).unwrap();
    let recordings: Vec<_> = recorded.passes[0].iter().map(|rank| rank.recording.clone()).collect();
    let seconds = |costs: &CostModel, machine: &Machine| {
        let timelines = predict_ranks(&recorded.schedules, &recordings, costs, machine);
        for (predicted, RankPass { timeline, .. }) in timelines.iter().zip(&recorded.passes[0]) {
            assert_eq!(by_lane(predicted), by_lane(timeline));
        }
        timelines.iter().map(|t| t.usage().seconds).fold(0.0, f64::max)
    };
    let fast = Machine::named("h100").unwrap();
    let mut slow_ops = fast.clone();
    slow_ops.device.seconds_per_op *= 100.0;
    let mut slow_links = fast.clone();
    slow_links.node.bytes_per_second /= 1e6;
    let [fast, slow_ops, slow_links] = [fast, slow_ops, slow_links].map(|m| seconds(&m.cost_model(), &m));
    assert!(slow_ops > 50.0 * fast && slow_links > 2.0 * fast, "{fast} {slow_ops} {slow_links}");
}

/// A rank that has no batch must keep nothing waiting but what its own next batch reads.
#[test]
fn two_ranks_of_a_pipeline_are_predicted_to_train_at_the_same_time() {
    let dir = tempfile::TempDir::new().unwrap();
    let common = ["plan", "simulate", "pipetgl", "--ranks", "2", "--scaling", "strong", "--set", "batch=600"];
    let machine = ["--max-batches", "16", "--machine", "h100", "--json"];
    let predicted = json(&done(dir.path(), &[&common[..], &machine].concat()).out);
    let speed_up = predicted["predictions"][0]["ranks"][1]["speed_up"].as_f64().unwrap();
    assert!(speed_up > 1.3 && speed_up <= 2.0, "{predicted}");
}

#[test]
fn memory_copies_are_predicted_for_each_number_of_ranks() {
    let dir = tempfile::TempDir::new().unwrap();
    let predicted = |plan: &str, more: &[&str]| {
        let common = ["plan", "simulate", plan, "--max-batches", "2", "--machine", "t4", "--json"];
        json(&done(dir.path(), &[&common[..], more].concat()).out)["predictions"][0]["ranks"].clone()
    };
    let of = |rows: &serde_json::Value, key: &str| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row[key].to_string()).collect()
    };
    // The planner chooses; a rank has a batch of its own, and only gradients travel.
    let planned = predicted("disttgl", &["--ranks", "4"]);
    assert_eq!(of(&planned, "plan"), ["\"disttgl:1x1x1\"", "\"disttgl:1x1x2\"", "\"disttgl:1x1x4\""]);
    assert_eq!(of(&planned, "batch"), ["200"; 3]);
    let speed_up = planned[2]["speed_up"].as_f64().unwrap();
    assert!(speed_up > 2.0 && speed_up <= 4.0, "{planned}");
    // Fewer ranks keep the ranks of a batch first.
    let given = predicted("disttgl:2x1x2", &["--ranks", "4", "--scaling", "weak"]);
    assert_eq!(of(&given, "plan"), ["\"disttgl:1x1x1\"", "\"disttgl:2x1x1\"", "\"disttgl:2x1x2\""]);
    assert_eq!(of(&given, "batch"), ["200", "400", "400"]);
    let wrong = ["plan", "simulate", "disttgl:2x1x2", "--ranks", "8"];
    refused(dir.path(), &wrong, 4, &["2x1x2 is 4 ranks, and there are 8; give I x J x K = 8"]);
}

#[test]
fn the_program_predicts_ranks_and_says_first_how_far_it_is_off() {
    let dir = tempfile::TempDir::new().unwrap();
    let ran = |args: &[&str]| {
        done(dir.path(), &[&["plan", "simulate", "sven", "--max-batches", "2"], args].concat()).out
    };
    let table = ran(&["--ranks", "3"]);
    let first = table.lines().next().unwrap();
    assert!(first.starts_with("the simulator, on ") && first.contains("off by"), "{table}");
    let rows = || table.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    assert_eq!(rows().collect::<Vec<usize>>(), [1, 2, 3], "{table}");
    let text = std::fs::read_to_string(root().join("crates/training/machines/h100.toml")).unwrap();
    std::fs::write(dir.path().join("mine.toml"), text.replace("\"h100\"", "\"mine\"")).unwrap();
    let weak = ["--ranks", "2", "--scaling", "weak", "--machine", "v100", "--machine", "mine.toml", "--json"];
    let predicted = json(&ran(&[&weak[..], &["--timeline", "t.json"]].concat()));
    for (at, name) in ["v100", "mine"].into_iter().enumerate() {
        let of_machine = &predicted["predictions"][at];
        assert_eq!(of_machine["machine"]["name"], name, "{predicted}");
        let rows = of_machine["ranks"].as_array().unwrap();
        assert!(rows[0]["sent_bytes"] == 0 && rows[0]["speed_up"] == 1.0, "{predicted}");
        assert!(rows[1]["batch"] == 400 && rows[1]["sent_bytes"].as_u64() > Some(0), "{predicted}");
    }
    let trace = json(&std::fs::read_to_string(dir.path().join("t.json")).unwrap());
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|e| e["pid"] == 1), "{trace}");
    // The staleness is that of the machine.
    let least =
        ["plan", "simulate", "mspipe", "--max-batches", "2", "--ranks", "1", "--machine", "a100", "--json"];
    let predicted = json(&done(dir.path(), &[&least[..], &["--model", "jodie"]].concat()).out);
    let plan = predicted["predictions"][0]["ranks"][0]["plan"].as_str().unwrap();
    assert!(plan.starts_with("mspipe:k="), "{predicted}");
    let minimal = "name = \"mine\"\n[staleness]\nmemory = \"minimal\"\n[stages.sample]\nlane = 2\n";
    std::fs::write(dir.path().join("minimal.toml"), minimal).unwrap();
    let wrong = ["plan", "simulate", "minimal.toml", "--ranks", "2"];
    refused(dir.path(), &wrong, 2, &["minimal.toml has its staleness found while training; give mspipe"]);
    let refused = |args: &[&str], code, said: &[&str]| {
        refused(dir.path(), &[&["plan", "simulate", "sven"], args].concat(), code, said);
    };
    refused(&["--ranks", "65", "--machine", "v100"], 2, &["machine v100 has 64 devices for 65 ranks"]);
    refused(
        &["--ranks", "2", "--machine", "v1"],
        2,
        &["there is no machine `v1`", "v100, v100-pytorch, t4, t4-pytorch, a100, a100-pytorch, rtx4090"],
    );
    refused(&["--ranks", "2", "--machine", "none.toml"], 10, &["none.toml", "cannot read"]);
    refused(&["--machine", "v100"], 2, &["--ranks"]);
    std::fs::write(dir.path().join("bad.toml"), "name = 3").unwrap();
    refused(&["--ranks", "2", "--machine", "bad.toml"], 2, &["bad.toml", "1:8"]);
    refused(&["--ranks", "2", "--model", "t-gcn"], 2, &["do not train over ranks yet"]);
}
