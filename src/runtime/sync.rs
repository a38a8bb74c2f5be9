//! Synchronisation primitives: those of the standard library or, in builds with `--cfg loom`, those of the
//! loom model checker, which tries all orders in which threads may see one another's writes (`scripts/soak
//! only loom`).
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread::yield_now,
};

use std::{thread, time::Duration};

/// The standard library's `UnsafeCell`, with the methods of loom's.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A counter in its own cache line.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counter(pub AtomicUsize);

/// Polls before a waiting thread yields its core, about 50 us.
pub(crate) const PATIENCE: u32 = if cfg!(any(loom, miri)) { 1 } else { 2_000 };

/// Polls before a waiting thread sleeps between polls.
pub(crate) const AWAKE: u32 = if cfg!(any(loom, miri)) { u32::MAX } else { PATIENCE + 200 };

/// The first sleep between two polls, and how often it can be multiplied.
const NAP: Duration = Duration::from_micros(20);
const LONGEST: u32 = 50;

/// Pauses a thread that has polled `polls` times: spins below [`PATIENCE`], yields the core below [`AWAKE`],
/// then sleeps. If many threads did nothing but yield, the kernel might not run others, those that they wait
/// for, for seconds (seen with 32 threads on two cores, Linux 6.18). Sleeps grow to 1 ms, but stay below 3 %
/// of the time that the thread has waited: otherwise, 64 waiting threads would keep two cores busy with
/// waking up.
pub(crate) fn pause(polls: &mut u32) {
    match *polls {
        0..PATIENCE => spin_loop(),
        PATIENCE..AWAKE => yield_now(),
        _ => thread::sleep(NAP * ((*polls - AWAKE) / 64 + 1).min(LONGEST)),
    }
    *polls = polls.saturating_add(1);
}
