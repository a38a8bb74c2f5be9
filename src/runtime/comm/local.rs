//! Ranks of one process: threads that copy from one another's buffers.
use super::{
    Comm, DEADLINE, check_counts, disagree, group_size, overdue,
    seats::{Seat, Seats},
};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::sync::{AWAKE, AtomicBool, AtomicUsize, Condvar, Counter, Mutex, PATIENCE, pause, spin_loop},
};
use std::{
    any::Any,
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};

/// Returns the connections of `size` ranks of this process, one for each rank's thread, with the default
/// [deadline](DEADLINE).
///
/// # Examples
/// ```
/// use tgnn::runtime::comm::{Comm, all_reduce, local};
/// let sums: Vec<f32> = std::thread::scope(|scope| {
///     let ranks = local(3).into_iter().map(|comm| {
///         scope.spawn(move || {
///             let mut values = [comm.rank() as f32, 1.0];
///             all_reduce(&comm, &mut values, &mut Vec::new()).unwrap();
///             values[0] + values[1]
///         })
///     });
///     let ranks: Vec<_> = ranks.collect();
///     ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
/// });
/// assert_eq!(sums, [6.0; 3]); // 0 + 1 + 2, and three times 1
/// ```
pub fn local(size: usize) -> Vec<Local> {
    Local::with_deadline(size, DEADLINE)
}

/// A connection between threads of one process; see [`local`].
pub struct Local {
    rank: usize,
    /// This rank's number among all ranks of the process; those of a group follow one another.
    seat: usize,
    /// Number of collectives so far.
    round: AtomicUsize,
    /// Number of splits so far.
    splits: AtomicUsize,
    /// Polls before this rank sleeps: fewer after waits in which polls did not help, as on a busy machine,
    /// where they take the core from the rank that they wait for.
    patience: AtomicUsize,
    /// The values of this rank to which others may still refer.
    shared: Mutex<Vec<Shared>>,
    world: Arc<World>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local {{ rank: {}, size: {} }}", self.rank, self.world.posts.len())
    }
}

/// What a rank posts for the others to read.
#[derive(Default)]
struct Post {
    /// The call.
    what: &'static str,
    bytes: Vec<u8>,
    /// Where each rank's part begins and ends; empty if all ranks read all bytes.
    parts: Vec<(usize, usize)>,
}

/// The post of one rank.
#[derive(Default)]
struct Board {
    post: RwLock<Post>,
    /// Number of the collective that the post belongs to.
    posted: Counter,
    /// Number of times that other ranks have read a post of this rank.
    read: Counter,
    /// Is rung when one of the two has changed, or this rank has sent a message.
    bell: Bell,
}

/// The least [patience](Local::patience): a few polls, about 2 us.
const LEAST_PATIENCE: u32 = if cfg!(any(loom, miri)) { 1 } else { 64 };

/// Wakes ranks that wait for one another.
#[derive(Default)]
struct Bell {
    /// Number of ranks that sleep, or are about to.
    asleep: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Longest sleep. A rank that sleeps also looks whether another one has failed or is overdue.
    const LONGEST: Duration = Duration::from_millis(10);

    /// Wakes those that sleep, after what they wait for was stored.
    fn ring(&self) {
        // With the fence in `sleep`: either the number is seen here, or what was stored is seen there.
        fence(SeqCst);
        if self.asleep.load(Relaxed) > 0 {
            // Whoever has found nothing stored has the lock until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.rung.notify_all();
        }
    }
    /// Sleeps until the bell rings, but not long, and not at all if `ready`.
    fn sleep(&self, ready: &impl Fn() -> bool) {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Relaxed);
        fence(SeqCst);
        if !ready() {
            drop(self.rung.wait_timeout(held, Self::LONGEST));
        }
        self.asleep.fetch_sub(1, Relaxed);
    }
}

/// A value to which all ranks refer.
type Shared = Arc<dyn Any + Send + Sync>;

/// The messages from one rank to another that wait to be received.
type Messages = HashMap<(usize, usize), VecDeque<Vec<u8>>>;

