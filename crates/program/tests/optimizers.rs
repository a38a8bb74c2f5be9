//! Optimisers: their updates against PyTorch's, learning rates, clipping, runs with them and resumed ones.
use crate::support::{
    devices::device,
    snapshots::{config as snapshot_config, turning},
    trainings::{config, found, run, small},
};
use serde::Deserialize;
use std::{fs, panic};
use tgnn::{
    autograd::{Optimizer, Parameters, Program, RateDecay, ScaledInit, UpdateRule},
    error::ErrorKind,
    ops::{Backend, Tape},
    runtime::*,
};
use tgnn_training::{
    model::ModelName,
    task::{
        self, Config, EpochRecord, EventTask, OptimizerConfig, OptimizerName, RunOptions, SnapshotTask, Task,
        Watch,
    },
};

/// `golden/optimizers.json`, which `golden/optimizers.py` writes and documents.
#[derive(Deserialize)]
struct Golden {
    shapes: Vec<(usize, usize)>,
    start: Vec<Vec<f64>>,
    targets: Vec<Vec<Vec<f64>>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    keys: OptimizerConfig,
    learning_rate: f64,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    norm: f64,
    values: Vec<Vec<f64>>,
}

/// Trains as the case says. Returns the largest error of a value, and of a norm of gradients where they are
/// clipped.
fn off(golden: &Golden, case: &Case, precision: Precision, backend: Backend) -> f64 {
    let mut store = Store::new(precision);
    let optimizer = case.keys.optimizer(golden.targets.len());
    let mut p = Parameters::with_optimizer(&mut store, 1, case.learning_rate, optimizer).unwrap();
    let mut t = Tape::new(&store);
    let (mut parameters, mut targets, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for (i, (&(rows, cols), start)) in golden.shapes.iter().zip(&golden.start).enumerate() {
        let id = p.add(&mut store, &format!("w{i}"), rows, cols, ScaledInit::Normal).unwrap();
        store.write(id, start).unwrap();
        let want = store.zeros(format!("want{i}"), Spec::real(Rows::fixed(rows), cols)).unwrap();
        let [w, want_here] = t.stored_all([id, want]).unwrap();
        losses.push(t.squared_loss(w, want_here).unwrap());
        parameters.push(id);
        targets.push(want);
    }
    let loss = t.add(losses[0], losses[1]).unwrap();
    p.minimize(&mut t, loss).unwrap();
    let mut program = Program::new(&t, &[], precision, backend).unwrap();
    let mut most = 0.0f64;
    for (step, target) in case.steps.iter().zip(&golden.targets) {
        targets.iter().zip(target).for_each(|(&id, target)| store.write(id, target).unwrap());
        program.run(&mut store).unwrap();
        let kept: Vec<BufferId> = parameters.iter().copied().chain(p.gradient_norm()).collect();
        store.fetch(&kept).unwrap();
        let found = kept.iter().flat_map(|&id| store.read_f64(id).unwrap());
        let want: Vec<f64> = step.values.iter().flatten().copied().chain([step.norm]).collect();
        let errors = found.zip(want).map(|(found, want)| (found - want).abs());
        most = errors.fold(most, f64::max);
    }
    most
}

#[test]
fn every_update_with_decay_momentum_clipping_and_changing_rates_equals_pytorchs() {
    let golden: Golden = serde_json::from_str(include_str!("../../../tests/golden/optimizers.json")).unwrap();
    assert!(golden.cases.len() > 8 && golden.cases.iter().all(|c| c.steps.len() == golden.targets.len()));
    let on = device(0);
    for case in &golden.cases {
        case.keys.validate().unwrap();
        let what = case.keys.describe(case.learning_rate);
        let exact = off(&golden, case, Precision::F64, Backend::Definition);
        assert!(exact < 1e-12, "{what}: {exact:e}");
        let fast = off(&golden, case, Precision::F32, Backend::Cpu);
        assert!(fast < 1e-5, "{what} on the CPU: {fast:e}");
        if let Some(on) = &on {
            let there = off(&golden, case, Precision::F32, Backend::Cuda(on.gpu.clone()));
            assert!(there < 1e-5, "{what} on a device: {there:e}");
        }
    }
}

/// Returns a configuration of an optimiser with everything that it can have.
fn full(name: OptimizerName) -> OptimizerConfig {
    OptimizerConfig {
        name,
        weight_decay: 0.01,
        momentum: if name == OptimizerName::Sgd { 0.9 } else { 0.0 },
        clip_norm: 0.1,
        schedule: RateDecay::Cosine,
        warmup: 5,
        ..OptimizerConfig::default()
    }
}

const ALL: [OptimizerName; 3] = [OptimizerName::Adam, OptimizerName::AdamW, OptimizerName::Sgd];

/// Returns the bits of the parameters.
fn parameters(task: &dyn Task) -> Vec<Vec<u8>> {
    task.core().parameters.iter().map(|p| task.core().store.raw(p.1).unwrap().to_vec()).collect()
}

/// Trains epochs of one step each with a constant rate that is set by hand before each of them, and with the
/// schedule. Returns whether the parameters are the same after each epoch.
fn rates_are(mut by_hand: impl Task, mut scheduled: impl Task, shares: &[f64], rate: f64) -> bool {
    let id = by_hand.core().parameters.learning_rate();
    shares.iter().enumerate().all(|(epoch, share)| {
        by_hand.core_mut().store.write(id, &[rate * share]).unwrap();
        by_hand.train_epoch(epoch as u32, &mut |_| {}).unwrap();
        scheduled.train_epoch(epoch as u32, &mut |_| {}).unwrap();
        parameters(&by_hand) == parameters(&scheduled)
    })
}

#[test]
fn a_scheduled_training_is_one_whose_rate_is_set_before_every_step() {
    let half = 0.5 * (1.0 + (std::f64::consts::PI / 4.0).cos());
    let (events, cpu) = (small(400), Device::cpu(1).unwrap());
    for (schedule, warmup, shares) in [
        (RateDecay::Linear, 0, [1.0, 5.0 / 6.0, 4.0 / 6.0, 0.5, 2.0 / 6.0, 1.0 / 6.0]),
        (RateDecay::Cosine, 2, [0.5, 1.0, 1.0, half, 0.5, 1.0 - half]),
        (RateDecay::Constant, 4, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
    ] {
        let optimizer = OptimizerConfig { schedule, warmup, ..OptimizerConfig::default() };
        let plain = Config { batch: 1000, eval_batch: 1000, learning_rate: 1e-2, ..config(6, 8) };
        let scheduled = Config { optimizer: optimizer.clone(), ..plain.clone() };
        let [by_hand, by_table] =
            [&plain, &scheduled].map(|c| EventTask::new(c, &events, cpu.clone()).unwrap());
        assert!(rates_are(by_hand, by_table, &shares, 1e-2), "{schedule:?}");
        // Six groups an update, so that an epoch has one.
        let mut plain = Config { epochs: 6, max_batches: 6, ..snapshot_config(ModelName::WdGcn, 8) };
        plain.group.batch = 6;
        let scheduled = Config { optimizer, ..plain.clone() };
        let data = turning(24, 12, 3);
        let [by_hand, by_table] =
            [&plain, &scheduled].map(|c| SnapshotTask::new(c, &data, cpu.clone()).unwrap());
        assert!(rates_are(by_hand, by_table, &shares, 1e-2), "{schedule:?}, snapshots");
    }
}

#[test]
fn the_rate_falls_to_zero_with_the_last_batch_of_the_last_epoch_wherever_first_batches_end() {
    let events = small(700);
    for chunks in [1, 4] {
        let optimizer = OptimizerConfig { schedule: RateDecay::Linear, ..OptimizerConfig::default() };
        let c = Config { optimizer, chunks, ..config(5, 8) };
        let mut task = EventTask::new(&c, &events, Device::cpu(1).unwrap()).unwrap();
        for epoch in 0..5 {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
        }
        let step = task.core.parameters.optimizer_buffers().next().unwrap();
        let steps = task.core.store.read::<u32>(step).unwrap()[0] as usize;
        assert_eq!(task.core.store.name(step), "adam.step");
        // One step more has no rate, and changes nothing; the step before has the last share of the rate.
        let before = parameters(&task);
        task.core.store.write(step, &[steps as u32 - 1]).unwrap();
        task.train_epoch(5, &mut |_| {}).unwrap();
        assert!(parameters(&task) != before, "{chunks} chunks: step {steps} has a rate");
        let before = parameters(&task);
        task.core.store.write(step, &[steps as u32]).unwrap();
        task.train_epoch(6, &mut |_| {}).unwrap();
        assert!(parameters(&task) == before, "{chunks} chunks: step {} has a rate", steps + 1);
    }
}

#[test]
fn a_model_learns_with_every_optimiser_and_settles_with_it() {
    let events = small(1200);
    for name in ALL {
        let mut c = config(3, 16);
        (c.settle, c.optimizer) = (true, full(name));
        c.learning_rate = if name == OptimizerName::Sgd { 0.3 } else { 1e-2 };
        let s = run(&c, &events, None, false).unwrap();
        let losses: Vec<f64> = s.epochs.iter().map(|e| e.train_loss).collect();
        assert!(losses[2] < losses[0], "{name:?}: {losses:?}");
        assert!(s.settled.unwrap().train_loss.is_finite());
        let data = turning(24, 12, 3);
        for batch in [1, 3] {
            let mut c = Config { epochs: 4, optimizer: full(name), ..snapshot_config(ModelName::TGcn, 8) };
            (c.group.batch, c.learning_rate) = (batch, if name == OptimizerName::Sgd { 0.3 } else { 1e-2 });
            let s =
                task::train_snapshots(&c, &data, &Device::cpu(1).unwrap(), &RunOptions::default(), &mut ());
            let losses: Vec<f64> = s.unwrap().epochs.iter().map(|e| e.train_loss).collect();
            // So few groups show nothing that can be learned.
            assert!(
                losses.iter().all(|loss| loss.is_finite()),
                "{name:?}, {batch} groups an update: {losses:?}"
            );
            assert!(losses[3] != losses[0], "{name:?}, {batch} groups an update: {losses:?}");
        }
    }
}

/// Ends a run after some epochs.
struct Cut(usize);
impl Watch for Cut {
    fn progress(&mut self, pass: &str, epoch: usize, _: task::Progress) {
        assert!(epoch <= self.0 || pass != "train", "interrupted by the test");
    }
    fn epoch(&mut self, _: &EpochRecord) {}
}

#[test]
fn an_interrupted_run_with_a_schedule_goes_on_as_if_it_had_not_been_and_no_longer() {
    let (events, dir) = (small(600), tempfile::tempdir().unwrap());
    for name in ALL {
        let c = Config { optimizer: full(name), settle: true, chunks: 3, ..config(4, 8) };
        let [whole, parts] = ["whole", "parts"].map(|part| dir.path().join(format!("{part} {name:?}")));
        let at_once = run(&c, &events, Some(&whole), false).unwrap();
        let options = RunOptions { out: Some(parts.clone()), ..RunOptions::default() };
        let cut = panic::AssertUnwindSafe(|| {
            task::train(&c, &events, &Device::cpu(1).unwrap(), &options, &mut Cut(2))
        });
        assert!(panic::catch_unwind(cut).is_err());
        let resumed = run(&c, &events, Some(&parts), true).unwrap();
        assert_eq!(found(&resumed), found(&at_once), "{name:?}");
        let last = |run: &std::path::Path| fs::read(run.join("checkpoint/epoch-4.safetensors")).unwrap();
        assert!(last(&whole) == last(&parts), "{name:?}: the checkpoints differ");
        let longer = run(&Config { epochs: 5, ..c.clone() }, &events, Some(&parts), true).unwrap_err();
        assert_eq!(longer.kind(), ErrorKind::Checkpoint);
        assert!(longer.to_string().contains("fall to zero over the 4 epochs"), "{longer}");
        let mut other = c;
        other.optimizer.clip_norm = 2.0;
        let other = run(&other, &events, Some(&parts), true).unwrap_err();
        assert!(
            other.to_string().contains("optimizer.clip_norm is 0.1 in the checkpoint and 2.0 in this run"),
            "{other}"
        );
    }
}

#[test]
fn a_checkpoint_from_before_there_were_optimisers_to_choose_is_resumed() {
    let (events, dir) = (small(400), tempfile::tempdir().unwrap());
    let [whole, old] = ["whole", "old"].map(|name| dir.path().join(name));
    let at_once = run(&config(3, 8), &events, Some(&whole), false).unwrap();
    run(&config(2, 8), &events, Some(&old), false).unwrap();
    let file = old.join("checkpoint/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let section = manifest["config"].as_object_mut().unwrap().remove("optimizer");
    assert!(section.is_some(), "the section is where it was");
    fs::write(&file, manifest.to_string()).unwrap();
    assert_eq!(found(&run(&config(3, 8), &events, Some(&old), true).unwrap()), found(&at_once));
}

#[test]
fn an_optimiser_keeps_what_it_needs_under_names_of_its_own() {
    let names = |rule| {
        let mut store = Store::new(Precision::F32);
        let optimizer = tgnn::autograd::Optimizer { rule, ..Default::default() };
        let mut p = Parameters::with_optimizer(&mut store, 1, 0.1, optimizer).unwrap();
        p.add(&mut store, "w", 1, 2, ScaledInit::Normal).unwrap();
        p.optimizer_buffers().map(|id| store.name(id).to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(UpdateRule::default()), "adam.step adam.m.w adam.v.w");
    assert_eq!(names(UpdateRule::Sgd { momentum: 0.0, decay: 0.1 }), "sgd.step");
    assert_eq!(names(UpdateRule::Sgd { momentum: 0.9, decay: 0.0 }), "sgd.step sgd.v.w");
}

#[test]
fn an_optimiser_that_makes_no_sense_is_refused_with_the_key_and_valid_values() {
    let refused = |change: fn(&mut OptimizerConfig), text: &str| {
        let mut c = config(1, 8);
        change(&mut c.optimizer);
        let e = c.validate().unwrap_err();
        assert_eq!((e.kind(), e.to_string().as_str()), (ErrorKind::Usage, text));
    };
    refused(|o| o.weight_decay = -0.1, "optimizer.weight_decay is -0.1; give 0 (none), or a positive number");
    refused(|o| o.clip_norm = f64::NAN, "optimizer.clip_norm is NaN; give 0 (none), or a positive number");
    refused(
        |o| (o.name, o.momentum) = (OptimizerName::Sgd, 1.0),
        "optimizer.momentum is 1; give 0 or more, and less than 1",
    );
    refused(
        |o| o.momentum = 0.9,
        "optimizer.momentum is 0.9, and Adam has none; leave it out, or give optimizer.name=sgd",
    );
    refused(|o| o.warmup = 1 << 21, "optimizer.warmup is 2097152; give 0 to 1048576");
    let e = Config::parse("[optimizer]\nname = \"lion\"").unwrap_err();
    assert!(e.position() == Some((2, 8)) && e.to_string().contains("give one of adam, adamw, sgd"), "{e}");
    let mut c = Config { epochs: usize::MAX, ..config(1, 8) };
    c.optimizer.schedule = RateDecay::Linear;
    let e = EventTask::new(&c, &small(300), Device::cpu(1).unwrap()).err().unwrap();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("take fewer epochs"), "{e}");
}

#[test]
fn a_loss_of_several_numbers_or_without_parameters_and_a_gradient_of_fewer_rows_are_refused() {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let mut p = Parameters::new(&mut store, 1, 0.1).unwrap();
    let w = p.add(&mut store, "w", 2, 1, ScaledInit::Constant(1.0)).unwrap();
    let w = t.stored(w).unwrap();
    let one = t.input(&mut store, "one", Spec::real(Rows::fixed(1), 1), &[1.0f32]).unwrap();
    let refused = |e: tgnn::error::Error, text: &str| assert!(e.to_string().contains(text), "{e}");
    refused(p.minimize(&mut t, w).unwrap_err(), "minimize: the loss is F32 [2, 1], want one number");
    let unlearned = t.mean(one).unwrap();
    refused(p.minimize(&mut t, unlearned).unwrap_err(), "the loss depends on no parameter");
    refused(t.backward(w, one, &[]).unwrap_err(), "backward: y is F32 [2, 1], its gradient is F32 [1, 1]");
    let loss = t.mean(w).unwrap();
    p.minimize(&mut t, loss).unwrap();
}

/// Minimises the loss that `loss` makes of a parameter of two elements, for two steps, on the host and on a
/// device. Returns the errors.
fn two_steps(
    start: f64,
    rule: UpdateRule,
    loss: impl Fn(&mut Tape, Var) -> tgnn::error::Result<Var>,
) -> Vec<Option<String>> {
    let on = device(0);
    let backends = [Backend::Definition, Backend::Cpu].into_iter();
    let backends = backends.chain(on.as_ref().map(|on| Backend::Cuda(on.gpu.clone())));
    let run = |backend| {
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let optimizer = Optimizer { rule, ..Optimizer::default() };
        let mut p = Parameters::with_optimizer(&mut store, 1, 0.1, optimizer)?;
        let other = p.add(&mut store, "other", 1, 1, ScaledInit::Constant(1.0))?;
        let w = p.add(&mut store, "w", 1, 2, ScaledInit::Constant(start))?;
        let (w, other) = (t.stored(w)?, t.stored(other)?);
        let (of_w, of_other) = (loss(&mut t, w)?, t.mul(other, other)?);
        let sum = t.add(of_w, of_other)?;
        p.minimize(&mut t, sum)?;
        let mut program = Program::new(&t, &[], Precision::F32, backend)?;
        program.run(&mut store)?;
        program.run(&mut store)
    };
    backends
        .map(|backend| {
            run(backend).err().map(|e| {
                assert_eq!(e.kind(), ErrorKind::Diverged, "{e}");
                e.to_string().split(';').next().unwrap_or_default().to_owned()
            })
        })
        .collect()
}

#[test]
fn a_loss_gradient_or_parameter_that_is_not_finite_has_diverged_whatever_ops_the_loss_is_made_of() {
    let rules = [
        UpdateRule::default(),
        UpdateRule::adamw(0.1),
        UpdateRule::Sgd { momentum: 0.0, decay: 0.0 },
        UpdateRule::Sgd { momentum: 0.9, decay: 0.1 },
    ];
    for rule in rules {
        let all = |start: f64, loss: &dyn Fn(&mut Tape, Var) -> tgnn::error::Result<Var>, want: &str| {
            for e in two_steps(start, rule, loss) {
                assert!(e.as_deref().is_some_and(|e| e.starts_with(want)), "{rule:?}: {e:?}, want {want}");
            }
        };
        // The loss is NaN, and its gradient is not.
        let log = |t: &mut Tape, w| {
            let log = t.log(w)?;
            t.mean(log)
        };
        all(-1.0, &log, "guard: the loss is NaN");
        // It is infinite.
        all(0.0, &log, "guard: the loss is -inf");
        let exp = |t: &mut Tape, w| {
            let exp = t.exp(w)?;
            t.mean(exp)
        };
        all(89.0, &exp, "guard: the loss is inf");
        // The loss is finite, and its gradient is not.
        let hidden = |t: &mut Tape, w| {
            let log = t.log(w)?;
            let inverse = t.exp(log)?; // 0, whose gradient is 0 times infinity
            t.mean(inverse)
        };
        all(0.0, &hidden, "");
        for e in two_steps(0.5, rule, log) {
            assert_eq!(e, None, "{rule:?}");
        }
    }
    // A step that is too large for the parameter.
    let rule = UpdateRule::Sgd { momentum: 0.0, decay: 0.0 };
    let explodes = |t: &mut Tape, w| {
        let square = t.mul(w, w)?;
        let mean = t.mean(square)?;
        t.scale(mean, 1e30)
    };
    for e in two_steps(1.0, rule, explodes) {
        assert!(
            e.is_some_and(|e| e.starts_with("guard: the loss is inf") || e.starts_with("sgd: parameter 1 is"))
        );
    }
}

#[test]
fn rates_and_starts_that_are_not_finite_are_refused() {
    let new = |rate| Parameters::new(&mut Store::new(Precision::F32), 1, rate).map(drop);
    for rate in [f64::NAN, f64::INFINITY, -0.1] {
        let e = new(rate).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage);
        assert_eq!(e.to_string(), format!("learning rate is {rate}; give a finite number of 0 or more"));
    }
    new(0.0).unwrap();
    let with = |rule, clip_norm| {
        let optimizer = Optimizer { rule, clip_norm, ..Optimizer::default() };
        Parameters::with_optimizer(&mut Store::new(Precision::F32), 1, 0.1, optimizer)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let nan = f64::NAN;
    for (rule, clip_norm, text) in [
        (UpdateRule::adamw(nan), None, "weight decay is NaN"),
        (UpdateRule::Sgd { momentum: nan, decay: 0.0 }, None, "momentum is NaN"),
        (UpdateRule::Sgd { momentum: 0.0, decay: -1.0 }, None, "weight decay is -1"),
        (UpdateRule::default(), Some(nan), "clip_norm is NaN"),
        (UpdateRule::default(), Some(0.0), "clip_norm is 0"),
    ] {
        let e = with(rule, clip_norm).unwrap_err();
        assert!(e.starts_with(text), "{e}");
    }
    let mut store = Store::new(Precision::F32);
    let mut p = Parameters::new(&mut store, 1, 0.1).unwrap();
    let e = p.add(&mut store, "w", 1, 1, ScaledInit::Constant(f64::NAN)).unwrap_err();
    assert_eq!(e.to_string(), "parameter: w starts at NaN, want a finite number");
}
