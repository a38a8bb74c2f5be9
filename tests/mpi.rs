//! Ranks connected by MPI. A test starts this test binary several times by `mpirun`, of Open MPI and of
//! MPICH; each process then does the work of one rank in [`one_rank_of_another_test`].
use crate::support::launcher::*;
use std::{env, path::PathBuf, sync::Arc, thread, time::Duration};
use tgnn::{
    error::{ErrorKind, Result},
    runtime::comm::{Channel, Comm, Mpi, Ranks, all_reduce, launched, local, mpi, mpi_library},
};

/// The deadline of ranks that wait for a rank that does not come.
const SHORT: Duration = Duration::from_secs(3);
/// The deadline of ranks that should all come.
const LONG: Duration = Duration::from_secs(60);
/// Time for which a rank stays away: for good.
const AWAY: Duration = Duration::from_secs(600);

/// Prints a line for [`Ran::said`].
fn say(text: impl std::fmt::Display) {
    println!("says {text}");
}

/// Not a test of its own: does the work of one rank, if a test has started this process.
#[test]
fn one_rank_of_another_test() {
    let Ok(work) = env::var(WORK) else { return };
    println!("\nprocess {}", std::process::id());
    let deadline = if work.starts_with("fail") { SHORT } else { LONG };
    let done = mpi(deadline).and_then(|comm| match do_work(&work, &comm) {
        Ok(()) => comm.finish(),
        Err(e) => {
            // As the program does.
            eprintln!("error: {e}");
            comm.fail(&e.to_string());
            unreachable!("all ranks end");
        }
    });
    if let Err(e) = done {
        eprintln!("error: {e}");
        std::process::exit(e.kind().exit_code().into());
    }
}

fn do_work(work: &str, comm: &Arc<Mpi>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    match work {
        "start" => say(format_args!("{rank} of {size} by {}", comm.describe())),
        "collectives" => collectives(comm)?,
        "sums" => sums(comm)?,
        "messages" => messages(comm)?,
        "channels" => channels(comm)?,
        "finish twice" => {
            comm.finish()?;
            let ended = comm.barrier().unwrap_err();
            say(ended);
            comm.fail("planted"); // has nobody to tell
            std::process::exit(0);
        }
        "fail by counts" => {
            let mut all = vec![0; 3 * size];
            comm.all_gather(&[1; 3], &mut all, &vec![3; size])?;
            // Rank 1 sends one byte less than the others expect.
            let counts: Vec<usize> = (0..size).map(|r| if r == 1 && rank == 1 { 2 } else { 3 }).collect();
            comm.all_gather(&vec![1; counts[rank]], &mut vec![0; counts.iter().sum()], &counts)?;
            thread::sleep(AWAY);
        }
        _ => {
            comm.barrier()?;
            if rank == 1 {
                misbehave(work);
            }
            let mut values = vec![1.0; 100_000];
            loop {
                all_reduce(&**comm, &mut values, &mut Vec::new())?;
            }
        }
    }
    Ok(())
}

/// Makes rank 1 stop to work.
fn misbehave(how: &str) {
    // SAFETY: signals to this process.
    unsafe {
        match how {
            "fail by killed" => libc::raise(libc::SIGKILL),
            "fail by stopped" => libc::raise(libc::SIGSTOP),
            _ => 0,
        }
    };
    thread::sleep(AWAY);
}

/// Bytes that rank `i` sends to rank `j` in a round: none to some, and megabytes in the last rounds.
fn bytes(i: usize, j: usize, round: usize) -> Vec<u8> {
    let n = (i * 7 + j * 13 + round) % 5 * if round < 20 { 3 } else { 100_003 };
    (0..n).map(|k| (k * 31 + i * 7 + j * 3 + round) as u8).collect()
}

/// Checks every collective against the expected bytes, with unequal and with empty parts.
fn collectives(comm: &Arc<Mpi>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    for round in 0..25 {
        let sent: Vec<Vec<u8>> = (0..size).map(|j| bytes(rank, j, round)).collect();
        let want: Vec<Vec<u8>> = (0..size).map(|i| bytes(i, rank, round)).collect();
        let counts = |parts: &[Vec<u8>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let mut recv = vec![0; want.concat().len()];
        comm.all_to_all(&sent.concat(), &counts(&sent), &mut recv, &counts(&want))?;
        assert!(recv == want.concat(), "all_to_all, round {round}");
        let all: Vec<Vec<u8>> = (0..size).map(|i| bytes(i, 0, round)).collect();
        let mut recv = vec![0; all.concat().len()];
        comm.all_gather(&all[rank], &mut recv, &counts(&all))?;
        assert!(recv == all.concat(), "all_gather, round {round}");
        let root = round % size;
        let mut recv = bytes(root, 1, round);
        if rank != root {
            recv.fill(0);
        }
        comm.broadcast(root, &mut recv)?;
        assert!(recv == bytes(root, 1, round), "broadcast, round {round}");
        comm.barrier()?;
    }
    let wrong = comm.all_gather(&[], &mut [], &vec![1; size]).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Comm);
    assert!(comm.recv(size, &mut []).unwrap_err().to_string().contains("there is no rank"));
    say(rank);
    Ok(())
}