/// State that the ranks share.
struct World {
    posts: Vec<Board>,
    deadline: Duration,
    failed: Arc<AtomicBool>,
    /// The rank that failed, and why.
    failure: Arc<Mutex<Option<(usize, String)>>>,
    /// What all ranks of the process do.
    seats: Arc<Seats>,
    messages: Mutex<Messages>,
    /// Values that ranks are about to share.
    shared: Mutex<BTreeMap<usize, Shared>>,
    /// The worlds of the groups of each split, in order.
    children: Mutex<Vec<Vec<Arc<World>>>>,
}

impl World {
    fn new(size: usize, deadline: Duration) -> Self {
        World {
            posts: (0..size).map(|_| Board::default()).collect(),
            deadline,
            failed: Arc::new(AtomicBool::new(false)),
            failure: Arc::new(Mutex::new(None)),
            seats: Arc::new(Seats::new(size)),
            messages: Mutex::default(),
            shared: Mutex::default(),
            children: Mutex::default(),
        }
    }
    /// Returns another world, of some of the ranks; a failure ends both.
    fn child(&self, size: usize) -> Self {
        let (failed, failure) = (Arc::clone(&self.failed), Arc::clone(&self.failure));
        World { failed, failure, seats: Arc::clone(&self.seats), ..World::new(size, self.deadline) }
    }
}

