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

/// Pauses a thread that has polled `polls` times: spins below [`PATIENCE`], then yields the core.
pub(crate) fn pause(polls: &mut u32) {
    if *polls < PATIENCE {
        *polls += 1;
        spin_loop();
    } else {
        yield_now();
    }
}
