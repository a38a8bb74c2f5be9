//! Replayed memory: the scores of a test with memory as trained and with memory replayed, and the settling
//! epoch that makes them equal.
use crate::support::{
    program::{done, json, made, small as small_words},
    trainings::{config, event_models, narrowed, run, small},
};
use tgnn::{error::ErrorKind, runtime::Device};
use tgnn_training::{
    model::{ModelName, TgatConfig},
    task::{self, Checkpoint, Config, EventTask, Protocol, Task},
};

/// Returns every model with a memory, without dropout.
fn with_memory() -> Vec<Config> {
    let of = |model| {
        let mut c = narrowed(&Config { model, ..config(2, 8) }, 8, 3, 3);
        (c.tgn.dropout, c.dyrep.dropout, c.apan.dropout) = (0.0, 0.0, 0.0);
        c
    };
    event_models().map(of).filter(|c| c.has_memory() == Some(true)).collect()
}

#[test]
fn memory_replayed_with_unchanged_weights_is_the_memory_that_training_left() {
    let events = small(600);
    for config in with_memory() {
        let still = Config { learning_rate: 1e-30, ..config };
        let summary = run(&still, &events, None, false).unwrap();
        let by_memory = summary.test_by_memory.unwrap();
        assert!(by_memory.as_trained.is_some(), "{}", summary.model);
        assert_eq!(by_memory.as_trained, by_memory.replayed, "{}", summary.model);
        assert_eq!(by_memory.as_trained, summary.test, "{}", summary.model);
    }
}

#[test]
fn memory_is_replayed_in_the_batches_of_evaluation_whatever_those_of_training_were() {
    let events = small(600);
    for config in with_memory() {
        let [small, large] = [20, 45].map(|batch| {
            let still = Config { learning_rate: 1e-30, batch, eval_batch: 45, ..config.clone() };
            run(&still, &events, None, false).unwrap().test_by_memory.unwrap()
        });
        assert_eq!(small.replayed, large.replayed);
        assert_eq!(large.as_trained, large.replayed);
        assert_ne!(small.as_trained, small.replayed);
    }
}

#[test]
fn a_run_reports_both_scores_and_an_evaluation_reproduces_each() {
    let (events, dir) = (small(900), tempfile::tempdir().unwrap());
    for (at, config) in with_memory().into_iter().enumerate() {
        let config = Config { learning_rate: 1e-2, ..config };
        let out = dir.path().join(at.to_string());
        let by_memory = run(&config, &events, Some(&out), false).unwrap().test_by_memory.unwrap();
        assert_ne!(by_memory.as_trained, by_memory.replayed);
        let evaluate = |config: &Config, replay| {
            let (from, cpu) = (Checkpoint::at(&out), Device::cpu(1).unwrap());
            task::evaluate(&from, config, &events, &cpu, "", replay, &mut ())
        };
        let (as_trained, replayed) = (evaluate(&config, false).unwrap(), evaluate(&config, true).unwrap());
        assert_eq!((as_trained.test, replayed.test), (by_memory.as_trained, by_memory.replayed));
        let measured = |s: &task::Summary| s.test_by_memory.map(|by| (by.as_trained, by.replayed));
        assert_eq!(measured(&as_trained), Some((by_memory.as_trained, None)));
        assert_eq!(measured(&replayed), Some((None, by_memory.replayed)));

        // A test part that begins elsewhere needs another memory than the one in the checkpoint.
        let mut longer = config.clone();
        longer.data.val = 0.2;
        assert_eq!(evaluate(&longer, false).unwrap_err().kind(), ErrorKind::Checkpoint);
        assert_ne!(evaluate(&longer, true).unwrap().test, by_memory.replayed);
    }
}

#[test]
fn protocol_tgl_tests_with_replayed_memory_and_a_model_without_memory_has_one_score() {
    let (events, dir) = (small(900), tempfile::tempdir().unwrap());
    let tgl = Config { protocol: Protocol::Tgl, learning_rate: 1e-2, ..config(2, 8) };
    let summary = run(&tgl, &events, Some(dir.path()), false).unwrap();
    let by_memory = summary.test_by_memory.unwrap();
    assert_eq!(summary.test, by_memory.replayed);
    assert!(by_memory.as_trained.is_some() && by_memory.as_trained != by_memory.replayed);
    let (from, cpu) = (Checkpoint::at(dir.path()), Device::cpu(1).unwrap());
    let again = task::evaluate(&from, &tgl, &events, &cpu, "", false, &mut ()).unwrap();
    assert_eq!(again.test, summary.test);

    let tgat = TgatConfig { time: 8, embedding: 8, neighbors: 3, layers: 1, ..TgatConfig::default() };
    let tgat = Config { model: ModelName::Tgat, tgat, ..tgl };
    let summary = run(&Config { settle: true, ..tgat }, &events, None, false).unwrap();
    assert!(summary.test.is_some() && summary.test_by_memory.is_none() && summary.settled.is_none());
}

