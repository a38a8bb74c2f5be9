//! Plans: which ones are legal, that a legal plan changes only when work runs, and that the stages'
//! dependencies (`NEEDS`) are those of the models.
use crate::support::{
    devices::{device, drawn as schedules},
    paths::root,
    program::{done, json, made, program, refused, small as small_words},
    ranks::plan_file,
    snapshots::{config as snapshot_config, turning},
    trainings::{every_model, small, small_config},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};
use tgnn::ops::write_memory::Combiner;
use tgnn::{
    autograd::{MAX_LANES, Order, Program, Stage, Staleness},
    error::ErrorKind,
    ops::Node,
    runtime::{comm::Ranks, philox::Key, *},
};
use tgnn_data::{Events, Features};
use tgnn_training::{
    model::{ModelName, TimeStart},
    plan::{Need, Plan, PlanStaleness, StagePlacement, Timeline},
    task::{Config, EventTask, SnapshotTask, Task, TaskName},
};

/// Whether `stage` may rely on `other`, of `back` steps before, having finished. A negative number is of
/// later steps.
fn follows(needs: &[Need], stage: Stage, other: Stage, back: isize) -> bool {
    let (mut seen, mut next) = (Vec::new(), vec![(stage, 0)]);
    while let Some(at) = next.pop() {
        // The steps of a stage run in order.
        if at.0 == other && (at.1 < back || at.1 == back && (back != 0 || !seen.is_empty())) {
            return true;
        }
        if seen.contains(&at) || at.1 > back.max(0) {
            continue;
        }
        seen.push(at);
        next.extend(needs.iter().filter(|n| n.stage == at.0).map(|n| (n.of, at.1 + n.back)));
        next.push((at.0, at.1 + 1));
    }
    false
}

/// A node and another one, of `back` steps before, that it must follow: one of them writes a value that the
/// other reads or writes.
struct Follows {
    node: usize,
    other: usize,
    back: isize,
}

/// Returns the steps and nodes of a few steps in the order of their accesses to memory: step by step, but
/// with what reads node memory, and before that prepares a step, and with what updates parameters, as many
/// steps earlier and later as the state is older.
fn in_order_of_accesses(program: &Program, Staleness { memory, weights }: Staleness) -> Vec<(usize, usize)> {
    let mut late: HashSet<Var> = HashSet::new();
    let of_step = |(node, (n, stage)): (usize, (&Node, Stage))| {
        let fetches = stage <= Stage::FetchMemory && !n.ins.iter().any(|v| late.contains(v));
        if !fetches {
            late.extend(n.outs.iter().copied());
        }
        let (lead, phase) = match stage {
            Stage::Step => (0, 2),
            _ if fetches => (memory + weights, 0),
            _ => (weights, 1),
        };
        (node, lead, if memory + weights > 0 { phase } else { 0 })
    };
    let nodes: Vec<_> = program.stages().enumerate().map(of_step).collect();
    let steps = 0..2 + memory + weights;
    let mut all: Vec<_> = steps
        .flat_map(|step| {
            nodes.iter().map(move |&(node, lead, phase)| {
                ((step as isize - lead as isize, phase, step, node), (step, node))
            })
        })
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(_, at)| at).collect()
}

/// Returns the dependencies between nodes within a few steps.
fn dependencies(program: &Program, staleness: Staleness) -> Vec<Follows> {
    let nodes: Vec<_> = program.stages().map(|(n, _)| n).collect();
    let outputs: HashSet<Var> = nodes.iter().flat_map(|n| n.outs.iter().copied()).collect();
    // Step, node, and whether it changes the value.
    type Touch = (usize, usize, bool);
    let mut touched: HashMap<(Var, usize), Vec<Touch>> = HashMap::new();
    let mut found = Vec::new();
    for (step, node) in in_order_of_accesses(program, staleness) {
        let n = nodes[node];
        let read = n.ins.iter().enumerate().map(|(i, &v)| (v, n.writes.contains(&i)));
        for (v, changes) in read.chain(n.outs.iter().map(|&v| (v, true))) {
            // An output of a step is another value in the next step; a stored value is the same.
            let known = touched.entry((v, if outputs.contains(&v) { step } else { 0 })).or_default();
            let before = known.iter().filter(|k| (k.2 || changes) && (k.0, k.1) != (step, node));
            let back = |of: usize| step as isize - of as isize;
            found.extend(before.map(|k| Follows { node, other: k.1, back: back(k.0) }));
            known.push((step, node, changes));
        }
    }
    found
}

