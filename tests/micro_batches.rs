//! The number of micro-batches that fits profiled steps: equation 12 of Sven.
use crate::{
    properties::small,
    ranks::{of_model, parts_plan, tensors, train},
};
use std::{fs, path::Path};
use tgnn::{
    model::ModelName,
    plan::{
        Choice, Line, MAX_MICRO_BATCHES, MicroBatchChoice, MicroBatchFit, MicroBatchRule, MicroBatches, Plan,
        ProfiledStep,
    },
    runtime::{Device, comm::DEADLINE},
    task::{Summary, on_local_ranks},
};

/// Returns the choice of a run.
fn choice(summary: &Summary) -> MicroBatchChoice {
    match &summary.chosen {
        Some(Choice::MicroBatches(choice)) => choice.clone(),
        other => panic!("{other:?}"),
    }
}

/// Numbers from 0 to 1 that look random.
struct Drawn(u64);

impl Drawn {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Returns a number from `a` to `b`, of any magnitude between.
    fn between(&mut self, a: f64, b: f64) -> f64 {
        a * (b / a).powf(self.next())
    }
}

/// What stages of a step cost.
#[derive(Debug)]
struct Costs {
    volume: Line,
    dispatch: Line,
    update: Line,
    others: f64,
}

impl Costs {
    fn drawn(d: &mut Drawn) -> Self {
        let batch = 1000.0;
        let volume = Line { each: d.between(500.0, 2e4), once: d.between(1.0, 5e6) };
        // Seconds of dispatch and update, and what a part of each costs once more.
        let [travel, update] = [d.between(1e-3, 1e-1), d.between(1e-3, 1e-1)];
        let [per_message, per_part] = [d.between(1e-5, 1e-2), d.between(1e-6, 3e-3)];
        Costs {
            dispatch: Line { each: travel / volume.at(batch), once: per_message },
            update: Line { each: update / batch, once: per_part },
            volume,
            others: d.between(1e-7, 2e-3),
        }
    }
    /// Simulates a step: each part is dispatched after the one before, and updated after its dispatch and the
    /// update before. What a part takes varies by `noise`. Returns the step, and when its last part is
    /// updated, with the other work.
    fn step(&self, events: usize, parts: usize, noise: f64, d: &mut Drawn) -> (ProfiledStep, f64) {
        let mut varied = |seconds: f64| seconds * (1.0 + noise * (2.0 * d.next() - 1.0));
        let bytes = self.volume.at(events as f64);
        let mut step = ProfiledStep { events, parts, bytes, others: varied(5e-3), ..ProfiledStep::default() };
        let (mut arrived, mut updated) = (0.0, 0.0f64);
        for _ in 0..parts {
            let dispatch = varied(self.dispatch.at(bytes / parts as f64));
            let update = varied(self.update.at(events as f64 / parts as f64));
            arrived += dispatch;
            updated = updated.max(arrived) + update;
            step.dispatch += dispatch;
            step.update += update;
        }
        step.others += (parts - 1) as f64 * self.others;
        (step, updated + step.others)
    }
    /// Returns the steps of a profile.
    fn profile(&self, batch: usize, noise: f64, d: &mut Drawn) -> Vec<ProfiledStep> {
        let kinds = (0..20).map(|at| (batch / (1 + at % 2), if at < 10 { 4 } else { 1 }));
        kinds.map(|(events, parts)| self.step(events, parts, noise, d).0).collect()
    }
}

#[test]
fn the_fitted_number_is_the_smallest_that_is_nearly_the_best_of_simulated_pipelines() {
    let (mut d, mut chosen) = (Drawn(1), [0; MAX_MICRO_BATCHES + 1]);
    for case in 0..500 {
        let (costs, batch) = (Costs::drawn(&mut d), [400, 1000, 2400][case % 3]);
        let noise = [0.0, 0.05][case % 2];
        let fit = MicroBatchFit::of(&costs.profile(batch, noise, &mut d), batch).unwrap();
        let n = fit.micro_batches(batch);
        let seconds = |n| costs.step(batch, n, 0.0, &mut Drawn(0)).1;
        let least = (1..=MAX_MICRO_BATCHES).map(seconds).fold(f64::INFINITY, f64::min);
        let nearly = (1..=MAX_MICRO_BATCHES).find(|&n| seconds(n) <= 1.01 * least);
        assert!(noise > 0.0 || Some(n) == nearly, "{n} instead of {nearly:?}: {costs:?} {fit:?}");
        assert!(seconds(n) <= (1.01 + noise) * least, "{n} instead of {nearly:?}: {costs:?} {fit:?}");
        chosen[n] += 1;
    }
    assert!(chosen[1..].iter().all(|&count| count > 0), "{chosen:?}");
}