#[test]
fn a_settled_model_scores_the_same_with_replayed_memory_to_the_last_bit() {
    let events = small(900);
    for mut config in with_memory() {
        (config.settle, config.learning_rate, config.chunks) = (true, 1e-2, 4);
        (config.tgn.dropout, config.dyrep.dropout, config.apan.dropout) = (0.1, 0.1, 0.1);
        let mut task = EventTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap();
        for epoch in 0..2 {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
        }
        task.remembering().unwrap().settle(2, &mut |_| {}).unwrap().unwrap();
        task.validate(&mut |_| {}).unwrap();
        let as_trained = task.test(&mut |_| {}).unwrap();
        task.remembering().unwrap().replay(&mut |_| {}).unwrap();
        assert_eq!(as_trained, task.test(&mut |_| {}).unwrap(), "{:?}", config.model);
    }
}

#[test]
fn settling_changes_nothing_before_it_and_is_reproduced_by_evaluation_and_by_a_resumed_run() {
    let (events, dir) = (small(900), tempfile::tempdir().unwrap());
    for (at, config) in with_memory().into_iter().enumerate() {
        let config = Config { settle: true, learning_rate: 1e-2, ..config };
        let out = dir.path().join(at.to_string());
        let summary = run(&config, &events, Some(&out), false).unwrap();
        let unsettled = run(&Config { settle: false, ..config.clone() }, &events, None, false).unwrap();
        let losses = |s: &task::Summary| s.epochs.iter().map(|e| e.train_loss.to_bits()).collect::<Vec<_>>();
        assert_eq!((losses(&unsettled), unsettled.test), (losses(&summary), summary.test));
        let (by_memory, before) = (summary.test_by_memory.unwrap(), unsettled.test_by_memory.unwrap());
        assert!(by_memory.replayed.is_some() && by_memory.replayed != before.replayed);
        let settled = summary.settled.unwrap();
        assert_eq!((Some(settled.epoch), settled.val.is_some()), (summary.best_epoch, true));

        let (from, cpu) = (Checkpoint::at(&out), Device::cpu(1).unwrap());
        let again = |replay| task::evaluate(&from, &config, &events, &cpu, "", replay, &mut ()).unwrap().test;
        assert_eq!((again(false), again(true)), (by_memory.as_trained, by_memory.replayed));
        let longer = Config { epochs: 3, ..config.clone() };
        let resumed = run(&longer, &events, Some(&out), true).unwrap();
        let at_once = run(&longer, &events, None, false).unwrap();
        assert_eq!(resumed.test_by_memory, at_once.test_by_memory);
    }
}

#[test]
fn settling_fixes_the_weights_that_write_memory_at_their_average_over_the_steps_of_the_last_epochs() {
    let events = small(300);
    // One step per epoch.
    let config = Config { settle: true, batch: 1000, eval_batch: 1000, learning_rate: 1e-2, ..config(4, 8) };
    let mut task = EventTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap();
    let read = |task: &EventTask| -> Vec<f32> {
        let writers = task.core.parameters.iter().filter(|p| p.0.starts_with("memory."));
        writers.flat_map(|p| task.core.store.read::<f32>(p.1).unwrap().to_vec()).collect()
    };
    let mut weights = Vec::new();
    for epoch in 0..4 {
        task.train_epoch(epoch, &mut |_| {}).unwrap();
        weights.push(read(&task));
    }
    assert!(task.remembering().unwrap().settle(4, &mut |_| {}).unwrap().is_some());
    for (i, average) in read(&task).into_iter().enumerate() {
        let first = (weights[0][i] + weights[1][i] + weights[2][i]) / 3.0;
        let wanted = first + (weights[3][i] - first) / 3.0;
        assert!((average - wanted).abs() <= 1e-6 * (1.0 + wanted.abs()), "{average} is not {wanted}");
    }
}

#[test]
fn the_program_prints_both_scores_and_eval_replay_prints_the_second() {
    let dir = made();
    let dir = dir.path();
    let ran = done(dir, &small_words(&["--out", "run"]));
    for row in ["\n  transductive  tgn  ", "\n                tgn, memory replayed  "] {
        assert!(ran.out.contains(row), "no `{row}` in\n{}", ran.out);
    }
    let summary = json(&std::fs::read_to_string(dir.join("run/summary.json")).unwrap());
    let again = json(&done(dir, &["eval", "--checkpoint", "run", "--replay", "--json"]).out);
    assert_eq!(again["test"], summary["test_by_memory"]["replayed"]);
    assert!(again["test_by_memory"]["as_trained"].is_null());
}
