//! What a plan says without effect is said when a run starts, and what cannot be done is refused.
use crate::{
    plans::rich,
    support::{
        program::refused,
        snapshots::{config as snapshot_config, turning},
        trainings::small_config,
    },
};
use tgnn::runtime::{Device, comm::DEADLINE};
use tgnn_training::{
    model::ModelName,
    task::{Config, EventTask, SnapshotTask, Task, on_local_ranks},
};

/// Returns the notes of a task on its plan.
fn of_plan(task: &dyn Task) -> Vec<String> {
    let about = |note: &String| ["plan ", "effect", "epochs instead"].iter().any(|word| note.contains(word));
    task.remarks().into_iter().map(|(_, note)| note).filter(about).collect()
}

#[test]
fn what_a_plan_says_without_effect_is_said_and_what_cannot_be_done_is_refused() {
    let (events, dir) = (rich(), tempfile::tempdir().unwrap());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(format!("{name}.toml"));
        std::fs::write(&path, format!("name = \"{name}\"\n{text}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let of = |model, plan: &str| Config { model, plan: plan.into(), batch: 40, ..small_config(model, 8) };
    let notes = |ranks, config: &Config| -> Vec<String> {
        let work = |device: Device| {
            let task = EventTask::new(config, &events, device)?;
            Ok(of_plan(&task))
        };
        match ranks {
            1 => work(Device::cpu(1).unwrap()).unwrap(),
            _ => on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), work).unwrap(),
        }
    };
    let parts = file("parts", "[ranks]\nupdate = \"readers\"\nmicro_batches = 4\n");
    let shared =
        file("shared", "[ranks]\nmemory = \"replicated\"\nmicro_batches = 4\nupdate = \"readers\"\n");
    let features = file("features", "[ranks]\nfeatures = \"partitioned\"\n");
    let named = |config: Config| Config { partition: "range".into(), ..config };
    let (tgn, apan, tgat) = (ModelName::Tgn, ModelName::Apan, ModelName::Tgat);
    for (ranks, config, said) in [
        (
            1,
            of(tgn, "sven"),
            "plan sven is for several ranks: with one, its section [ranks] has no effect; gradients \
                              are 1 step old all the same",
        ),
        (
            1,
            of(tgn, "depcache"),
            "plan depcache is for several ranks: with one, its section [ranks] has no effect",
        ),
        (1, of(tgn, "pipetgl"), "its section [ranks] has no effect"),
        (1, named(of(tgn, "auto")), "partition has no effect: one rank has the memory of all nodes"),
        (2, named(of(tgn, "depcache")), "partition has no effect: every rank has the memory of all nodes"),
        (2, of(apan, &parts), "ranks.micro_batches has no effect: apan updates its rows in one part"),
        (
            2,
            of(tgn, &shared),
            "ranks.update and ranks.micro_batches have no effect: every rank has the memory",
        ),
        (2, of(ModelName::DyRep, "depcomm"), "ranks.deduplicate has no effect: dyrep lists a node once"),
        (2, of(tgat, "sven"), "ranks.partition and ranks.update have no effect: tgat has no node memory"),
        (3, Config { epochs: 4, ..of(tgn, "disttgl:1x3x1") }, "6 epochs instead of 4"),
        (
            9,
            of(ModelName::Jodie, "pipetgl"),
            "a round of 9 ranks has as many steps, and stages run at most 8 steps ahead",
        ),
    ] {
        let notes = notes(ranks, &config);
        assert!(notes.iter().any(|note| note.contains(said)), "{said}: {notes:?}");
    }
    // Nothing is said of what has an effect.
    for (ranks, config) in [
        (1, of(tgn, "sequential")),
        (1, of(tgn, "mspipe")),
        (1, of(tgat, "prefetch")),
        (2, of(tgn, "auto")),
        (2, of(tgn, &parts)),
        (2, of(tgn, &features)),
        (2, of(tgn, "depcomm")),
        (2, named(of(tgn, "sven"))),
        (2, of(apan, "sven-cached")),
        (2, of(tgn, "disttgl:2x1x1")),
        (8, of(ModelName::Jodie, "pipetgl:k=1")),
    ] {
        assert_eq!(notes(ranks, &config), Vec::<String>::new(), "{}, {ranks} ranks", config.plan);
    }
    let refused = |words: &[&str], said: &str| {
        refused(dir.path(), &[&["train", "--data", "none.csv"], words].concat(), 2, &[said]);
    };
    // Before the data are read.
    refused(
        &["--model", "tgat", "--plan", "mspipe"],
        "plan mspipe reads older node memory, and the model tgat has none",
    );
    refused(&["--model", "t-gcn", "--plan", "mspipe"], "the model t-gcn has none");
    refused(&["--model", "graph-mixer", "--plan", "mspipe-s:k=0"], "the model graph-mixer has none");
    refused(&["--model", "t-gcn", "--ranks", "2"], "models of snapshots do not train over ranks yet");
    refused(&["--task", "property", "--ranks", "2"], "task property trains on one rank");
    refused(&["--ranks", "2", "--plan", "disttgl:1x1x2", "--chunks", "2"], "has 2 memory copies");
}

#[test]
fn plans_of_snapshots_say_what_they_do_not_do() {
    let notes = |plan: &str, batch| {
        let mut config = Config { plan: plan.into(), ..snapshot_config(ModelName::TGcn, 8) };
        config.group.batch = batch;
        let task = SnapshotTask::new(&config, &turning(12, 10, 2), Device::cpu(1).unwrap()).unwrap();
        of_plan(&task)
    };
    let waits = "so the first lane waits in every group for the gradient of the second";
    assert!(notes("blad", 1)[0].contains(waits), "{:?}", notes("blad", 1));
    assert!(notes("blad-even", 2).is_empty() && notes("sequential", 1).is_empty());
    assert!(notes("presample", 1).is_empty(), "sampling is on another lane");
    let dir = tempfile::tempdir().unwrap();
    for (text, said) in [
        (
            "[groups]\nfirst = 99\n",
            "groups.first is 99, and a group has 3 snapshots: all are on the first lane",
        ),
        (
            "[stages.fetch_memory]\nlane = 3\n",
            "plan mine does what sequential does: a step of t-gcn has no op in fetch_memory",
        ),
    ] {
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, format!("name = \"mine\"\n{text}")).unwrap();
        let notes = notes(path.to_str().unwrap(), 2);
        assert!(notes.len() == 1 && notes[0].contains(said), "{notes:?}");
    }
}
