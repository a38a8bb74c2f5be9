//! Faults that an op meets while a step runs.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A status word: the first fault wins, and is read when the step's results are.
///
/// A running op cannot return an error (on a device nobody waits for it); it leaves `(row, code)` here, and whoever
/// runs the program turns it into an error that names the op.
#[derive(Debug, Default)]
pub struct Status(AtomicU64);

impl Status {
    /// Records a fault of `row`; `code` is a value that helps, such as the bits of a NaN. The first call wins.
    pub fn fault(&self, row: u32, code: u32) {
        // Bit 63 marks "set", so that row 0 with code 0 differs from "no fault".
        let word = 1 << 63 | u64::from(row & 0x7fff_ffff) << 32 | u64::from(code);
        let _ = self.0.compare_exchange(0, word, Relaxed, Relaxed);
    }
    /// The fault as `(row, code)`, and clears it.
    pub fn take(&self) -> Option<(u32, u32)> {
        let word = self.0.swap(0, Relaxed);
        (word != 0).then(|| Self::read(word))
    }
    /// `(row, code)` of a word that holds a fault.
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
