//! Several ranks on CUDA devices: what they compute equals what one device computes.
use crate::support::{
    devices::{TestDevice, devices, drawn},
    program::{made, program, small as small_words},
    ranks::{STATE, accessed_on, apart, check_log, frozen, of_model, parts_plan, plan_file, tensors},
    trainings::{config, small},
};
use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tgnn::{
    autograd::Program,
    error::{Error, ErrorKind, Result},
    ops::{
        Backend, Link, Tape,
        exchange_rows::{Parts, RowsToSend},
    },
    runtime::{
        DType, Device, Precision, Rows, Spec, Store, StoredAs, Var,
        comm::{Channel, Comm, DEADLINE, Local, Ranks, TrafficKind},
    },
};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    plan::Choice,
    task::{self, Config, EventTask, RunOptions, Summary, Task, on_local_ranks},
};

/// Trains over `ranks` ranks on `devices`, with `out` as the folder of the run.
fn train(
    ranks: usize,
    devices: &[TestDevice],
    config: &Config,
    events: &Events,
    out: &Path,
) -> Result<Summary> {
    let options = RunOptions { out: Some(out.into()), ..RunOptions::default() };
    let open = |rank: usize| Ok(devices[rank % devices.len()].device());
    on_local_ranks(ranks, DEADLINE, open, |device| task::train(config, events, &device, &options, &mut ()))
}

/// A connection of ranks that behave as if they were processes: their devices need NCCL.
#[derive(Debug)]
struct Apart(Arc<dyn Comm>);

impl Comm for Apart {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn all_to_all(&self, send: &[u8], sent: &[usize], recv: &mut [u8], received: &[usize]) -> Result<()> {
        self.0.all_to_all(send, sent, recv, received)
    }
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[usize]) -> Result<()> {
        self.0.all_gather(send, recv, counts)
    }
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.broadcast(root, bytes)
    }
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.0.send(to, bytes)
    }
    fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.recv(from, bytes)
    }
    fn barrier(&self) -> Result<()> {
        self.0.barrier()
    }
    fn split(&self, groups: usize) -> Result<Arc<dyn Comm>> {
        Ok(Arc::new(Apart(self.0.split(groups)?)))
    }
    fn fail(&self, reason: &str) {
        self.0.fail(reason)
    }
    fn abandon(&self, reason: &str) {
        self.0.abandon(reason)
    }
    fn deadline(&self) -> Duration {
        self.0.deadline()
    }
    fn check(&self) -> Result<()> {
        self.0.check()
    }
    fn describe(&self) -> String {
        "apart".into()
    }
}

/// Runs `work` as every rank, each with a device and connected as processes are. Returns the results, or the
/// first error.
fn as_processes<T: Send>(
    deadline: Duration,
    devices: &[TestDevice],
    work: impl Fn(Device) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let devices: Vec<&TestDevice> = devices.iter().collect();
    as_processes_on(deadline, &devices, work)
}