#[test]
fn the_constants_of_equation_12_are_those_of_the_steps() {
    let costs = Costs::drawn(&mut Drawn(7));
    let fit = MicroBatchFit::of(&costs.profile(1000, 0.0, &mut Drawn(0)), 1000).unwrap();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs();
    assert!(near(fit.volume.each, costs.volume.each) && near(fit.volume.once, costs.volume.once));
    // A part costs its constants once more.
    let more =
        [(fit.dispatch, costs.dispatch.once), (fit.update, costs.update.once), (fit.others, costs.others)];
    assert!(more.iter().all(|(line, want)| near(line.each, *want)), "{fit:?} {costs:?}");
    let one =
        [(fit.dispatch, costs.dispatch.at(costs.volume.at(1000.0))), (fit.update, costs.update.at(1000.0))];
    assert!(one.iter().all(|(line, want)| near(line.at(1.0), *want)), "{fit:?} {costs:?}");
    for batch in (1..5000).step_by(7) {
        let n = (fit.volume.each * batch as f64 + fit.volume.once) / fit.part_bytes;
        assert_eq!(fit.micro_batches(batch), (n.round() as usize).clamp(1, 8));
        // The hypothesis of section 5.6.
        assert!(fit.micro_batches(batch + 7) >= fit.micro_batches(batch));
    }
    // Nothing to fit, nothing dispatched, one batch size, and times that make no sense.
    assert!(MicroBatchFit::of(&[], 1000).is_none());
    let nothing = ProfiledStep { events: 1000, parts: 1, ..ProfiledStep::default() };
    assert!(MicroBatchFit::of(&[nothing], 1000).is_none());
    let one = ProfiledStep { bytes: 1e6, dispatch: 1.0, update: 1.0, ..nothing };
    assert!((1..=8).contains(&MicroBatchFit::of(&[one], 1000).unwrap().micro_batches(1000)));
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let fit = MicroBatchFit::of(&[one, ProfiledStep { dispatch: odd, others: odd, ..one }], 1000);
        assert!(fit.is_none_or(|fit| (1..=8).contains(&fit.micro_batches(1000))));
    }
}

#[test]
fn all_ranks_choose_the_same_number_by_the_times_of_all() {
    let mut d = Drawn(3);
    for _ in 0..20 {
        let costs: Vec<Costs> = (0..3).map(|_| Costs::drawn(&mut d)).collect();
        let profiles: Vec<_> = costs.iter().map(|c| c.profile(800, 0.2, &mut d)).collect();
        let together = (0..profiles[0].len())
            .map(|at| ProfiledStep::of_ranks(profiles.iter().map(|steps| steps[at])).unwrap());
        let want = MicroBatchFit::of(&together.collect::<Vec<_>>(), 800).unwrap();
        let choose = |device: Device| {
            let ranks = device.ranks().unwrap();
            let choice = MicroBatchChoice::agreed(ranks, &profiles[ranks.rank()], 800)?;
            ranks.agree("choice", &serde_json::to_string(&choice).unwrap())?;
            Ok(choice)
        };
        let choice = on_local_ranks(3, DEADLINE, |_| Device::cpu(1), choose).unwrap();
        assert_eq!((choice.ranks, choice.micro_batches), (3, want.micro_batches(800)));
        let alone = profiles.iter().map(|steps| MicroBatchFit::of(steps, 800).unwrap());
        assert!(alone.into_iter().any(|fit| fit.part_bytes != want.part_bytes));
    }
    let nothing = |device: Device| MicroBatchChoice::agreed(device.ranks().unwrap(), &[], 800);
    let choice = on_local_ranks(2, DEADLINE, |_| Device::cpu(1), nothing).unwrap();
    assert_eq!(choice, MicroBatchChoice { micro_batches: 1, ranks: 2, fit: None });
}

