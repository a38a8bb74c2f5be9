//! Ranks that are processes, connected by MPI.
//!
//! Every call is made of messages between two ranks (`MPI_Isend`, `MPI_Irecv`, `MPI_Test`), not of MPI's
//! collectives: then a rank that waits knows which rank is missing, and a part may be larger than 2 GiB. The
//! connections that [`split`](Comm::split) returns differ in the tags of their messages. No call
//! blocks inside MPI. Threads take turns in calling it, because not every library allows more.
mod library;

use super::{
    Comm, LaunchedProcess, Launcher, check_counts, copy_part, disagree, group_size, launched, overdue, ranges,
};
use crate::error::{Error, ErrorKind, Result};
use library::{Library, Request};
use std::{
    ffi::c_int,
    fmt,
    mem::ManuallyDrop,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Tests of a request before a waiting rank sleeps between tests.
const AWAKE: u32 = 200;
/// Pause of a waiting rank that sleeps.
const NAP: Duration = Duration::from_micros(50);
/// Maximum number of bytes of a message: MPI counts in C ints.
const MOST_BYTES: usize = 1 << 30;
/// Pause of an error for each lower rank, see [`wait_for_lower`].
const TURN: Duration = Duration::from_millis(200);
/// Maximum number of turns that an error waits.
const MOST_TURNS: usize = 20;
/// Time that a rank that fails leaves to the launcher: MPICH's loses what it has not yet read of the rank's
/// standard error when MPI ends the ranks. Shorter than a turn.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Time after which a rank that fails ends by itself, if MPI does not end it.
const LAST: Duration = Duration::from_secs(2);

/// A call that communicates: its name in errors, and its share of the tag of its messages. Ranks that make
/// different calls wait for one another in vain, and never take the bytes of another call for their own.
#[derive(Clone, Copy)]
struct Call(&'static str, usize);

const ALL_TO_ALL: Call = Call("all_to_all", 0);
const ALL_GATHER: Call = Call("all_gather", 1);
const BROADCAST: Call = Call("broadcast", 2);
const BARRIER: Call = Call("barrier", 3);
const SPLIT: Call = Call("split", 4);
const SEND: Call = Call("send", 5);
const RECV: Call = Call("recv", 5);
/// Number of tags of a connection.
const TAGS: usize = 6;
/// Maximum number of connections: the smallest upper limit of tags that MPI allows is 32767.
const MOST_CONNECTIONS: usize = 32767 / TAGS;

/// A rank, and which of the sent or received bytes are for it or from it.
type Part = (usize, Range<usize>);

/// A connection to the other ranks by MPI; see [`mpi`].
///
/// When several ranks meet an error at the same time, the one with the lowest number returns it first, and
/// the others return it 0.2 s apart: the first one to [fail](Comm::fail) ends them all, so that one rank
/// reports. The launcher may need longer than that on a busy computer, or over several ones.
/// `fail` ends this process, too, with the exit code of [`ErrorKind::Comm`], unless it is the only rank.
pub struct Mpi {
    /// Number of this connection, the same on all of its ranks.
    connection: usize,
    /// Its ranks, by their numbers in MPI.
    members: Range<usize>,
    deadline: Duration,
    world: Arc<World>,
}

/// What all connections share.
struct World {
    rank: usize,
    size: usize,
    /// The number of the next connection: higher than those of all connections of this rank.
    connections: AtomicUsize,
    /// Memory of the messages.
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Held in every call of MPI; `None` once MPI has been ended.
    loaded: Mutex<Option<Library>>,
    version: String,
    /// Whether a thread of this rank has failed.
    abandoned: AtomicBool,
}

/// A message on its way.
struct Transfer {
    /// The other rank, by its number in MPI.
    peer: usize,
    request: Request,
    /// Number of bytes to receive; `None` if they are sent.
    expected: Option<usize>,
}

/// Starts MPI, and returns the connection of this process to all ranks. Its calls give up after `deadline`.
/// Call it once in a process, and [`Mpi::finish`] at the end of a successful run.
///
/// The library is loaded at run time. It is the one that the environment variable `TGNN_MPI_LIB` names, or
/// else `libmpi.so.40` (Open MPI), `libmpich.so.12`, `libmpi.so.12` (MPICH) or `libmpi_abi.so.1` (the
/// standard ABI of MPI 5) from where the system looks for libraries. MPICH comes first if its launcher has
/// started this process.
///
/// # Errors
/// `Comm` if there is no library, if it cannot be called from several threads, or if it sees another number
/// of ranks than the launcher has started; as [`launched`].
pub fn mpi(deadline: Duration) -> Result<Arc<Mpi>> {
    let launched = launched()?;
    let library = Library::load()?;
    let differ = |launched: LaunchedProcess, found: String| {
        let LaunchedProcess { launcher, rank, size, .. } = launched;
        let text = format!(
            "{launcher} has started {size} ranks, but {} ({}) {found}",
            library.version, library.path
        );
        wait_for_lower(rank);
        Error::new(ErrorKind::Comm, text).remedy(launcher.remedy())
    };
    // MPICH would end the process where it finds the other launcher.
    if let Some(launched) = launched.filter(|l| l.launcher == Launcher::OpenMpi && library.is_mpich) {
        return Err(differ(launched, "is not of this launcher".into()));
    }
    let (rank, size) = library.start()?;
    if let Some(launched) = launched.filter(|launched| launched.size != size) {
        return Err(differ(launched, format!("sees {size}")));
    }
    let (connections, buffers) = (AtomicUsize::new(1), Mutex::default());
    let version = library.version.clone();
    let abandoned = AtomicBool::new(false);
    let world =
        World { rank, size, connections, buffers, loaded: Mutex::new(Some(library)), version, abandoned };
    Ok(Arc::new(Mpi { connection: 0, members: 0..size, deadline, world: Arc::new(world) }))
}

/// Returns the library that [`mpi`] would use: its version and its path. Does not start MPI.
///
/// # Errors
/// `Comm` if there is none.
pub fn mpi_library() -> Result<String> {
    let library = Library::load()?;
    Ok(format!("{}, {}", library.version, library.path))
}

/// Waits for the turn of `rank` to report an error: a lower rank may end this one first.
fn wait_for_lower(rank: usize) {
    thread::sleep(TURN * rank.min(MOST_TURNS) as u32);
}

/// Ends this process at once.
fn end() -> ! {
    // SAFETY: runs no code of this process, which may be stuck in the library of MPI.
    unsafe { libc::_exit(ErrorKind::Comm.exit_code().into()) }
}

/// Returns the pieces of a part that fit into messages. An empty part is an empty message.
fn pieces(part: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let Range { start, end } = *part;
    let begins = (0..part.len().div_ceil(MOST_BYTES).max(1)).map(move |i| start + i * MOST_BYTES);
    begins.map(move |begin| begin..end.min(begin + MOST_BYTES))
}

impl World {
    fn loaded(&self) -> MutexGuard<'_, Option<Library>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Makes calls of MPI; only one thread at a time does.
    fn call<T>(&self, call: impl FnOnce(&Library) -> Result<T>) -> Result<T> {
        match &*self.loaded() {
            Some(library) => call(library),
            None => Err(Error::new(ErrorKind::Comm, "MPI has been ended")),
        }
    }
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mpi {
    /// Ends MPI after a successful run. Collective. Later calls return errors. After an error call
    /// [`fail`](Comm::fail) instead, because MPI cannot be ended while a rank is missing.
    ///
    /// # Errors
    /// As the calls of [`Comm`].
    pub fn finish(&self) -> Result<()> {
        self.barrier()?;
        match self.world.loaded().take() {
            // SAFETY: the lock is held during the call, and without a library nobody calls MPI again.
            Some(library) => unsafe { library.finish() },
            None => Ok(()),
        }
    }
    /// Returns the other ranks, beginning after this one, so that ranks do not all send to the same one.
    fn others(&self) -> impl Iterator<Item = usize> {
        let (rank, size) = (self.rank(), self.size());
        (1..size).map(move |distance| (rank + distance) % size)
    }
    /// Returns `error` after the lower ranks had time to report theirs.
    fn after_lower_ranks(&self, error: Error) -> Error {
        wait_for_lower(self.world.rank);
        error
    }
    /// Sends parts of `send` to other ranks and receives parts of `recv` from them.
    fn exchange(&self, call: Call, send: &[u8], to: &[Part], recv: &mut [u8], from: &[Part]) -> Result<()> {
        let world = &*self.world;
        // MPI reads and writes the buffer until all transfers are finished. If this call fails before, the
        // buffer is never released, because MPI may use it even then.
        let mut buffer = ManuallyDrop::new(world.buffers().pop().unwrap_or_default());
        let (sent, bytes) = (send.len(), send.len() + recv.len());
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer[..sent].copy_from_slice(send);
        let mut transfers = Vec::with_capacity(to.len() + from.len());
        world
            .call(|library| self.begin(library, call, &mut buffer, sent, [to, from], &mut transfers))
            .and_then(|()| self.wait(call, &mut transfers))
            .map_err(|e| self.after_lower_ranks(e))?;
        let received = &buffer[sent..bytes];
        from.iter().for_each(|(_, part)| recv[part.clone()].copy_from_slice(&received[part.clone()]));
        world.buffers().push(ManuallyDrop::into_inner(buffer));
        Ok(())
    }
    /// Begins the transfers of an exchange.
    fn begin(
        &self,
        library: &Library,
        call: Call,
        buffer: &mut [u8],
        sent: usize,
        [to, from]: [&[Part]; 2],
        transfers: &mut Vec<Transfer>,
    ) -> Result<()> {
        let first = self.members.start;
        let rank = |peer: usize| match c_int::try_from(first + peer) {
            Ok(rank) if peer < self.size() => Ok(rank),
            _ => Err(Error::new(ErrorKind::Comm, format!("{}: there is no rank {peer}", call.0))),
        };
        let tag = (self.connection * TAGS + call.1) as c_int;
        let (send, recv) = buffer.split_at_mut(sent);
        let (send, recv) = (send.as_ptr(), recv.as_mut_ptr());
        for (peer, part) in from {
            for piece in pieces(part) {
                let expected = Some(piece.len());
                // SAFETY: the lock of the library is held. The piece lies in the buffer, which nobody uses
                // until all transfers are finished, apart from the others, which are for other pieces.
                let request =
                    unsafe { library.recv(recv.add(piece.start), piece.len() as c_int, rank(*peer)?, tag) }?;
                transfers.push(Transfer { peer: first + peer, request, expected });
            }
        }
        for (peer, part) in to {
            for piece in pieces(part) {
                // SAFETY: as above.
                let request =
                    unsafe { library.send(send.add(piece.start), piece.len() as c_int, rank(*peer)?, tag) }?;
                transfers.push(Transfer { peer: first + peer, request, expected: None });
            }
        }
        Ok(())
    }
    /// Waits until all transfers are finished, at most for the deadline after the latest one.
    fn wait(&self, call: Call, transfers: &mut [Transfer]) -> Result<()> {
        let World { rank, size, .. } = *self.world;
        let mut tests = 0;
        let mut since = None;
        for transfer in transfers {
            // Each test makes progress with all transfers.
            while !self.world.call(|library| self.is_finished(library, call, transfer))? {
                if self.world.abandoned.load(Relaxed) {
                    return Err(Error::new(ErrorKind::Comm, "another thread of this rank has failed"));
                }
                tests += 1;
                if tests < AWAKE {
                    thread::yield_now();
                    continue;
                }
                if since.get_or_insert_with(Instant::now).elapsed() > self.deadline {
                    return Err(overdue(
                        rank,
                        size,
                        format_args!("rank {}", transfer.peer),
                        call.0,
                        self.deadline,
                    ));
                }
                thread::sleep(NAP);
            }
            since = None;
        }
        Ok(())
    }
    /// Whether a transfer is finished.
    fn is_finished(&self, library: &Library, call: Call, transfer: &mut Transfer) -> Result<bool> {
        let rank = self.world.rank;
        // SAFETY: the lock of the library is held.
        let tested = unsafe { library.test(&mut transfer.request) };
        let tested = tested.map_err(|e| {
            let peer = transfer.peer;
            Error::new(ErrorKind::Comm, format!("rank {rank} and rank {peer}, in {}: {e}", call.0))
        });
        let Some(status) = tested? else { return Ok(false) };
        let Some(expected) = transfer.expected else { return Ok(true) };
        // SAFETY: as above.
        match unsafe { library.received(&status) }? {
            received if received == expected => Ok(true),
            received => {
                let found = format_args!("{received} bytes arrive where {expected} are expected");
                Err(disagree(rank, transfer.peer, call.0, found))
            }
        }
    }
    /// Copies `bytes` of rank `root` to all ranks.
    fn spread(&self, call: Call, root: usize, bytes: &mut [u8]) -> Result<()> {
        let all = 0..bytes.len();
        if self.rank() != root {
            return self.exchange(call, &[], &[], bytes, &[(root, all)]);
        }
        let to: Vec<Part> = self.others().map(|other| (other, all.clone())).collect();
        self.exchange(call, bytes, &to, &mut [], &[])
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World { rank, size, ref version, .. } = *self.world;
        write!(f, "Mpi {{ rank: {rank}, size: {size}, by: {version} }}")
    }
}

impl Comm for Mpi {
    fn rank(&self) -> usize {
        self.world.rank - self.members.start
    }
    fn size(&self) -> usize {
        self.members.len()
    }
    fn all_to_all(
        &self,
        send: &[u8],
        send_counts: &[usize],
        recv: &mut [u8],
        recv_counts: &[usize],
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        check_counts(size, ALL_TO_ALL.0, send.len(), send_counts)?;
        check_counts(size, ALL_TO_ALL.0, recv.len(), recv_counts)?;
        let (to, from) = (ranges(send_counts), ranges(recv_counts));
        copy_part(rank, rank, ALL_TO_ALL.0, &send[to[rank].clone()], &mut recv[from[rank].clone()])?;
        let parts = |all: &[Range<usize>]| self.others().map(|r| (r, all[r].clone())).collect::<Vec<_>>();
        self.exchange(ALL_TO_ALL, send, &parts(&to), recv, &parts(&from))
    }
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[usize]) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        check_counts(size, ALL_GATHER.0, recv.len(), counts)?;
        let from = ranges(counts);
        copy_part(rank, rank, ALL_GATHER.0, send, &mut recv[from[rank].clone()])?;
        let to: Vec<Part> = self.others().map(|r| (r, 0..send.len())).collect();
        let from: Vec<Part> = self.others().map(|r| (r, from[r].clone())).collect();
        self.exchange(ALL_GATHER, send, &to, recv, &from)
    }
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.spread(BROADCAST, root, bytes)
    }
    /// Waits until rank `to` receives the bytes, if they are many: two ranks must not both send first.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.exchange(SEND, bytes, &[(to, 0..bytes.len())], &mut [], &[])
    }
    fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let all = 0..bytes.len();
        self.exchange(RECV, &[], &[], bytes, &[(from, all)])
    }
    fn barrier(&self) -> Result<()> {
        let all: Vec<Part> = self.others().map(|other| (other, 0..0)).collect();
        self.exchange(BARRIER, &[], &all, &mut [], &all)
    }
    fn split(&self, groups: usize) -> Result<Arc<dyn Comm>> {
        let size = group_size(self.size(), groups)?;
        let connections = &self.world.connections;
        let mut number = (connections.load(Relaxed) as u64).to_le_bytes();
        self.spread(SPLIT, 0, &mut number)?;
        let connection = u64::from_le_bytes(number) as usize;
        connections.fetch_max(connection + 1, Relaxed);
        if connection >= MOST_CONNECTIONS {
            let text = format!("there are more than {MOST_CONNECTIONS} connections between the ranks");
            return Err(
                Error::new(ErrorKind::Comm, text).remedy("keep connections instead of duplicating anew")
            );
        }
        let first = self.members.start + self.rank() / size * size;
        let (deadline, world) = (self.deadline, Arc::clone(&self.world));
        Ok(Arc::new(Mpi { connection, members: first..first + size, deadline, world }))
    }
    fn abandon(&self, _reason: &str) {
        self.world.abandoned.store(true, Relaxed);
    }
    fn fail(&self, _reason: &str) {
        if self.world.size == 1 {
            return;
        }
        // If there is no memory for this thread, it depends on MPI alone whether the rank ends.
        let world = Arc::clone(&self.world);
        let last = thread::Builder::new().spawn(move || {
            thread::sleep(LAST);
            // If MPI has been ended, the other ranks need not be.
            if !matches!(world.loaded.try_lock(), Ok(library) if library.is_none()) {
                end()
            }
        });
        drop(last);
        thread::sleep(LAST_WORDS);
        if let Some(library) = &*self.world.loaded() {
            // SAFETY: the lock is held, and MPI runs.
            unsafe { library.abort(ErrorKind::Comm.exit_code().into()) };
            end()
        }
    }
    fn deadline(&self) -> Duration {
        self.deadline
    }
    /// A rank that has failed has ended this process, too.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        format!("mpi ({})", self.world.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_parts_are_cut_and_empty_ones_are_one_message() {
        let cut = |part| pieces(&part).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>();
        assert_eq!(cut(7..7), [(7, 7)]);
        assert_eq!(cut(3..5), [(3, 5)]);
        assert_eq!(cut(1..1 + MOST_BYTES), [(1, 1 + MOST_BYTES)]);
        let [second, third] = [5 + MOST_BYTES, 5 + 2 * MOST_BYTES];
        assert_eq!(cut(5..third + 1), [(5, second), (second, third), (third, third + 1)]);
    }
}