/// Checks that sums have the same bits as those of threads of one process.
fn sums(comm: &Arc<Mpi>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let values = |rank: usize, n: usize| -> Vec<f32> {
        (0..n)
            .map(|i| ((rank * 37 + i * 11) % 101) as f32 / 7.0 * 10f32.powi((i + rank) as i32 % 9))
            .collect()
    };
    for n in [0, 1, 5, 1000, 100_003] {
        let mut own = values(rank, n);
        all_reduce(&**comm, &mut own, &mut Vec::new())?;
        let of_threads: Vec<Vec<f32>> = thread::scope(|scope| {
            let sums = local(size).into_iter().map(|comm| {
                scope.spawn(move || {
                    let mut own = values(comm.rank(), n);
                    all_reduce(&comm, &mut own, &mut Vec::new()).map(|()| own)
                })
            });
            let sums: Vec<_> = sums.collect();
            sums.into_iter().map(|sum| sum.join().unwrap()).collect::<Result<_>>()
        })?;
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&own) == bits(&of_threads[rank]), "{n} values");
    }
    say(rank);
    Ok(())
}

/// Checks that messages arrive in order, and that duplicates and groups are apart.
fn messages(comm: &Arc<Mpi>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let (first, second) = (comm.duplicate()?, comm.duplicate()?);
    if size == 4 {
        let pair = comm.split(2)?;
        assert_eq!((pair.rank(), pair.size()), (rank % 2, 2));
        let mut sum = [rank as f32];
        all_reduce(&*pair, &mut sum, &mut Vec::new())?;
        assert_eq!(sum, [if rank < 2 { 1.0 } else { 5.0 }]);
        assert_eq!(pair.split(2)?.size(), 1);
    }
    assert!(comm.split(size + 1).is_err());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    first.send(next, &[1, rank as u8])?;
    first.send(next, &[2, rank as u8])?;
    second.send(next, &[3])?;
    let (mut pair, mut one) = ([0; 2], [0; 1]);
    second.recv(last, &mut one)?;
    assert_eq!(one, [3]);
    for nth in [1, 2] {
        first.recv(last, &mut pair)?;
        assert_eq!(pair, [nth, last as u8]);
    }
    // More than MPI sends before it is received.
    let large = vec![rank as u8; 3_000_000];
    let mut other = vec![0; large.len()];
    if rank == 0 {
        first.send(next, &large)?;
        first.recv(last, &mut other)?;
    } else {
        first.recv(last, &mut other)?;
        first.send(next, &large)?;
    }
    assert!(other == vec![last as u8; large.len()]);
    say(rank);
    Ok(())
}

/// Checks that two threads use two channels at the same time, each in its own pace.
fn channels(comm: &Arc<Mpi>) -> Result<()> {
    let ranks = Ranks::new(Arc::clone(comm) as Arc<dyn Comm>)?;
    let (rank, size) = (ranks.rank(), ranks.size());
    ranks.agree("the seed", "7")?;
    assert_eq!(ranks.from_first(|| Ok(b"made".to_vec()))?, b"made");
    let (rows, gradients) = (ranks.channel(Channel::Rows), ranks.channel(Channel::Gradients));
    thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| -> Result<()> {
            for round in 0..100 {
                let mut values = vec![(rank + round) as f32; 50_000];
                all_reduce(&**gradients, &mut values, &mut Vec::new())?;
                let want = (0..size).map(|r| (r + round) as f32).sum::<f32>();
                assert!(values.iter().all(|v| *v == want), "all_reduce, round {round}");
            }
            Ok(())
        });
        for round in 0..300 {
            if round % (50 + rank) == 0 {
                thread::sleep(Duration::from_millis(5)); // the ranks' threads are apart
            }
            let counts = vec![1000; size];
            let (sent, mut recv) = (vec![(rank + round) as u8; 1000 * size], vec![0; 1000 * size]);
            rows.all_to_all(&sent, &counts, &mut recv, &counts)?;
            let want: Vec<u8> = (0..size).flat_map(|r| vec![(r + round) as u8; 1000]).collect();
            assert!(recv == want, "all_to_all, round {round}");
        }
        other.join().unwrap()
    })?;
    let differs = ranks.agree("the seed", &rank.to_string());
    assert!(size == 1 || differs.unwrap_err().to_string().contains("the ranks disagree on the seed"));
    say(rank);
    Ok(())
}

/// Runs `work` with several numbers of ranks, which must all finish it.
fn finishes(work: &str, sizes: &[usize]) {
    for mpi in installed() {
        for &size in sizes {
            let ran = run(mpi.ranks(size, work));
            let want: Vec<String> = (0..size.max(1)).map(|rank| rank.to_string()).collect();
            assert_eq!(ran.succeeded().said(), want);
        }
    }
}

