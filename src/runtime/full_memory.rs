//! What happens where memory runs out.
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::Write,
};

thread_local! {
    /// Whether the thread can go on without the memory that it asks for.
    static TRIES: Cell<bool> = const { Cell::new(false) };
}

/// Calls `ask`, which handles a refused allocation by itself.
#[doc(hidden)]
pub fn tried<T>(ask: impl FnOnce() -> T) -> T {
    /// Ends trying, also if `ask` panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            TRIES.set(self.0);
        }
    }
    let _before = Before(TRIES.replace(true));
    ask()
}

/// The system's allocator, for programs: where memory runs out, it ends the program with one line and the
/// exit code of [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory). Without it, Rust aborts the
/// program.
#[doc(hidden)]
#[derive(Debug)]
pub struct EndsWhenFull;

/// Ends the program, unless the thread [tries](tried). Allocates nothing.
#[cold]
fn refused(layout: Layout) {
    if !TRIES.get() {
        let mib = layout.size() as f64 / f64::from(1u32 << 20);
        let remedy = "take fewer events, nodes or threads, or raise the limit (ulimit -v)";
        let _ = writeln!(std::io::stderr(), "error: out of memory: {mib:.1} MiB more are refused; {remedy}");
        // SAFETY: ends the process at once. Destructors may wait for what this thread holds.
        unsafe { libc::_exit(6) }
    }
}

// SAFETY: every call is passed on as it is; what is returned is of the system's allocator.
unsafe impl GlobalAlloc for EndsWhenFull {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let at = unsafe { System.alloc(layout) };
        if at.is_null() {
            refused(layout);
        }
        at
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let at = unsafe { System.alloc_zeroed(layout) };
        if at.is_null() {
            refused(layout);
        }
        at
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        let at = unsafe { System.realloc(old, layout, size) };
        if at.is_null() {
            refused(Layout::from_size_align(size, 1).unwrap_or(layout));
        }
        at
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}