#[test]
fn the_number_of_micro_batches_is_a_number_or_fitted() {
    let parsed = |value: &str| Plan::parse(&format!("name = \"x\"\n[ranks]\nmicro_batches = {value}\n"));
    let of = |value: &str| parsed(value).unwrap().ranks.unwrap().micro_batches;
    assert_eq!(of("8"), MicroBatches::Count(8));
    assert_eq!(of("\"fitted\""), MicroBatches::Rule(MicroBatchRule::Fitted));
    for out in ["0", "9"] {
        let e = parsed(out).unwrap_err().to_string();
        assert_eq!(e, format!("plan x: ranks.micro_batches is {out}; give 1 to 8, or \"fitted\""));
    }
    for wrong in ["-1", "2.5", "\"fited\"", "true", "[2]"] {
        let e = parsed(wrong).unwrap_err();
        let legal = "ranks.micro_batches is a number of parts, 1 to 8, or \"fitted\"";
        assert!(e.to_string().contains(legal) && e.position().is_some(), "{e}");
    }
}

#[test]
fn a_run_with_a_fitted_number_has_the_bits_of_a_run_with_that_number() {
    let (events, plans) = (small(900), tempfile::tempdir().unwrap());
    let trained = |model, plan: &str| {
        let dir = tempfile::tempdir().unwrap();
        let summary = train(2, &of_model(model, plan, 1), &events, Some(dir.path()), false).unwrap();
        (summary, tensors(dir.path(), 1), dir)
    };
    for model in [ModelName::Tgn, ModelName::Jodie, ModelName::Apan, ModelName::Tgat] {
        let (fitted, found, dir) = trained(model, &parts_plan(plans.path(), "\"fitted\""));
        let choice = choice(&fitted);
        let divides = matches!(model, ModelName::Tgn | ModelName::Jodie);
        assert_eq!(choice.fit.is_some(), divides, "{model:?}");
        assert!(divides || choice.micro_batches == 1);
        assert_eq!(dir.path().join("predictions.json").exists(), divides);
        let (given, want, _dir) =
            trained(model, &parts_plan(plans.path(), &choice.micro_batches.to_string()));
        assert!(found == want, "{model:?}, {choice:?}");
        assert!(given.chosen.is_none() && given.ranks == fitted.ranks, "{model:?}: {fitted:?} {given:?}");
        let losses = |s: &Summary| s.epochs.iter().map(|e| e.train_loss).collect::<Vec<_>>();
        assert_eq!(losses(&given), losses(&fitted));
    }
    // One lane cannot do both.
    let path = plans.path().join("one-lane.toml");
    fs::write(&path, "name = \"one-lane\"\n[ranks]\nmicro_batches = \"fitted\"\n").unwrap();
    let (summary, ..) = trained(ModelName::Jodie, path.to_str().unwrap());
    assert_eq!(choice(&summary), MicroBatchChoice { micro_batches: 1, ranks: 2, fit: None });
}

#[test]
fn a_resumed_run_keeps_its_number_of_micro_batches() {
    let (events, plans) = (small(700), tempfile::tempdir().unwrap());
    let trained = |dir: &Path, ranks, micro_batches: &str, epochs, resume| {
        let plan = parts_plan(plans.path(), micro_batches);
        train(ranks, &of_model(ModelName::Jodie, &plan, epochs), &events, Some(dir), resume).unwrap()
    };
    let [fitted, given] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    trained(fitted.path(), 2, "\"fitted\"", 1, false);
    trained(
        given.path(),
        2,
        &choice(&trained(fitted.path(), 2, "\"fitted\"", 1, true)).micro_batches.to_string(),
        1,
        false,
    );
    // As if three had been chosen.
    let manifest = fitted.path().join("checkpoint/manifest.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    json["micro_batches"]["micro_batches"] = 3.into();
    fs::write(&manifest, json.to_string()).unwrap();
    let resumed = choice(&trained(fitted.path(), 2, "\"fitted\"", 2, true));
    assert_eq!((resumed.micro_batches, resumed.ranks), (3, 2));
    trained(given.path(), 2, "3", 2, true);
    assert!(tensors(fitted.path(), 2) == tensors(given.path(), 2));
    // Other ranks have other links.
    assert_eq!(choice(&trained(fitted.path(), 3, "\"fitted\"", 3, true)).ranks, 3);
}