#[test]
fn every_collective_brings_the_expected_bytes() {
    finishes("collectives", &[0, 2, 4]);
}

#[test]
fn sums_have_the_same_bits_as_those_of_threads() {
    finishes("sums", &[2, 3]);
}

#[test]
fn messages_arrive_in_order() {
    finishes("messages", &[2, 4]);
}

#[test]
fn two_threads_use_two_channels_at_the_same_time() {
    finishes("channels", &[2, 4]);
}

#[test]
fn the_standard_abi_works() {
    for mpi in installed() {
        let abi = mpi.libraries().join("libmpi_abi.so.1");
        // Open MPI 5 has none.
        if abi.is_file() {
            for work in ["collectives", "channels"] {
                let mut command = mpi.ranks(2, work);
                command.env("TGNN_MPI_LIB", &abi);
                assert_eq!(run(command).succeeded().said(), ["0", "1"]);
            }
        }
    }
}

#[test]
fn the_library_of_the_launcher_is_preferred() {
    let installed = installed();
    let folders = env::join_paths(installed.iter().map(Installed::libraries)).unwrap();
    for (mpi, name) in installed.iter().zip(["Open MPI", "MPICH"]) {
        let mut command = mpi.ranks(2, "start");
        command.env_remove("TGNN_MPI_LIB").env("LD_LIBRARY_PATH", &folders);
        let ran = run(command);
        let said = ran.succeeded().said();
        assert!(said[0].starts_with(&format!("0 of 2 by mpi ({name} ")), "{said:?}");
        assert!(said[1].starts_with(&format!("1 of 2 by mpi ({name} ")), "{said:?}");
    }
}

#[test]
fn nothing_is_left_to_do_after_the_end() {
    for mpi in installed() {
        assert_eq!(run(mpi.ranks(2, "finish twice")).succeeded().said(), ["MPI has been ended"; 2]);
    }
}

/// Runs three ranks, of which rank 1 stops to work, and checks that one line says so.
fn misses_rank_1(work: &str) {
    for mpi in installed() {
        run(mpi.ranks(3, work)).failed_once("of 3: no answer from rank 1 within 3 s, in all_to_all;");
    }
}

#[test]
fn a_rank_that_stays_away_ends_all_after_the_deadline() {
    misses_rank_1("fail by staying away");
}

#[test]
fn a_stopped_rank_ends_all_after_the_deadline() {
    misses_rank_1("fail by stopped");
}

#[test]
fn a_killed_rank_ends_all() {
    for mpi in installed() {
        let ran = run(mpi.ranks(3, "fail by killed"));
        assert!(ran.code != Some(0) && ran.errors().len() <= 1, "{ran:?}");
    }
}

#[test]
fn counts_that_do_not_fit_are_told() {
    for mpi in installed() {
        run(mpi.ranks(2, "fail by counts")).failed_once("in all_gather: 2 bytes arrive where 3 are expected");
    }
}

#[test]
fn a_launcher_and_a_library_that_disagree_are_refused() {
    let installed = installed();
    let found = ["is not of this launcher; put", "sees 1; put"];
    for ((mpi, other), found) in installed.iter().zip(installed.iter().rev()).zip(found) {
        let mut command = mpi.ranks(2, "start");
        command.env("TGNN_MPI_LIB", other.libraries().join(other.library));
        let ran = run(command);
        // MPICH's launcher lets the others go on when one ends before MPI is started.
        ran.failed("mpirun has started 2 ranks, but ");
        ran.failed(found);
    }
}

#[test]
fn a_library_that_is_missing_is_told_in_one_line() {
    let alone = |library: &str| {
        let none = Installed { home: PathBuf::new(), library: "", options: &[] };
        let mut command = none.ranks(0, "start");
        command.env("TGNN_MPI_LIB", library);
        run(command)
    };
    alone("/no/such/libmpi.so").failed("TGNN_MPI_LIB is /no/such/libmpi.so: ");
    alone("libc.so.6").failed("TGNN_MPI_LIB is libc.so.6: this is no library of MPI: it lacks MPI_");
    match mpi_library() {
        Ok(library) => println!("skipped the rest: this system has {library}"),
        Err(e) => {
            assert!(e.to_string().starts_with("there is no library of MPI (tried: libmpi.so.40, "), "{e}");
            alone("").failed(&e.to_string());
        }
    }
}

#[test]
fn the_environment_of_a_launcher_must_be_numbers() {
    assert_eq!(launched().unwrap(), None);
    for mpi in installed() {
        let mut command = mpi.ranks(0, "start");
        command.env("PMI_SIZE", "two").env("PMI_RANK", "0");
        let ran = run(command);
        assert_eq!(ran.code, Some(2));
        assert_eq!(ran.errors(), ["the environment variable PMI_SIZE is `two`; want a number from 0"]);
    }
}