/// As [`as_processes`]; ranks may share a device.
fn as_processes_on<T: Send>(
    deadline: Duration,
    devices: &[&TestDevice],
    work: impl Fn(Device) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let run = |comm: Local, device: &TestDevice| {
        let comm: Arc<dyn Comm> = Arc::new(Apart(Arc::new(comm)));
        let done = Ranks::new(Arc::clone(&comm)).and_then(|ranks| work(device.device().over(ranks)));
        done.inspect_err(|e| comm.fail(&e.to_string()))
    };
    thread::scope(|scope| {
        let ranks = Local::with_deadline(devices.len(), deadline).into_iter().zip(devices);
        let ranks: Vec<_> = ranks.map(|(comm, device)| scope.spawn(|| run(comm, device))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Runs each collective on a rank, and returns the bytes of everything that it receives.
fn collectives(device: &Device, backend: Backend) -> Result<Vec<Vec<u8>>> {
    let ranks = device.ranks().unwrap().clone();
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let routes = Link::new(&mut store, &ranks, Channel::Routes)?;
    let rows = Link::new(&mut store, &ranks, Channel::Rows)?;
    let gradients = Link::new(&mut store, &ranks, Channel::Gradients)?;
    // Rank r sends r + 2 s ids to rank s, none to rank 1. So ranks have memory for different numbers of ids.
    let counts: Vec<u32> = (0..size).map(|s| if s == 1 { 0 } else { (rank + 2 * s) as u32 }).collect();
    let sum = counts.iter().sum::<u32>() as usize;
    let ids: Vec<u32> = (0..sum).map(|i| ((7 * i + 3 * rank) % 11) as u32).collect();
    let id = t.input(&mut store, "id", Spec::ids(Rows::fixed(sum), 1), &ids)?;
    let counts = t.input(&mut store, "counts", Spec::ids(Rows::fixed(size), 1), &counts)?;
    let asked = t.exchange_ids(&routes, id, Some(counts), 200)?;
    let all = t.exchange_ids(&routes, id, None, 1_000)?;
    // The rows asked for go back; tables of every width and type.
    let parts = Parts { like: id, recv_counts: counts, send_counts: Some(asked.counts) };
    let mut picked = Vec::new();
    for (width, stored) in [(5, StoredAs::F32), (8, StoredAs::F32), (3, StoredAs::F16), (4, StoredAs::Bf16)] {
        let spec = Spec { dtype: stored.dtype(), ..Spec::real(Rows::fixed(11), width) };
        let values: Vec<f32> = (0..11 * width).map(|i| (i + 1000 * rank) as f32 / 8.0).collect();
        let table = store.zeros(format!("table {}", picked.len()), spec)?;
        match stored {
            StoredAs::F32 => store.write(table, &values)?,
            _ => stored.round(&values, bytemuck::cast_slice_mut(store.raw_mut(table)?)),
        }
        picked.push(RowsToSend::from((t.stored(table)?, asked.id)));
    }
    let times: Vec<i64> = (0..22).map(|i| i - 9 + 100 * rank as i64).collect();
    let times =
        t.input(&mut store, "times", Spec { dtype: DType::I64, ..Spec::real(Rows::fixed(22), 1) }, &times)?;
    picked.push(RowsToSend { each: 2, ..RowsToSend::from((times, asked.id)) });
    let mut outs = t.exchange_rows(&rows, TrafficKind::Dispatch, parts, &picked)?;
    let everyone = Parts { like: all.id, recv_counts: all.counts, send_counts: None };
    let own = [(picked[0].table, id).into()];
    outs.extend(t.exchange_rows(&rows, TrafficKind::Aggregation, everyone, &own)?);
    let back = Parts { like: asked.id, recv_counts: asked.counts, send_counts: Some(counts) };
    let back_again = [outs[0], outs[1]];
    outs.extend(t.exchange_all_rows(&rows, TrafficKind::DispatchGradients, back, &back_again)?);
    let values = [(3, 5), (64, 17), (0, 2), (1, 1)].map(|(n, d)| {
        let values: Vec<f32> = (0..n * d).map(|i| ((i * 37 + rank * 11) % 101) as f32 / 7.0).collect();
        t.input(&mut store, format!("{n} {d}"), Spec::real(Rows::fixed(n), d), &values)
    });
    let values: Vec<Var> = values.into_iter().collect::<Result<_>>()?;
    outs.extend(t.all_reduce(&gradients, &values)?);
    let ids = [asked.id, asked.counts, all.id, all.counts];
    let keep: Vec<Var> = outs.iter().copied().chain(ids).collect();
    let mut program = Program::new(&t, &keep, Precision::F32, backend)?;
    let mut received = Vec::new();
    for _ in 0..3 {
        program.run(&mut store)?;
        for &out in &outs {
            received.push(match t.spec(out).dtype {
                DType::I64 => bytemuck::cast_slice(program.read::<i64>(out, &store)?).to_vec(),
                _ => bytemuck::cast_slice(program.read::<f32>(out, &store)?).to_vec(),
            });
        }
        for id in ids {
            received.push(bytemuck::cast_slice(program.read::<u32>(id, &store)?).to_vec());
        }
    }
    Ok(received)
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn devices_receive_the_same_bytes_as_processors() {
    for (ranks, seed) in [(2, 0), (3, 1), (8, 2), (4, 5)] {
        let Some(devices) = devices(ranks, seed) else { return };
        // What each rank receives, by a backend for each.
        let received = |on: &(dyn Fn(usize) -> Backend + Sync)| {
            let all = Mutex::new(BTreeMap::new());
            let work = |device: Device| {
                let rank = device.ranks().unwrap().rank();
                let received = collectives(&device, on(rank))?;
                all.lock().unwrap().insert(rank, received);
                Ok(())
            };
            on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), work).unwrap();
            all.into_inner().unwrap()
        };
        let want = received(&|_| Backend::Cpu);
        // Each rank has a device, or they share one or two.
        let all_devices = devices.len() >= ranks;
        for number in [devices.len(), 1, 2].into_iter().take(if all_devices { 3 } else { 1 }) {
            let found = received(&|rank| Backend::Cuda(devices[rank % number].gpu.clone()));
            assert!(found == want, "{ranks} ranks on {number} devices: {found:?}, want {want:?}");
        }
        if !all_devices {
            continue; // NCCL wants a device for each rank
        }
        let by_nccl = as_processes(DEADLINE, &devices, |device| {
            let rank = device.ranks().unwrap().rank();
            Ok((rank, collectives(&device, Backend::Cuda(devices[rank].gpu.clone()))?))
        });
        assert!(by_nccl.unwrap().into_iter().all(|(rank, received)| received == want[&rank]));
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn by_nccl_ranks_train_as_by_windows_and_need_a_device_each() {
    let events = small(450);
    let Some(devices) = devices(2, 3).filter(|devices| devices.len() == 2) else { return };
    let config = of_model(ModelName::Tgn, "sven-cached", 1);
    let dir = tempfile::tempdir().unwrap();
    let shares = plan_file(dir.path(), "partitioned", "", "");
    for config in [&config, &Config { plan: shares, ..config.clone() }] {
        let trained = |device: Device| {
            let mut task = EventTask::new(config, &events, device)?;
            let first = task.train_epoch(0, &mut |_| {})?;
            Ok((first, task.train_epoch(1, &mut |_| {})?))
        };
        let by_windows = on_local_ranks(2, DEADLINE, |rank| Ok(devices[rank].device()), trained).unwrap();
        for losses in as_processes(DEADLINE, &devices, trained).unwrap() {
            assert_eq!(losses, by_windows);
        }
    }
    // A rank that stays away.
    let away = as_processes(Duration::from_secs(1), &devices, |device| {
        let rank = device.ranks().unwrap().rank();
        let mut task = EventTask::new(&config, &events, device)?;
        task.train_epoch(0, &mut |_| {})?;
        if rank == 1 {
            thread::sleep(Duration::from_secs(3));
            return Ok(());
        }
        task.train_epoch(1, &mut |_| {}).map(drop)
    });
    let away = away.unwrap_err();
    assert_eq!(away.kind(), ErrorKind::Comm);
    assert!(away.to_string().contains("no answer"), "{away}");
    // Two ranks on one device.
    let same = [&devices[0], &devices[0]];
    let shared = as_processes_on(DEADLINE, &same, |device| {
        EventTask::new(&config, &events, device)?.train_epoch(0, &mut |_| {})
    });
    let e = shared.unwrap_err();
    assert!(e.to_string().contains("two ranks have the same device"), "{e}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn with_frozen_weights_the_memory_on_devices_has_the_same_bits_for_any_number_of_ranks() {
    let events = small(450);
    let dir = tempfile::tempdir().unwrap();
    let parts = parts_plan(dir.path(), "3");
    let cases = [
        (ModelName::Tgn, "auto"),
        (ModelName::Tgn, "depcomm"),
        (ModelName::Tgn, "sven-cached"),
        (ModelName::Tgn, &parts),
        (ModelName::Apan, "sven-cached"),
        (ModelName::Tgn, "depcache"),
        (ModelName::Tgn, "sven"),
        (ModelName::Jodie, "sven-cached"),
    ];
    let mut one = None;
    for (case, _) in drawn(0, 5, cases.len()) {
        let ((model, plan), ranks) = (cases[case], 2 + case % 2);
        // Streams run in order, and in any order that events and the other ranks allow.
        let Some(devices) = devices(ranks, case as u64) else { return };
        let left = |ranks, plan: &str| {
            let frozen = Config { learning_rate: 1e-30, settle: false, ..of_model(model, plan, 1) };
            let dir = tempfile::tempdir().unwrap();
            train(ranks, &devices, &frozen, &events, dir.path()).unwrap();
            let state = tensors(dir.path(), 1).into_iter().filter(|t| STATE.contains(&t.0.as_str()));
            state.collect::<Vec<_>>()
        };
        let (_, alone) = match one.take().filter(|(of, _)| *of == model) {
            Some(known) => one.insert(known),
            None => one.insert((model, left(1, "sequential"))),
        };
        assert!(!alone.is_empty());
        for (a, b) in alone.iter().zip(left(ranks, plan)) {
            assert!(*a == b, "{model:?}, {plan}, {ranks} ranks: {}", a.0);
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn with_frozen_weights_turns_leave_the_memory_of_one_device() {
    let events = small(450);
    let cases = [
        (ModelName::Tgn, "1x2x1"),
        (ModelName::Tgn, "1x1x3"),
        (ModelName::Tgn, "2x2x1"),
        (ModelName::Apan, "1x2x2"),
    ];
    for (case, _) in drawn(1, 2, cases.len()) {
        let (model, parallel) = cases[case];
        let ranks: usize = parallel.split('x').map(|n| n.parse::<usize>().unwrap()).product();
        let Some(devices) = devices(ranks, case as u64) else { return };
        let numbers: Vec<usize> = parallel.split('x').map(|n| n.parse().unwrap()).collect();
        let left = |ranks, plan: &str, epochs: usize| {
            let dir = tempfile::tempdir().unwrap();
            let config = Config { evaluate: false, ..frozen(model, plan, epochs) };
            train(ranks, &devices, &config, &events, dir.path()).unwrap();
            let state = tensors(dir.path(), epochs).into_iter();
            state.filter(|t| STATE.contains(&t.0.as_str())).collect::<Vec<_>>()
        };
        let plan = format!("disttgl:{parallel}");
        let (one, several) = (left(1, "sequential", 1), left(ranks, &plan, numbers[1] * numbers[2]));
        assert!(!one.is_empty() && one == several, "{model:?}, {parallel}");
        let config = frozen(model, &plan, 1);
        let open = |rank: usize| Ok(devices[rank % devices.len()].device());
        let (log, batches, _) = accessed_on((ranks, numbers[2]), &open, &config, &events);
        check_log(&log, numbers.try_into().unwrap(), batches, parallel);
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn on_devices_too_a_fitted_number_of_micro_batches_has_the_bits_of_that_number() {
    let (events, plans) = (small(900), tempfile::tempdir().unwrap());
    let Some(devices) = devices(2, 0) else { return };
    let trained = |micro_batches: &str| {
        let dir = tempfile::tempdir().unwrap();
        let config = of_model(ModelName::Jodie, &parts_plan(plans.path(), micro_batches), 1);
        let summary = train(2, &devices, &config, &events, dir.path()).unwrap();
        (summary, tensors(dir.path(), 1))
    };
    let (fitted, found) = trained("\"fitted\"");
    let Some(Choice::MicroBatches(choice)) = fitted.chosen else { panic!("{:?}", fitted.chosen) };
    assert!(choice.fit.is_some_and(|fit| fit.volume.at(100.0) > 0.0), "{choice:?}");
    let (given, want) = trained(&choice.micro_batches.to_string());
    assert!(found == want && fitted.ranks == given.ranks, "{choice:?}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn losses_scores_and_weights_of_ranks_on_devices_are_those_of_one() {
    let events = small(450);
    let Some(devices) = devices(3, 0) else { return };
    for (plan, ranks) in [("auto", 3), ("sven", 2)] {
        let trained = |ranks, plan| {
            let dir = tempfile::tempdir().unwrap();
            let config = of_model(ModelName::Tgn, plan, 2);
            let summary = train(ranks, &devices, &config, &events, dir.path()).unwrap();
            (summary, tensors(dir.path(), 2))
        };
        // Old gradients have other results, the same for any number of ranks.
        let (one, weights) = trained(1, if plan == "sven" { plan } else { "sequential" });
        let (other, other_weights) = trained(ranks, plan);
        for (a, b) in one.epochs.iter().zip(&other.epochs) {
            assert!((a.train_loss - b.train_loss).abs() < 1e-5, "{plan}: {a:?} {b:?}");
        }
        let [a, b] = [&one, &other].map(|s| s.test.unwrap().transductive.ap.unwrap());
        assert!((a - b).abs() < 2e-3, "{plan}: {a} {b}");
        let learned = |name: &str| !STATE.contains(&name) && !name.starts_with("adam.");
        for (a, b) in weights.iter().zip(&other_weights).filter(|(a, _)| learned(&a.0)) {
            // Adam divides gradients by their size, so rounding moves the weights of tiny ones, too.
            assert!(apart(&a.1, &b.1) < 4e-3, "{plan}: {} {}", a.0, apart(&a.1, &b.1));
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn ranks_compute_the_same_bits_on_a_device_of_their_own_and_on_one_that_they_share() {
    let events = small(450);
    let Some(devices) = devices(4, 3).filter(|devices| devices.len() == 4) else { return };
    let plans = [
        ("auto", ModelName::Tgn, 3),
        ("sven", ModelName::Tgn, 3),
        ("pipetgl", ModelName::Jodie, 2),
        // Each of two groups of ranks has a rank on each of two devices.
        ("disttgl:2x1x2", ModelName::Jodie, 4),
    ];
    for (at, (plan, model, ranks)) in plans.into_iter().enumerate() {
        // The second epoch is a graph where it can be.
        let config = Config { evaluate: false, max_batches: 3, ..of_model(model, plan, 2) };
        let trained = |number: usize, connections: u32| {
            devices.iter().for_each(|device| device.connections(connections));
            let dir = tempfile::tempdir().unwrap();
            let summary = train(ranks, &devices[..number], &config, &events, dir.path()).unwrap();
            let graphs = summary.epochs.iter().filter_map(|epoch| epoch.graphs_captured).sum::<usize>();
            let losses: Vec<f64> = summary.epochs.iter().map(|epoch| epoch.train_loss).collect();
            let last = summary.epochs.last().map_or(0, |epoch| epoch.epoch);
            (losses, summary.ranks, tensors(dir.path(), last), graphs)
        };
        let (losses, traffic, weights, graphs) = trained(ranks, 0);
        assert!(graphs > 0 || !["auto", "sven"].contains(&plan), "{plan}");
        // Devices that do everything in the order in which it was submitted, and wait whenever they may.
        let numbers = [(ranks, graphs), (1, 0), (ranks.div_ceil(2), 0)];
        for (number, graphs_of) in drawn(at, 2, numbers.len()).into_iter().map(|(number, _)| numbers[number])
        {
            let found = trained(number, 1);
            let what = format!("{plan}, {ranks} ranks on {number} devices");
            assert!(found.0 == losses && found.1 == traffic && found.2 == weights, "{what}");
            assert_eq!(found.3, graphs_of, "{what}");
        }
    }
}

/// Trains over ranks by the program, on emulated device 0 unless `words` say otherwise. Returns its exit
/// code, the last line of what it says, and the seconds that it took.
fn by_program(words: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, f64) {
    let dir = made();
    let began = Instant::now();
    let ran = Command::new(program())
        .args(small_words(&["--no-eval", "--device", "emu:0", "--max-batches", "3", "--ranks"]))
        .args(words)
        .env_remove("CUDA_DEVICE_MAX_CONNECTIONS")
        .envs(environment.iter().copied())
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    (ran.status.code(), said.lines().last().unwrap_or_default().into(), began.elapsed().as_secs_f64())
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn ranks_that_share_a_device_are_told_so_once_and_others_are_not() {
    let dir = made();
    for (device, notes) in [("emu:0", 1), ("emu", 0)] {
        let words = small_words(&["--no-eval", "--max-batches", "3", "--ranks", "3", "--device", device]);
        let ran = Command::new(program()).args(words).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        let found = said.matches("note: ranks share CUDA device 0, which may take longer").count();
        assert!(ran.status.success() && found == notes, "{device}: {said}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn words_on_a_shared_device_want_connections_that_the_program_sets_and_events_do_not() {
    // More passes would make graphs, for which this device waits until all its work is done.
    let one_pass = ["--epochs", "1", "--set", "settle=false", "--set", "static.mode=off"];
    let sven = [&["3", "--plan", "sven", "--deadline", "3"], &one_pass[..]].concat();
    let (words, as_cuda) = (("TGNN_EXCHANGE", "words"), ("TGNN_EMU_CONNECTIONS", "cuda"));
    let few = ("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    let (code, said, _) = by_program(&sven, &[as_cuda, few]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, _) = by_program(&sven, &[as_cuda, words]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, seconds) = by_program(&sven, &[as_cuda, words, few]);
    assert!(code == Some(8) && said.contains("no answer from") && said.contains(" within 3 s"), "{said}");
    assert!(seconds < 20.0, "{seconds} s: {said}");
    let (code, said, _) = by_program(&sven, &[("TGNN_EXCHANGE", "letters")]);
    assert!(code == Some(2) && said.contains("TGNN_EXCHANGE is `letters`, not words or events"), "{said}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn the_deadline_ends_ranks_whose_driver_does_not_answer_and_says_where_they_are() {
    let hangs = ("TGNN_EMU_DEFECT", "hang:write_values_to_window");
    let (code, said, seconds) = by_program(&["2", "--deadline", "2"], &[hangs]);
    assert_eq!(code, Some(8), "{said}");
    assert!(
        said.starts_with("error: rank ") && said.contains("no answer from the driver within 2 s"),
        "{said}"
    );
    assert!(said.contains("launching all_reduce (reduce_gradients)"), "{said}");
    assert!(seconds < 15.0, "{seconds} s: {said}");
    // Work that does not end: the rank notices, but cannot free its memory.
    for (device, missing) in [("emu:0", "the device"), ("emu", "rank ")] {
        let stalls = ("TGNN_EMU_DEFECT", "stall:write_values_to_window");
        let (code, said, seconds) = by_program(&["2", "--device", device, "--deadline", "2"], &[stalls]);
        assert!(code == Some(8) && said.contains(&format!("no answer from {missing}")), "{said}");
        assert!(said.contains("gradients") && seconds < 20.0, "{seconds} s: {said}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn the_same_rows_travel_between_devices_as_between_processors() {
    let events = small(450);
    let Some(devices) = devices(3, 0) else { return };
    let sent = |plan: &str, open: &(dyn Fn(usize) -> Device + Sync)| {
        let work = |device: Device| {
            let traffic = Arc::clone(device.ranks().unwrap().traffic());
            let mut task = EventTask::new(&of_model(ModelName::Tgn, plan, 1), &events, device)?;
            task.train_epoch(0, &mut |_| {})?;
            Ok(TrafficKind::ALL.map(|kind| (kind, traffic.rows(kind), traffic.bytes(kind))))
        };
        on_local_ranks(3, DEADLINE, |rank| Ok(open(rank)), work).unwrap()
    };
    for plan in ["auto", "sven-cached", "depcache"] {
        let on_cpu = sent(plan, &|_| Device::cpu(1).unwrap());
        let on_devices = sent(plan, &|rank| devices[rank % devices.len()].device());
        for (a, b) in on_cpu.into_iter().zip(on_devices) {
            match a.0 {
                // A device sends every term of a sum, a processor one piece of it and one sum.
                TrafficKind::Gradients => {
                    assert!(a.1 == b.1 && (3 * a.2).abs_diff(2 * b.2) < 100, "{plan}: {a:?} {b:?}");
                }
                _ => assert_eq!(a, b, "{plan}"),
            }
        }
        assert!(on_cpu.iter().any(|(kind, rows, _)| *kind == TrafficKind::Aggregation && *rows > 0));
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_rank_that_is_lost_ends_the_ranks_whose_devices_wait_for_it() {
    let events = small(300);
    let Some(devices) = devices(3, 0) else { return };
    let open = |rank: usize| Ok(devices[rank % devices.len()].device());
    let sven = of_model(ModelName::Tgn, "sven", 1);
    let lose = |deadline, lost: &(dyn Fn() -> Result<()> + Sync)| {
        let work = |device: Device| {
            let rank = device.ranks().unwrap().rank();
            let mut task = EventTask::new(&sven, &events, device)?;
            task.train_epoch(0, &mut |_| {})?;
            if rank == 1 {
                return lost();
            }
            task.train_epoch(1, &mut |_| {}).map(drop)
        };
        on_local_ranks(3, deadline, open, work).unwrap_err()
    };
    let failed = lose(DEADLINE, &|| Err(Error::usage("planted")));
    assert_eq!(failed.to_string(), "planted");
    // A rank that stays away is named after the deadline.
    let away = lose(Duration::from_secs(1), &|| {
        thread::sleep(Duration::from_secs(4));
        Ok(())
    });
    assert_eq!(away.kind(), ErrorKind::Comm);
    assert!(away.to_string().contains("no answer from rank 1"), "{away}");
    // A rank that ends in the middle of a pass frees memory, for which a device may first wait for the work
    // of the ranks that share it. That work waits for this rank.
    let share = |_| Ok(devices[0].device());
    let long = Config { batch: 2, eval_batch: 2, max_batches: 96, ..of_model(ModelName::Jodie, "sven", 1) };
    let began = Instant::now();
    let stopped = on_local_ranks(2, DEADLINE, share, |device| {
        let stops = device.ranks().unwrap().rank() == 1;
        EventTask::new(&long, &events, device)?.train_epoch(0, &mut |p| p.stop.set(stops)).map(drop)
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(began.elapsed() < DEADLINE, "the ranks waited for one another");
    // The devices can be used again.
    let again = on_local_ranks(2, DEADLINE, open, |device| {
        EventTask::new(&config(1, 8), &events, device)?.train_epoch(0, &mut |_| {}).map(drop)
    });
    again.unwrap();
}