impl Local {
    /// Returns the connections of `size` ranks that give up waiting after `deadline`.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn with_deadline(size: usize, deadline: Duration) -> Vec<Local> {
        assert!(size > 0, "there is no rank");
        let world = Arc::new(World::new(size, deadline));
        (0..size).map(|rank| Local::new(rank, rank, Arc::clone(&world))).collect()
    }
    /// Returns the connection of a single rank.
    pub(super) fn alone() -> Self {
        Local::new(0, 0, Arc::new(World::new(1, DEADLINE)))
    }
    fn new(rank: usize, seat: usize, world: Arc<World>) -> Self {
        let (round, splits) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let patience = AtomicUsize::new(PATIENCE as usize);
        Local { rank, seat, round, splits, patience, shared: Mutex::default(), world }
    }
    /// Waits until `ready`; `missing` is the rank that must act, `what` the call.
    pub(crate) fn wait(&self, missing: usize, what: &str, ready: impl Fn() -> bool) -> Result<()> {
        self.wait_for((missing, self.seat_of(missing)), what, ready, None)
    }
    /// Waits until `ready`, for a rank with a seat. After a short time the thread sleeps, until the `bell`
    /// rings or, without one, again and again.
    fn wait_for(
        &self,
        (missing, seat): (usize, &Seat),
        what: &str,
        ready: impl Fn() -> bool,
        bell: Option<&Bell>,
    ) -> Result<()> {
        let (mut polls, mut since, mut steps) = (0, None, 0);
        let spins = self.patience.load(Relaxed) as u32;
        let patience = if bell.is_some() { spins } else { AWAKE };
        while !ready() {
            self.check()?;
            match bell {
                // Never yields the core: on a busy machine, others would have it for many milliseconds.
                Some(bell) if polls >= patience => {
                    self.patience.store((spins / 2).max(LEAST_PATIENCE) as usize, Relaxed);
                    bell.sleep(&ready);
                }
                Some(_) => {
                    spin_loop();
                    polls += 1;
                }
                None => pause(&mut polls),
            }
            if polls < patience {
                continue;
            }
            self.seat().answers();
            // A rank whose device gets on is not missing, though it may be behind.
            if seat.steps() != steps {
                (since, steps) = (None, seat.steps());
            }
            if since.get_or_insert_with(Instant::now).elapsed() > self.world.deadline {
                let missing = named(missing, seat);
                let e = overdue(self.rank, self.size(), missing, what, self.world.deadline);
                self.fail(&e.to_string());
                return Err(e);
            }
        }
        if bell.is_some() && (1..patience).contains(&polls) {
            self.patience.store((2 * spins).min(PATIENCE) as usize, Relaxed);
        }
        Ok(())
    }
    /// Waits until `ready`, which rank `missing` must make so, in a call that rings the bell of `board`.
    fn wait_rung(
        &self,
        (missing, board): (usize, usize),
        what: &str,
        ready: impl Fn() -> bool,
    ) -> Result<()> {
        let bell = &self.world.posts[board].bell;
        self.wait_for((missing, self.seat_of(missing)), what, ready, Some(bell))
    }
    /// Returns the CUDA device of each rank of the process that has one, once all ranks have opened theirs.
    ///
    /// # Errors
    /// `Comm` if a rank is missing.
    pub(crate) fn devices(&self) -> Result<Vec<usize>> {
        let seats = &self.world.seats;
        let device = |rank: usize| {
            let seat = seats.seat(rank);
            self.wait_for((rank, seat), "the opening of devices", || seat.device().is_some(), None)?;
            Ok(seat.device().flatten())
        };
        let devices: Vec<Option<usize>> = (0..seats.number()).map(device).collect::<Result<_>>()?;
        Ok(devices.into_iter().flatten().collect())
    }
    /// Returns where this rank says what it does.
    pub(crate) fn seat(&self) -> &Seat {
        self.world.seats.seat(self.seat)
    }
    /// Returns where a rank of this connection says what it does.
    fn seat_of(&self, rank: usize) -> &Seat {
        self.world.seats.seat(self.seat - self.rank + rank)
    }
    /// Returns the name of a rank, with what it does if it is in a call of the driver.
    pub(crate) fn named(&self, rank: usize) -> String {
        named(rank, self.seat_of(rank))
    }
    /// Returns all ranks of this process, to be watched.
    #[doc(hidden)]
    pub fn watched(&self) -> RanksWatch {
        RanksWatch(Arc::clone(&self.world))
    }
    /// Gives every rank a reference to the `value` of each. A rank drops its own value when nobody else
    /// refers to it: in a later call, or with this connection. Collective.
    pub(crate) fn share<T: Any + Send + Sync>(&self, value: T) -> Result<Vec<Arc<T>>> {
        let value: Shared = Arc::new(value);
        {
            let mut own = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            own.retain(|value| Arc::strong_count(value) > 1);
            own.push(Arc::clone(&value));
        }
        let shared = || self.world.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared().insert(self.rank, value);
        self.barrier()?;
        let values: Vec<Shared> = shared().values().cloned().collect();
        self.barrier()?;
        shared().remove(&self.rank);
        let of_type = |(rank, value): (usize, Shared)| {
            let differs = || disagree(self.rank, rank, "share", "values of two types");
            value.downcast().map_err(|_| differs())
        };
        values.into_iter().enumerate().map(of_type).collect()
    }
    fn failure(&self) -> Error {
        let failure = self.world.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let (rank, reason) = failure.clone().unwrap_or_default();
        Error::new(ErrorKind::Comm, format!("rank {rank} has failed: {reason}"))
    }
    /// Posts `bytes` and lets `take` read the post of every other rank.
    fn exchange(
        &self,
        what: &'static str,
        bytes: &[u8],
        counts: Option<&[usize]>,
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (rank, posts) = (self.rank, &self.world.posts);
        let round = self.round.fetch_add(1, Relaxed) + 1;
        let own = &posts[rank];
        // The others have read the post before.
        let others = posts.len() - 1;
        let next = (rank + 1) % posts.len();
        self.wait_rung((next, rank), what, || own.read.0.load(Acquire) >= (round - 1) * others)?;
        {
            let mut post = own.post.write().unwrap_or_else(PoisonError::into_inner);
            post.what = what;
            post.bytes.clear();
            post.bytes.extend_from_slice(bytes);
            post.parts.clear();
            let mut begin = 0;
            post.parts.extend(counts.unwrap_or_default().iter().map(|count| {
                let part = (begin, begin + count);
                begin = part.1;
                part
            }));
        }
        own.posted.0.store(round, Release);
        own.bell.ring();
        for other in (1..posts.len()).map(|distance| (rank + distance) % posts.len()) {
            let board = &posts[other];
            self.wait_rung((other, other), what, || board.posted.0.load(Acquire) >= round)?;
            let post = board.post.read().unwrap_or_else(PoisonError::into_inner);
            if post.what != what {
                let found = format_args!("rank {other} is in {}", post.what);
                return Err(disagree(rank, other, what, found));
            }
            let part = post.parts.get(rank).map_or(&post.bytes[..], |&(begin, end)| &post.bytes[begin..end]);
            take(other, part)?;
            drop(post);
            if (board.read.0.fetch_add(1, Release) + 1).is_multiple_of(others) {
                board.bell.ring();
            }
        }
        Ok(())
    }
}