/// Checks that the stage of every node depends on the stages of the nodes that it must follow.
fn needs_hold(task: &dyn Task, what: &str) {
    let (program, needs) = (task.core().step(), task.core().plan().needs());
    let nodes: Vec<_> = program.stages().collect();
    for Follows { node, other, back } in dependencies(program, task.core().plan().staleness()) {
        let [(n, stage), (before, other_stage)] = [nodes[node], nodes[other]];
        // Within a step, the nodes of a stage run in order.
        let (op, other) = (n.op.name(), before.op.name());
        let holds = other_stage == stage && back == 0 || follows(&needs, stage, other_stage, back);
        assert!(holds, "{what}: {op} ({stage}) must follow {other} ({other_stage}) of {back} steps before");
    }
}

pub fn rich() -> Events {
    let mut events = small(600);
    events.node_features = Some(Features::random(events.nodes, 5, 1));
    events
}

#[test]
fn the_dependencies_of_the_stages_are_those_of_every_model_and_task() {
    let events = rich();
    let cpu = Device::cpu(1).unwrap();
    // Features from other ranks, rows of memory in one part and in several.
    let [one, several] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let owners = plan_file(one.path(), "partitioned", "", "");
    let readers = plan_file(several.path(), "partitioned", "update = \"readers\"\nmicro_batches = 3", "");
    let older = tempfile::tempdir().unwrap();
    let older = plan_file(
        older.path(),
        "partitioned",
        "update = \"readers\"",
        "[staleness]\nmemory = 1\ngradients = 2",
    );
    let mut seen: BTreeMap<Stage, usize> = BTreeMap::new();
    for (name, config) in every_model(8) {
        for task in [TaskName::Link, TaskName::Node, TaskName::Edge] {
            for kept in [StoredAs::F32, StoredAs::Bf16] {
                let mut c = Config { task, features_as: kept, memory_as: kept, ..config.clone() };
                c.optimizer.clip_norm = if kept == StoredAs::F32 { 0.0 } else { 1.0 };
                // One rank of one: its ops that communicate are those of several.
                let alone = cpu.clone().over(Ranks::alone());
                for (device, plan) in [
                    (&alone, owners.as_str()),
                    (&alone, readers.as_str()),
                    (&cpu, "auto"),
                    (&cpu, "mspipe:k=2"),
                    (&alone, &older),
                    (&alone, "depcache"),
                    (&alone, "depcomm"),
                    (&alone, "sven"),
                    (&alone, "sven-cached"),
                ] {
                    let c = Config { plan: plan.into(), ..c.clone() };
                    let mean = [c.tgn.combiner, c.apan.combiner].contains(&Combiner::Mean);
                    let reads_older = plan == "mspipe:k=2" || plan == older;
                    // Not over ranks, or not without memory. APAN's readers update its rows, also if owners
                    // should.
                    if mean && device.ranks().is_some()
                        || reads_older && c.has_memory() == Some(false)
                        || c.model == ModelName::Apan && [owners.as_str(), "depcomm"].contains(&plan)
                    {
                        continue;
                    }
                    let task = EventTask::new(&c, &events, device.clone()).unwrap();
                    needs_hold(&task, name);
                    task.core().step().stages().for_each(|(_, stage)| *seen.entry(stage).or_default() += 1);
                }
            }
        }
    }
    assert_eq!(seen.len(), Stage::ALL.len(), "{seen:?}");
    for model in [ModelName::WdGcn, ModelName::TGcn, ModelName::EvolveGcnO, ModelName::EvolveGcnH] {
        let task = SnapshotTask::new(&snapshot_config(model, 8), &turning(24, 9, 3), cpu.clone()).unwrap();
        needs_hold(&task, model.name());
    }
}

