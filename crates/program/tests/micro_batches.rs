//! The number of micro-batches that fits profiled steps: equation 12 of Sven.
use crate::support::{
    ranks::{of_model, parts_plan, tensors, train},
    trainings::small,
};
use std::{fs, path::Path};
use tgnn::runtime::{Device, comm::DEADLINE};
use tgnn_training::{
    model::ModelName,
    plan::{
        Choice, Line, MAX_MICRO_BATCHES, MicroBatchChoice, MicroBatchFit, MicroBatchRule, MicroBatches, Plan,
        ProfiledStep, StepSeconds,
    },
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

/// What stages of a step cost: bytes by events, seconds by bytes and by events, and seconds of a part.
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
    /// update before; then come 5 ms of other work, and what parts add to it. What a part takes varies by
    /// `noise`.
    fn step(&self, events: usize, parts: usize, noise: f64, d: &mut Drawn) -> ProfiledStep {
        let mut varied = |seconds: f64| seconds * (1.0 + noise * (2.0 * d.next() - 1.0));
        let bytes = self.volume.at(events as f64);
        let (mut arrived, mut updated) = (0.0, 0.0f64);
        for _ in 0..parts {
            arrived += varied(self.dispatch.at(bytes / parts as f64));
            updated = updated.max(arrived) + varied(self.update.at(events as f64 / parts as f64));
        }
        let seconds = updated + varied(5e-3) + parts as f64 * self.others;
        ProfiledStep { events, parts, bytes, seconds }
    }
    /// Returns the steps of a profile.
    fn profile(&self, batch: usize, noise: f64, d: &mut Drawn) -> Vec<ProfiledStep> {
        let kinds = [(batch, 8), (batch, 4), (batch, 2), (batch, 1), (batch / 2, 1)];
        kinds.iter().flat_map(|kind| [kind; 3]).map(|&(events, n)| self.step(events, n, noise, d)).collect()
    }
}

#[test]
fn the_fitted_number_is_as_good_as_the_best_of_simulated_pipelines() {
    let (mut d, mut near, mut chosen) = (Drawn(1), 0, [0; MAX_MICRO_BATCHES + 1]);
    for case in 0..500 {
        let (costs, batch) = (Costs::drawn(&mut d), [400, 1000, 2400][case % 3]);
        let noise = [0.0, 0.05][case % 2];
        let fit = MicroBatchFit::fit(&costs.profile(batch, noise, &mut d), batch).unwrap();
        let n = fit.micro_batches(batch);
        let seconds = |n| costs.step(batch, n, 0.0, &mut Drawn(0)).seconds;
        let mut best: Vec<usize> = (1..=MAX_MICRO_BATCHES).collect();
        best.sort_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
        let slower = seconds(n) / seconds(best[0]) - 1.0;
        // The fit is exact unless dispatch or update takes longer depending on the number of parts.
        assert!(slower < 0.05, "{slower}, {n} of {best:?}: {costs:?} {fit:?}");
        chosen[n] += 1;
        near += usize::from(n == best[0] || n == best[1]);
    }
    assert!(near > 425, "{near} of 500");
    assert!(chosen[1..].iter().all(|&count| count > 0), "{chosen:?}");
}

#[test]
fn the_constants_of_equation_12_are_those_of_the_steps() {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs();
    // The dispatch takes longer than the update, or the other way round, whatever the number of parts.
    for (travel, update) in [(4e-5, 2e-5), (2e-5, 4e-5)] {
        let volume = Line { each: 1e3, once: 5e5 };
        let costs = Costs {
            dispatch: Line { each: travel / 1.5e3, once: 1e-3 },
            update: Line { each: update, once: 1e-3 },
            volume,
            others: 1e-4,
        };
        let fit = MicroBatchFit::fit(&costs.profile(1000, 0.0, &mut Drawn(0)), 1000).unwrap();
        assert!(near(fit.volume.each, 1e3) && near(fit.volume.once, 5e5), "{fit:?}");
        let StepSeconds { once, hidden, each } = fit.seconds;
        assert!(near(once, 4e-2 + 1e-3 + 5e-3) && near(hidden, 2e-2) && near(each, 1.1e-3), "{fit:?}");
        // √(hidden / each) is 4.26.
        assert_eq!(fit.micro_batches(1000), 4);
        for batch in (1..5000).step_by(7) {
            let n = (fit.volume.each * batch as f64 + fit.volume.once) / fit.part_bytes;
            assert_eq!(fit.micro_batches(batch), (n.round() as usize).clamp(1, 8));
            // The hypothesis of section 5.6.
            assert!(fit.micro_batches(batch + 7) >= fit.micro_batches(batch));
        }
    }
}