/// Returns the name of a rank, with what it does if it is in a call of the driver.
fn named(rank: usize, seat: &Seat) -> String {
    let place = seat.place().map_or(String::new(), |place| format!(" (it is {place})"));
    format!("rank {rank}{place}")
}

/// The ranks of a process, as a thread sees them that is none of them.
#[doc(hidden)]
pub struct RanksWatch(Arc<World>);

crate::runtime::brief_debug!(RanksWatch, w => { ranks: w.0.seats.number() });

impl RanksWatch {
    /// Returns an error if the ranks should have ended: one of them has been in a call of the driver for
    /// longer than the deadline, or one failed longer than `grace` ago.
    pub fn stuck(&self, grace: Duration) -> Option<Error> {
        let World { seats, deadline, failed, failure, .. } = &*self.0;
        if failed.load(Relaxed) {
            let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let failure = failure.filter(|_| seats.failed_for() > grace);
            return failure.map(|(_, reason)| Error::new(ErrorKind::Comm, reason));
        }
        let (seat, place) = seats.longer_than(*deadline)?;
        let (number, seconds, others) = (seats.number(), deadline.as_secs_f64(), seats.others(seat));
        let what = format!("rank {seat} of {number}: no answer from the driver within {seconds} s");
        let remedy = "if the device is only slow, give a longer --deadline";
        Some(Error::new(ErrorKind::Comm, format!("{what}, {place}{others}")).remedy(remedy))
    }
}

/// Returns the range of each rank's part.
pub(crate) fn ranges(counts: &[usize]) -> Vec<std::ops::Range<usize>> {
    let ends = counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    ends.zip(counts).map(|(end, count)| end - count..end).collect()
}

impl Comm for Local {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.world.posts.len()
    }
    fn all_to_all(
        &self,
        send: &[u8],
        send_counts: &[usize],
        recv: &mut [u8],
        recv_counts: &[usize],
    ) -> Result<()> {
        const WHAT: &str = "all_to_all";
        check_counts(self.size(), WHAT, send.len(), send_counts)?;
        check_counts(self.size(), WHAT, recv.len(), recv_counts)?;
        let (from, to) = (ranges(send_counts)[self.rank].clone(), ranges(recv_counts));
        copy_part(self.rank, self.rank, WHAT, &send[from], &mut recv[to[self.rank].clone()])?;
        self.exchange(WHAT, send, Some(send_counts), |other, part| {
            copy_part(self.rank, other, WHAT, part, &mut recv[to[other].clone()])
        })
    }
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[usize]) -> Result<()> {
        const WHAT: &str = "all_gather";
        check_counts(self.size(), WHAT, recv.len(), counts)?;
        let to = ranges(counts);
        copy_part(self.rank, self.rank, WHAT, send, &mut recv[to[self.rank].clone()])?;
        self.exchange(WHAT, send, None, |other, part| {
            copy_part(self.rank, other, WHAT, part, &mut recv[to[other].clone()])
        })
    }
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        const WHAT: &str = "broadcast";
        let sent = if self.rank == root { bytes.to_vec() } else { Vec::new() };
        self.exchange(WHAT, &sent, None, |other, part| match other == root {
            true => copy_part(self.rank, other, WHAT, part, bytes),
            false => Ok(()),
        })
    }
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        let mut messages = self.world.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.entry((self.rank, to)).or_default().push_back(bytes.to_vec());
        drop(messages);
        self.world.posts[self.rank].bell.ring();
        Ok(())
    }
    fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let messages = || self.world.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (from, self.rank);
        self.wait_rung((from, from), "recv", || messages().get(&key).is_some_and(|queue| !queue.is_empty()))?;
        let message = messages().get_mut(&key).and_then(VecDeque::pop_front).unwrap_or_default();
        copy_part(self.rank, from, "recv", &message, bytes)
    }
    fn barrier(&self) -> Result<()> {
        self.exchange("barrier", &[], None, |_, _| Ok(()))
    }
    fn split(&self, groups: usize) -> Result<Arc<dyn Comm>> {
        let size = group_size(self.size(), groups)?;
        let nth = self.splits.fetch_add(1, Relaxed);
        let mut children = self.world.children.lock().unwrap_or_else(PoisonError::into_inner);
        if children.len() == nth {
            children.push((0..groups).map(|_| Arc::new(self.world.child(size))).collect());
        }
        let Some(world) = children[nth].get(self.rank / size).filter(|_| children[nth].len() == groups)
        else {
            return Err(disagree(self.rank, 0, "split", "other groups"));
        };
        Ok(Arc::new(Local::new(self.rank % size, self.seat, Arc::clone(world))))
    }
    fn fail(&self, reason: &str) {
        let mut failure = self.world.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| (self.rank, reason.to_owned()));
        self.world.seats.fail();
        self.world.failed.store(true, Release);
        self.world.posts.iter().for_each(|board| board.bell.ring());
    }
    fn abandon(&self, reason: &str) {
        self.fail(reason);
    }
    fn deadline(&self) -> Duration {
        self.world.deadline
    }
    fn check(&self) -> Result<()> {
        if self.world.failed.load(Relaxed) { Err(self.failure()) } else { Ok(()) }
    }
    fn local(&self) -> Option<&Local> {
        Some(self)
    }
    fn describe(&self) -> String {
        "local".into()
    }
}