#[test]
fn every_op_of_a_tgn_is_in_its_stage() {
    let half = StoredAs::Bf16;
    let c = Config { memory_as: half, features_as: half, ..small_config(ModelName::Tgn, 8) };
    let task = EventTask::new(&c, &rich(), Device::cpu(1).unwrap()).unwrap();
    let mut by_stage: BTreeMap<Stage, Vec<&str>> = BTreeMap::new();
    for (n, stage) in task.core().step().stages() {
        by_stage.entry(stage).or_default().push(n.op.name());
    }
    let ops = |stage| by_stage.get(&stage).unwrap_or(&Vec::new()).join(" ");
    assert!(
        ops(Stage::Sample).starts_with("next_batch draw_negatives roots sample_neighbors unique"),
        "{by_stage:?}"
    );
    assert_eq!(ops(Stage::FetchFeatures), "gather_rows gather_rows", "{by_stage:?}");
    // The tables of node memory and mails, and the features of the mails.
    assert_eq!(ops(Stage::FetchMemory), ["gather_rows"; 2].join(" "), "{by_stage:?}");
    assert_eq!(ops(Stage::UpdateMemory), "gru_memory", "{by_stage:?}");
    assert_eq!(ops(Stage::WriteMemory), "write_memory", "{by_stage:?}");
    assert_eq!(ops(Stage::Step), "adam", "{by_stage:?}");
    assert!(ops(Stage::Embed).contains("temporal_attention_grad"), "{by_stage:?}");
    let weight_grads = "bce_loss write_rows link_decoder_weight_grad linear_weight_grad head_weight_grad \
                        head_weight_grad linear_pair_weight_grad linear_weight_grad gru_memory_grad";
    assert_eq!(ops(Stage::WeightGrads), weight_grads, "{by_stage:?}");
}

/// Trains two epochs; returns the losses and the final state. If `traced`, also checks that no node began
/// before the nodes that it must follow had ended.
pub fn trained(c: &Config, events: &Events, device: &Device, traced: bool) -> (Vec<f64>, Vec<Vec<u8>>) {
    let mut task = EventTask::new(c, events, device.clone()).unwrap();
    if traced {
        task.core_mut().trace();
    }
    let losses = (0..2).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0).collect();
    let state = task.core().checkpoint_buffers();
    task.core.store.fetch(&state).unwrap();
    let state = state.into_iter().map(|id| task.core.store.raw(id).unwrap().to_vec()).collect();
    if !traced {
        return (losses, state);
    }
    let spans: HashMap<_, _> =
        task.core().timeline().spans().iter().map(|s| ((s.step, s.node), *s)).collect();
    let dependencies = dependencies(task.core().step(), task.core().plan().staleness());
    let steps = spans.keys().map(|k| k.0 + 1).max().unwrap();
    assert!(steps >= 4 && dependencies.len() > 100, "{steps} steps, {} dependencies", dependencies.len());
    let of_all_steps = (0..steps).flat_map(|step| dependencies.iter().map(move |d| (step, d)));
    for (step, d) in of_all_steps {
        let other = step.checked_add_signed(-d.back).filter(|&other| other < steps);
        let Some(other) = other else { continue };
        let (now, before) = (&spans[&(step, d.node)], &spans[&(other, d.other)]);
        assert!(before.end <= now.start, "{now:?} begins before the end of {before:?}, {}", c.plan);
    }
    (losses, state)
}

/// Draws random plans: each stage on any of one to four lanes, most of them with prefetch depth 0, as
/// otherwise hardly any plan would be legal.
fn drawn() -> impl Iterator<Item = Plan> {
    (0..400).map(|seed| {
        let key = Key::new(7, 7, [seed, 0]);
        let placement = |(i, stage): (usize, Stage)| {
            let draw = key.draw(i as u64);
            let prefetch_depth = if draw[1].is_multiple_of(4) { draw[2] as usize % 3 } else { 0 };
            (stage, StagePlacement { lane: 1 + draw[0] as usize % (1 + seed as usize % 4), prefetch_depth })
        };
        let stages = Stage::ALL.into_iter().enumerate().map(placement).collect();
        let (order, staleness) = (Order::Program, PlanStaleness::default());
        Plan { name: format!("drawn {seed}"), stages, order, staleness, groups: None, ranks: None }
    })
}

