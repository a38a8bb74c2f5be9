//! Faults detected by an op while a step runs.
use crate::error::Error;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A status word. It holds the first fault; it is read together with the step's results.
///
/// A running op cannot return an error, because nobody waits for it on a device. It stores `(row, code)`
/// here, and the code that runs the program turns this into an error that names the op.
#[derive(Debug, Default)]
pub struct Status {
    word: AtomicU64,
    /// The first failure of an op that communicates; only on the host.
    failure: Mutex<Option<Error>>,
}

impl Status {
    /// Records a fault of `row` unless one is already recorded; `code` is a helpful value, such as the bits
    /// of a NaN.
    pub fn fault(&self, row: u32, code: u32) {
        // Bit 63 marks "set", so that row 0 with code 0 differs from "no fault".
        let word = 1 << 63 | u64::from(row & 0x7fff_ffff) << 32 | u64::from(code);
        let _ = self.word.compare_exchange(0, word, Relaxed, Relaxed);
    }
    /// Returns the fault as `(row, code)`, and clears it.
    pub fn take(&self) -> Option<(u32, u32)> {
        let word = self.word.swap(0, Relaxed);
        (word != 0).then(|| Self::read(word))
    }
    /// Records why an op failed, unless a failure is already recorded.
    pub(crate) fn fail(&self, e: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }
    /// Returns the failure, and clears it.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    /// Decodes a word that holds a fault into `(row, code)`.
    pub(crate) fn read(word: u64) -> (u32, u32) {
        ((word >> 32) as u32 & 0x7fff_ffff, word as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn the_first_fault_wins_and_is_cleared_by_reading() {
        let s = Status::default();
        assert_eq!(s.take(), None);
        s.fault(0, 0);
        s.fault(3, 4);
        assert_eq!(s.take(), Some((0, 0)));
        assert_eq!(s.take(), None);
    }
}