#[test]
fn a_fit_to_odd_steps_is_refused_or_a_number_from_1_to_8() {
    assert!(MicroBatchFit::fit(&[], 1000).is_none());
    let nothing = ProfiledStep { events: 1000, parts: 1, ..ProfiledStep::default() };
    assert!(MicroBatchFit::fit(&[nothing], 1000).is_none());
    let one = ProfiledStep { bytes: 1e6, seconds: 1.0, ..nothing };
    assert_eq!(MicroBatchFit::fit(&[one], 1000).unwrap().micro_batches(1000), 1);
    for odd in [f64::NAN, f64::INFINITY] {
        assert!(MicroBatchFit::fit(&[one, ProfiledStep { parts: 4, seconds: odd, ..one }], 1000).is_none());
        assert!(MicroBatchFit::fit(&[one, ProfiledStep { bytes: odd, ..one }], 1000).is_none());
    }
    for seconds in [-1.0, 0.0, 0.5, 1.5] {
        let fit = MicroBatchFit::fit(&[one, ProfiledStep { parts: 4, seconds, ..one }], 1000).unwrap();
        // With two numbers of parts, the faster one is the better one.
        assert_eq!(fit.micro_batches(1000) > 1, seconds < 1.0, "{fit:?}");
        assert!((1..=8).contains(&fit.micro_batches(0)) && (1..=8).contains(&fit.micro_batches(usize::MAX)));
    }
    // A straight line, a curve with its least value inside, and one that would need a negative coefficient.
    let of = |seconds: &dyn Fn(f64) -> f64| StepSeconds::fit(&[1, 2, 4, 8].map(|n| (n, seconds(n as f64))));
    let near = |a: StepSeconds, b: [f64; 3]| {
        [a.once, a.hidden, a.each].iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
    };
    assert!(near(of(&|n| 1.0 + 0.1 * n), [1.0, 0.0, 0.1]));
    assert!(near(of(&|n| 1.0 + 0.8 / n + 0.1 * n), [1.0, 0.8, 0.1]));
    let [rising, falling] = [of(&|n| 2.0 - 0.5 / n + 0.1 * n), of(&|n| 2.0 + 0.5 / n - 0.1 * n)];
    assert!(rising.hidden == 0.0 && rising.each > 0.1, "{rising:?}");
    assert!(falling.each == 0.0 && falling.hidden > 0.5, "{falling:?}");
}

#[test]
fn all_ranks_choose_the_same_number_by_the_times_of_all() {
    let mut d = Drawn(3);
    for _ in 0..20 {
        let costs: Vec<Costs> = (0..3).map(|_| Costs::drawn(&mut d)).collect();
        let profiles: Vec<_> = costs.iter().map(|c| c.profile(800, 0.2, &mut d)).collect();
        let together = (0..profiles[0].len())
            .map(|at| ProfiledStep::of_ranks(profiles.iter().map(|steps| steps[at])).unwrap());
        let want = MicroBatchFit::fit(&together.collect::<Vec<_>>(), 800).unwrap();
        let choose = |device: Device| {
            let ranks = device.ranks().unwrap();
            let choice = MicroBatchChoice::agreed(ranks, &profiles[ranks.rank()], 800)?;
            ranks.agree("choice", &serde_json::to_string(&choice).unwrap())?;
            Ok(choice)
        };
        let choice = on_local_ranks(3, DEADLINE, |_| Device::cpu(1), choose).unwrap();
        assert_eq!((choice.ranks, choice.micro_batches), (3, want.micro_batches(800)));
        let alone = profiles.iter().map(|steps| MicroBatchFit::fit(steps, 800).unwrap());
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
        (summary, tensors(dir.path(), 1))
    };
    for model in [ModelName::Tgn, ModelName::Jodie, ModelName::Apan, ModelName::Tgat] {
        let (fitted, found) = trained(model, &parts_plan(plans.path(), "\"fitted\""));
        let choice = choice(&fitted);
        let divides = matches!(model, ModelName::Tgn | ModelName::Jodie);
        assert_eq!(choice.fit.is_some(), divides, "{model:?}");
        assert!(divides || choice.micro_batches == 1);
        let (given, want) = trained(model, &parts_plan(plans.path(), &choice.micro_batches.to_string()));
        assert!(found == want, "{model:?}, {choice:?}");
        assert!(given.chosen.is_none() && given.ranks == fitted.ranks, "{model:?}: {fitted:?} {given:?}");
        let losses = |s: &Summary| s.epochs.iter().map(|e| e.train_loss).collect::<Vec<_>>();
        assert_eq!(losses(&given), losses(&fitted));
    }
    // One lane cannot do both.
    let path = plans.path().join("one-lane.toml");
    fs::write(&path, "name = \"one-lane\"\n[ranks]\nmicro_batches = \"fitted\"\n").unwrap();
    let (summary, _) = trained(ModelName::Jodie, path.to_str().unwrap());
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