/// A plan with which values of the first lane have buffer depth 3, and those of the second lane 2.
fn uneven() -> Plan {
    let second = ["fetch_memory", "update_memory", "embed", "weight_grads", "write_memory", "step"];
    let second: String = second.iter().map(|stage| format!("[stages.{stage}]\nlane = 2\n")).collect();
    let prefetched =
        "[stages.sample]\nlane = 2\nprefetch_depth = 1\n[stages.fetch_features]\nprefetch_depth = 2\n";
    Plan::parse(&format!("name = \"uneven\"\n{prefetched}{second}")).unwrap()
}

/// Plans with three lanes, with four that leave out numbers, and with two of different buffer depths.
fn given() -> [Plan; 3] {
    let three = "[stages.sample]\nlane = 2\nprefetch_depth = 2\n\
                 [stages.fetch_features]\nlane = 3\nprefetch_depth = 1\n";
    let four = "[stages.sample]\nlane = 5\nprefetch_depth = 1\n\
                [stages.fetch_features]\nlane = 8\nprefetch_depth = 1\n\
                [stages.weight_grads]\nlane = 3\n[stages.write_memory]\nlane = 3\n";
    let plan = |name, stages| Plan::parse(&format!("name = \"{name}\"\n{stages}")).unwrap();
    [plan("three", three), plan("four", four), uneven()]
}

/// Returns the configuration of a TGN with short steps.
fn tgn() -> Config {
    let mut c = small_config(ModelName::Tgn, 8);
    (c.batch, c.max_batches, c.memory_as) = (40, 6, StoredAs::Bf16);
    c
}

/// Returns `c` with this plan, which is written to a file in `dir`.
fn by_plan(plan: &Plan, c: &Config, dir: &Path) -> Config {
    let file = dir.join(format!("{}.toml", plan.name));
    std::fs::write(&file, toml::to_string(plan).unwrap()).unwrap();
    Config { plan: file.to_str().unwrap().into(), ..c.clone() }
}

#[test]
fn legal_plans_leave_the_same_bits_and_keep_every_dependency_and_illegal_ones_name_the_broken_one() {
    let (events, c) = (rich(), tgn());
    let want = trained(&c, &events, &Device::cpu(1).unwrap(), true);
    let (dir, two) = (tempfile::tempdir().unwrap(), Device::cpu(2).unwrap());
    let (mut legal, mut illegal) = (0, 0);
    for plan in given().into_iter().chain(drawn()) {
        match plan.validate() {
            Ok(()) => {
                legal += 1;
                if legal > 40 {
                    continue;
                }
                assert!(trained(&by_plan(&plan, &c, dir.path()), &events, &two, true) == want, "{plan:?}");
            }
            Err(e) => {
                illegal += 1;
                assert_eq!(e.kind(), ErrorKind::Plan);
                let text = e.to_string();
                assert!(text.contains(".prefetch_depth is ") && text.contains("which it needs"), "{text}");
            }
        }
    }
    assert!(legal > 40 && illegal > 40, "{legal} legal, {illegal} illegal");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn legal_plans_leave_the_same_bits_on_several_streams_under_every_schedule() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let (events, c, dir) = (rich(), tgn(), tempfile::tempdir().unwrap());
    let c = Config { plan: "sequential".into(), max_batches: 4, ..c };
    let want = trained(&c, &events, &gpu, false);
    let several_lanes = |plan: &Plan| {
        let lanes: HashSet<usize> = plan.stages.values().map(|placement| placement.lane).collect();
        plan.validate().is_ok() && lanes.len() > 1
    };
    let plans: Vec<Plan> = given().into_iter().chain(drawn().filter(several_lanes)).take(9).collect();
    assert_eq!(plans.len(), 9);
    for (at, plan) in plans.iter().enumerate() {
        let c = by_plan(plan, &c, dir.path());
        // Either captured and replayed, or traced: launched one by one between events.
        for (variant, seed) in schedules(at, 1, 4) {
            on.schedule(seed + 4 * at as u64);
            let traced = variant % 2 == 1;
            assert!(
                trained(&c, &events, &gpu, traced) == want,
                "{plan:?}, traced: {traced}, seed {seed} of plan {at}"
            );
        }
    }
}

