//! The signals that end the program.
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
    low_level::{emulate_default_handler, signal_name},
};
use std::{
    fs, io,
    sync::{Arc, atomic::AtomicUsize},
    thread,
};

/// What Ctrl-C, a terminal that closes, services and batch systems send.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Lets a write beyond the largest file that the system allows (`ulimit -f`) fail, like one to a full disk,
/// instead of ending the program.
pub fn fail_large_writes() {
    let _ = flag::register(SIGXFSZ, Arc::default()); // without it, the signal is as it was
}

/// Calls `first`, on a thread of its own, at the first signal that ends the program. A second one ends it at
/// once. Signals that the caller of the program has switched off, as `nohup` does, stay so.
pub fn on_ending(first: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(ending())?;
    let caught = move || {
        let mut arriving = signals.forever();
        if let Some(signal) = arriving.next() {
            first(signal);
        }
        if let Some(signal) = arriving.next() {
            end_by(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(caught).map(drop)
}

/// Writes a signal that ends the program into `arrived` at the moment when it arrives: before the thread that
/// is interrupted goes on, and before [`on_ending`] calls anything.
pub fn note_in(arrived: &Arc<AtomicUsize>) -> io::Result<()> {
    ending()
        .try_for_each(|signal| flag::register_usize(signal, Arc::clone(arrived), signal as usize).map(drop))
}

/// Returns the signals that end the program, without those that its caller has switched off.
fn ending() -> impl Iterator<Item = i32> {
    let ignored = ignored();
    ENDING.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Returns the signals that the caller of the program has switched off, one bit each; none where the system
/// does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns the name of a signal, such as SIGTERM.
pub fn name(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("a signal")
}

/// Ends the program as the signal does where nobody catches it.
pub fn end_by(signal: i32) -> ! {
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