/// Copies a part that rank `other` has sent.
pub(crate) fn copy_part(rank: usize, other: usize, what: &str, from: &[u8], to: &mut [u8]) -> Result<()> {
    if from.len() != to.len() {
        let found = format_args!("{} bytes arrive where {} are expected", from.len(), to.len());
        return Err(disagree(rank, other, what, found));
    }
    to.copy_from_slice(from);
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{super::all_reduce, *};
    use std::thread;

    /// Runs `work` as every rank of `size`, and returns the results.
    fn with_ranks<T: Send>(size: usize, deadline: f64, work: impl Fn(Local) -> T + Sync) -> Vec<T> {
        let ranks = Local::with_deadline(size, Duration::from_secs_f64(deadline));
        thread::scope(|scope| {
            let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| work(comm))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_part_arrives_in_place_again_and_again() {
        for size in [1, 2, 3, 8] {
            with_ranks(size, 10.0, |comm| {
                let rank = comm.rank();
                for round in 0..50usize {
                    // Rank i sends i + j + round bytes to rank j.
                    let counts = |i: usize| (0..size).map(|j| i + j + round).collect::<Vec<_>>();
                    let (send_counts, recv_counts) = (counts(rank), counts(rank));
                    let send: Vec<u8> = send_counts
                        .iter()
                        .enumerate()
                        .flat_map(|(j, &n)| vec![(10 * rank + j) as u8; n])
                        .collect();
                    let mut recv = vec![0; recv_counts.iter().sum()];
                    comm.all_to_all(&send, &send_counts, &mut recv, &recv_counts).unwrap();
                    let want: Vec<u8> = recv_counts
                        .iter()
                        .enumerate()
                        .flat_map(|(i, &n)| vec![(10 * i + rank) as u8; n])
                        .collect();
                    assert_eq!(recv, want);
                    let mut all = vec![0; (0..size).sum()];
                    comm.all_gather(&vec![rank as u8; rank], &mut all, &(0..size).collect::<Vec<_>>())
                        .unwrap();
                    assert_eq!(all, (0..size).flat_map(|i| vec![i as u8; i]).collect::<Vec<_>>());
                    let mut from = [rank as u8; 3];
                    comm.broadcast(round % size, &mut from).unwrap();
                    assert_eq!(from, [(round % size) as u8; 3]);
                }
            });
        }
    }

    #[test]
    fn sums_have_the_same_bits_on_every_rank_and_are_added_in_order() {
        for (size, n) in [(1, 5), (2, 0), (3, 1), (3, 1000), (4, 10)] {
            let value = |rank: usize, i: usize| ((rank * 37 + i * 11) % 101) as f32 / 7.0;
            let sums = with_ranks(size, 10.0, |comm| {
                let mut values: Vec<f32> = (0..n).map(|i| value(comm.rank(), i)).collect();
                all_reduce(&comm, &mut values, &mut Vec::new()).unwrap();
                values
            });
            let in_order = |i| (1..size).fold(value(0, i), |sum, rank| sum + value(rank, i));
            let want: Vec<f32> = (0..n).map(in_order).collect();
            assert!(sums.iter().all(|sum| *sum == want));
        }
    }

    #[test]
    fn messages_arrive_in_order_and_duplicates_are_apart() {
        with_ranks(2, 10.0, |comm| {
            let other = comm.duplicate().unwrap();
            if comm.rank() == 0 {
                comm.send(1, &[1, 2]).unwrap();
                comm.send(1, &[3, 4]).unwrap();
                other.send(1, &[5]).unwrap();
            } else {
                let (mut pair, mut one) = ([0; 2], [0; 1]);
                other.recv(0, &mut one).unwrap();
                comm.recv(0, &mut pair).unwrap();
                assert_eq!((one, pair), ([5], [1, 2]));
                comm.recv(0, &mut pair).unwrap();
                assert_eq!(pair, [3, 4]);
            }
            comm.barrier().unwrap();
        });
    }

    #[test]
    fn groups_are_numbered_anew_and_fail_together() {
        let sums = with_ranks(6, 10.0, |comm| {
            assert!(comm.split(4).is_err());
            let group = comm.split(2).unwrap();
            assert_eq!((group.rank(), group.size()), (comm.rank() % 3, 3));
            let pair = comm.split(3).unwrap();
            assert_eq!((pair.rank(), pair.size()), (comm.rank() % 2, 2));
            let alone = group.split(3).unwrap();
            assert_eq!((alone.rank(), alone.size()), (0, 1));
            let mut sum = [comm.rank() as f32];
            all_reduce(&*group, &mut sum, &mut Vec::new()).unwrap();
            sum[0]
        });
        assert_eq!(sums, [3.0, 3.0, 3.0, 12.0, 12.0, 12.0]); // 0 + 1 + 2, and 3 + 4 + 5
        let errors = with_ranks(4, 10.0, |comm| {
            let group = comm.split(2).unwrap();
            if comm.rank() == 0 {
                group.fail("planted");
                return None;
            }
            Some(group.barrier().and_then(|()| group.barrier()).and_then(|()| comm.barrier()).unwrap_err())
        });
        assert!(errors[1..].iter().flatten().all(|e| e.to_string().ends_with("has failed: planted")));
    }

    #[test]
    fn a_missing_rank_a_failed_rank_and_other_counts_are_told() {
        let errors = with_ranks(3, 0.2, |comm| (comm.rank() != 1).then(|| comm.barrier().unwrap_err()));
        let text = |e: &Option<Error>| e.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(errors.iter().flatten().all(|e| e.kind() == ErrorKind::Comm));
        assert!(errors.iter().map(text).any(|e| e.contains("no answer from rank 1 within 0.2 s")));
        let errors = with_ranks(2, 10.0, |comm| {
            if comm.rank() == 0 {
                comm.fail("planted");
                return None;
            }
            Some(comm.duplicate().unwrap().barrier().unwrap_err())
        });
        assert_eq!(text(&errors[1]), "rank 0 has failed: planted");
        let errors = with_ranks(2, 10.0, |comm| {
            let counts = [2 + comm.rank(), 2];
            let bytes = vec![0; counts.iter().sum()];
            let got = comm.all_to_all(&bytes, &counts, &mut bytes.clone(), &counts);
            got.map_err(|e| comm.fail(&e.to_string())).is_err()
        });
        assert!(errors.contains(&true));
    }
}