/// Returns the lanes of the ops of a task, from 1, by name.
fn lanes_of_ops(task: &dyn Task) -> BTreeMap<&'static str, Vec<usize>> {
    let mut lanes: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    task.core().step().node_infos(0).iter().for_each(|n| lanes.entry(n.op).or_default().push(1 + n.lane));
    lanes
}

#[test]
fn overlap_keeps_the_first_lane_for_the_longest_path_and_prepares_steps_on_a_lane_of_their_own() {
    // Shapes at which the times of ops differ as they do in training.
    let c = Config { plan: "overlap".into(), batch: 200, ..small_config(ModelName::Tgn, 100) };
    let lanes = lanes_of_ops(&EventTask::new(&c, &rich(), Device::cpu(1).unwrap()).unwrap());
    for (lane, ops) in [
        (1, &["gru_memory", "temporal_attention", "linear_pair_input_grad", "gru_memory_grad", "adam"][..]),
        (2, &["scatter_add_rows", "link_decoder_weight_grad"]),
        (3, &["next_batch", "sample_neighbors", "unique", "write_memory"]),
    ] {
        assert!(ops.iter().all(|op| lanes[op].iter().all(|&l| l == lane)), "{ops:?}: {lanes:?}");
    }
}

/// Trains every model with plan `overlap`, whose lanes have another order than the program, and `sequential`.
fn overlap_leaves_the_bits_of_sequential(device: &Device, traced: bool) {
    let events = rich();
    for (name, c) in every_model(8) {
        let trained = |plan: &str, traced| {
            let c = Config { plan: plan.into(), batch: 60, max_batches: 4, ..c.clone() };
            trained(&c, &events, device, traced)
        };
        assert!(trained("overlap", traced) == trained("sequential", false), "{name}");
    }
    for model in [ModelName::WdGcn, ModelName::TGcn, ModelName::EvolveGcnO, ModelName::EvolveGcnH] {
        for batch in [1, 2] {
            let trained = |plan: &str| {
                let mut c = Config { plan: plan.into(), ..snapshot_config(model, 8) };
                c.group.batch = batch;
                let mut task = SnapshotTask::new(&c, &turning(24, 9, 3), device.clone()).unwrap();
                [0, 1].map(|epoch| task.train_epoch(epoch, &mut |_| {}).unwrap().0)
            };
            assert_eq!(trained("overlap"), trained("sequential"), "{}", model.name());
        }
    }
}

#[test]
fn overlap_leaves_the_bits_of_sequential_for_every_model_and_keeps_every_dependency() {
    overlap_leaves_the_bits_of_sequential(&Device::cpu(2).unwrap(), true);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn messages_are_prepared_during_the_step_before_where_time_encodings_are_fixed() {
    let Some(on) = device(0) else { return };
    let (events, device) = (rich(), on.device());
    let with = |plan: &str, time_encoding| {
        let mut c = Config { plan: plan.into(), max_batches: 4, ..tgn() };
        c.memory_as = StoredAs::F32;
        c.tgn.time_encoding = time_encoding;
        c
    };
    let lanes = |c: &Config| {
        let task = EventTask::new(c, &events, device.clone()).unwrap();
        lanes_of_ops(&task).get("memory_messages").cloned()
    };
    assert_eq!(lanes(&with("overlap", TimeStart::Fixed)), Some(vec![3]));
    assert_eq!(lanes(&with("overlap", TimeStart::Learned)), None);
    assert_eq!(lanes(&with("prefetch", TimeStart::Fixed)), None);
    for encoding in [TimeStart::Fixed, TimeStart::Learned] {
        let trained = |plan| trained(&with(plan, encoding), &events, &device, false);
        assert!(trained("overlap") == trained("prefetch"), "{encoding}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn the_order_of_overlap_can_be_switched_back_and_losses_keep_their_bits() {
    let dir = made();
    let losses = |before: &str| {
        let words =
            small_words(&["--device", "emu", "--plan", "overlap", "--epochs", "1", "--no-eval", "--json"]);
        let mut command = std::process::Command::new(program());
        let ran = command.args(words).current_dir(&dir).env("TGNN_BEFORE", before).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        json(&String::from_utf8(ran.stdout).unwrap())["epochs"][0]["train_loss"].as_f64().unwrap()
    };
    let lanes = |before: &str| {
        let mut command = std::process::Command::new(program());
        let ran = command.args(["plan", "show", "overlap"]).env("TGNN_BEFORE", before).output().unwrap();
        String::from_utf8(ran.stdout)
            .unwrap()
            .lines()
            .filter(|l| l.starts_with("lane ") && l.contains('│'))
            .count()
    };
    assert_eq!((lanes(""), lanes("order")), (3, 2));
    let now = losses("");
    assert!(now > 0.0 && ["ahead", "order", "order,ahead"].iter().all(|before| losses(before) == now));
}

#[test]
fn the_program_shows_checks_and_simulates_plans() {
    let dir = tempfile::TempDir::new().unwrap();
    let ran = |args: &[&str]| done(dir.path(), &[&["plan"], args].concat()).out;
    let shown = ran(&["show", "prefetch"]);
    assert!(
        shown.contains("[stages.sample]\nlane = 2\nprefetch_depth = 1")
            && shown.contains("lane 2  │sample 1"),
        "{shown}"
    );
    assert!(ran(&["show", "blad"]).contains("│backward 3"));
    let shown = ran(&["show", "mspipe"]);
    assert!(
        shown.contains("memory = \"minimal\"")
            && shown.contains("found while training, 0 to 8; below, k = 1")
    );
    assert!(shown.contains("write_memory of 2 steps before") && !shown.contains("9 steps"), "{shown}");
    assert!(ran(&["show", "pipetgl"]).contains("Gradients are p - 1 steps old, prefetch depths are times p"));
    assert!(ran(&["show", "disttgl:2x1x4"]).contains(
        "2 ranks share each batch; 1 group trains with each memory copy; \
                                                      4 memory copies"
    ));
    let on_host = ["simulate", "prefetch", "--set", "memory_on=host"];
    let said = "memory_on is `host`, and nothing that plan simulate predicts has a link to a host";
    refused(dir.path(), &[&["plan"], &on_host[..]].concat(), 2, &[said]);
    refused(dir.path(), &[&["plan"], &on_host[..], &["--ranks", "2"]].concat(), 2, &[said]);
    let four = given().into_iter().find(|plan| plan.name == "four").unwrap();
    std::fs::write(dir.path().join("four.toml"), toml::to_string(&four).unwrap()).unwrap();
    let shown = ran(&["show", "four.toml"]);
    assert!(
        ["lane 1  ", "lane 3  ", "lane 5  │sample 1", "lane 8  "].iter().all(|l| shown.contains(l)),
        "{shown}"
    );
    let drawn = |line: &&str| line.starts_with("lane ") && line.contains('│');
    assert_eq!(shown.lines().filter(drawn).count(), 4, "{shown}");
    let table = ran(&["simulate", "four.toml", "--max-batches", "2"]);
    assert!(table.contains("lane 5 busy") && !table.contains("lane 2 busy"), "{table}");
    assert_eq!(ran(&["check", "blad"]), "plan blad is legal: every stage finds what it needs\n");
    std::fs::write(dir.path().join("bad.toml"), "name = \"x\"\n[stages.embed]\nprefetch_depth = 1\n")
        .unwrap();
    let texts = ["plan x: stages.embed.prefetch_depth is 1 on lane 1, where it comes before", "bad.toml"];
    refused(dir.path(), &["plan", "check", "bad.toml"], 4, &texts);
    refused(dir.path(), &["plan", "show", "none.toml"], 10, &["none.toml", "cannot read"]);
    refused(dir.path(), &["plan", "show", "none"], 2, &["there is no plan `none`"]);
    refused(dir.path(), &["train", "--plan", "bad.toml"], 4, &["bad.toml"]);
    let simulated = json(&ran(&[
        "simulate",
        "prefetch",
        "--max-batches",
        "3",
        "--threads",
        "2",
        "--json",
        "--timeline",
        "t.json",
    ]));
    let predicted = simulated["predicted"]["seconds"].as_f64().unwrap();
    assert!(predicted > 0.0 && simulated["off"].is_number(), "{simulated}");
    assert!(simulated["costs"]["ops"]["gru_memory"]["runs"] == 3, "{simulated}");
    let trace = json(&std::fs::read_to_string(dir.path().join("t.json")).unwrap());
    assert!(trace["traceEvents"].as_array().unwrap().len() > 50);
    let table = ran(&["simulate", "sequential", "--max-batches", "2"]);
    assert!(table.contains("lane 1 busy") && table.contains("the prediction is off by"), "{table}");
}

/// Returns the steps and nodes that each lane runs, in order.
fn by_lane(timeline: &Timeline) -> [Vec<(usize, usize)>; MAX_LANES] {
    std::array::from_fn(|lane| {
        let spans = timeline.spans().iter().filter(|s| s.node_info.lane == lane);
        spans.map(|s| (s.step, s.node)).collect()
    })
}

#[test]
fn the_simulator_runs_the_same_nodes_on_every_lane_as_the_executor_and_in_the_same_order() {
    let check = |task: &mut dyn Task, what: &str| {
        task.core_mut().trace();
        for epoch in 0..2 {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
        }
        let (costs, ran) = (task.last_epoch().costs(), task.core().timeline());
        let simulated = task.last_epoch().predicted(&costs).unwrap();
        assert_eq!(by_lane(&simulated), by_lane(&ran), "{what}");
        assert!(ran.spans().len() > 50 && costs.error().is_finite(), "{what}");
        let spans = simulated.spans();
        assert!(spans.iter().all(|s| s.start.is_finite() && s.start <= s.end), "{what}");
        let path = simulated.critical_path();
        assert!(path.windows(2).all(|w| w[0].end <= w[1].start) && path.len() <= spans.len(), "{what}");
    };
    let (events, cpu) = (rich(), Device::cpu(2).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let c = Config { batch: 60, eval_batch: 60, ..small_config(ModelName::Tgn, 8) };
    let presets = ["sequential", "prefetch", "overlap", "presample", "mspipe:k=2"];
    let presets = presets.map(|name| Plan::named(name).unwrap());
    for plan in presets.iter().chain(&given()) {
        let c = by_plan(plan, &c, dir.path());
        check(&mut EventTask::new(&c, &events, cpu.clone()).unwrap(), &plan.name);
    }
    for plan in ["sequential", "prefetch", "overlap", "blad-even", "blad-nm", "blad"] {
        for (model, batch) in [(ModelName::WdGcn, 1), (ModelName::TGcn, 3), (ModelName::EvolveGcnH, 2)] {
            let mut c = Config { plan: plan.into(), ..snapshot_config(model, 8) };
            c.group.batch = batch;
            check(&mut SnapshotTask::new(&c, &turning(24, 14, 3), cpu.clone()).unwrap(), plan);
        }
    }
}

/// A layer is the same function in both orders of its products. f32 sums in another order differ by rounding,
/// and training computes some thousand of them.
#[test]
fn a_plan_that_may_exchange_layers_trains_as_the_sequential_one() {
    let (data, cpu) = (turning(24, 14, 3), Device::cpu(2).unwrap());
    for model in [ModelName::WdGcn, ModelName::TGcn, ModelName::EvolveGcnO, ModelName::EvolveGcnH] {
        for batch in [1, 3] {
            let run = |plan: &str| {
                let mut c = Config { plan: plan.into(), ..snapshot_config(model, 8) };
                c.group.batch = batch;
                let mut task = SnapshotTask::new(&c, &data, cpu.clone()).unwrap();
                let losses: Vec<f64> = (0..4).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0).collect();
                (losses, task.plan_record().chosen)
            };
            let ((want, none), (found, chosen)) = (run("sequential"), run("blad"));
            assert!(none.is_none() && chosen.unwrap().to_string().contains("of 3 snapshots"));
            for (found, want) in found.iter().zip(&want) {
                assert!(
                    (found - want).abs() < 1e-4 * want,
                    "{}, {batch}: {found}, want {want}",
                    model.name()
                );
            }
        }
    }
}

#[test]
fn a_plan_is_refused_with_the_error_and_its_position() {
    let refused = |text: &str| Plan::parse(text).unwrap_err();
    let e = refused("name = \"x\"\nstage = 3\n");
    assert_eq!(e.position(), Some((2, 1)), "{e}");
    let e = refused("name = \"x\"\n[stages.fetch]\nlane = 2\n");
    assert!(e.to_string().contains("fetch_features") && !e.to_string().contains('\n'), "{e}");
    let message = |text: &str| refused(&format!("name = \"x\"\n{text}")).to_string();
    for lane in [0, 9] {
        let want = format!("plan x: stages.sample.lane is {lane}; give 1 to 8");
        assert_eq!(message(&format!("[stages.sample]\nlane = {lane}")), want);
    }
    assert_eq!(
        message("[stages.sample]\nprefetch_depth = 9"),
        "plan x: stages.sample.prefetch_depth is 9; give 0 to 8"
    );
    assert_eq!(
        message("[stages.fetch_memory]\nlane = 1\nprefetch_depth = 1"),
        "plan x: stages.fetch_memory.prefetch_depth is 1 on lane 1, where it comes before sample of the same step, which it needs; \
         lower its prefetch_depth, or put it on another lane"
    );
    assert_eq!(
        message("[stages.sample]\nlane = 2\nprefetch_depth = 1\n[stages.fetch_memory]\nprefetch_depth = 1"),
        "plan x: stages.fetch_memory.prefetch_depth is 1 on lane 1, where it comes before write_memory of the step before, which it needs; \
         lower its prefetch_depth, or put it on another lane"
    );
    assert_eq!(
        message("[groups]\nfirst = 0"),
        "plan x: groups.first is 0; give 1 or more, or a rule: even, balanced"
    );
    assert_eq!(
        message("[groups]\nfirst = \"even\"\nexchange = true"),
        "plan x: groups.exchange is true, but nothing is predicted; give groups.first = \"balanced\": layers are exchanged by \
         its predictions"
    );
    assert!(message("[groups]\nfirst = \"evn\"").contains("a number of snapshots, \"even\" or \"balanced\""));
    let e = refused("name = \"prefetch\"\n[stages.sample]\nlane = 2\n");
    assert_eq!(
        e.to_string(),
        "plan prefetch: name is that of a different preset; give the plan another name"
    );
    let names = Plan::PRESETS.iter().map(|preset| preset.form).filter(|form| !form.contains(':'));
    for name in names.chain(["mspipe:k=2", "mspipe-s:k=0", "disttgl:2x1x4", "pipetgl:k=3"]) {
        let plan = match Plan::named(name) {
            Err(e) if ["auto", "disttgl"].contains(&name) => {
                assert!(e.to_string().starts_with(&format!("the plan {name} depends on the d")), "{e}");
                continue;
            }
            plan => plan.unwrap(),
        };
        assert_eq!(plan.name, name);
        assert_eq!(Plan::parse(&toml::to_string(&plan).unwrap()).unwrap(), plan);
    }
    for (name, what) in [
        ("mspipe:k=x", "`k=x` is no staleness; give mspipe:k=0 to "),
        ("mspipe-s:2", "`2` is no staleness; give mspipe-s:k=0 to "),
        ("disttgl:2x1", "`2x1` is not IxJxK; "),
        ("pipetgl:k=0", "`k=0` is no number of memory copies; "),
        ("mspipe:", "`` is no staleness; "),
    ] {
        let e = Plan::named(name).unwrap_err().to_string();
        assert!(e.starts_with(what), "{name}: {e}");
    }
}

#[test]
fn the_table_of_presets_in_the_documents_is_that_of_the_code() {
    let path = root().join("docs/plans.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("## Presets\n\n| plan | what it does |\n| --- | --- |\n").unwrap();
    let (table, after) = rest.split_once("\n## ").unwrap();
    let row = |preset: &tgnn_training::plan::Preset| format!("| `{}` | {} |\n", preset.form, preset.about);
    let want: String = Plan::PRESETS.iter().map(row).collect();
    let want = want.replace("(plans.md#", "(#");
    if std::env::var_os("UPDATE").is_some() {
        let head = "## Presets\n\n| plan | what it does |\n| --- | --- |\n";
        std::fs::write(&path, format!("{before}{head}{want}\n## {after}")).unwrap();
        return;
    }
    assert_eq!(table, want, "run it with UPDATE=1 to write the table");
}
