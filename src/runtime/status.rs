//! Faults detected by an op while a step runs.
use crate::error::Error;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// A number that is not finite.
    NotFinite(f32),
    /// An index, or a count, that is out of range.
    OutOfRange(u32),
    /// A count of slots, the op's input `count`, that is above their number.
    AboveMost(u32),
}

impl Fault {
    /// Returns the fault of an index or a count; values beyond `u32` are reported as the largest one.
    pub fn out_of_range(index: usize) -> Self {
        Fault::OutOfRange(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// A status word. It holds the first fault; it is read together with the step's results.
///
/// A running op cannot return an error, because nobody waits for it on a device. It stores the row and the
/// [`Fault`] here, and the code that runs the program turns this into an error that names the op.
#[derive(Debug, Default)]
pub struct Status {
    /// 0, or from the highest bit: 2 bits for the kind of fault, 30 for the row, 32 for its operand.
    /// (`Status` in `kernels/common.cuh`.)
    word: AtomicU64,
    /// The first failure of an op that communicates; only on the host.
    failure: Mutex<Option<Error>>,
}

impl Status {
    const ROW_BITS: u32 = 30;
    const NOT_FINITE: u64 = 1;
    const OUT_OF_RANGE: u64 = 2;
    const ABOVE_MOST: u64 = 3;

    /// Records a fault of `row` unless one is already recorded. Rows are counted modulo 2^30.
    pub fn fault(&self, row: usize, fault: Fault) {
        let (kind, operand) = match fault {
            Fault::NotFinite(value) => (Self::NOT_FINITE, value.to_bits()),
            Fault::OutOfRange(index) => (Self::OUT_OF_RANGE, index),
            Fault::AboveMost(count) => (Self::ABOVE_MOST, count),
        };
        let row = row as u64 & ((1 << Self::ROW_BITS) - 1);
        let word = (kind << Self::ROW_BITS | row) << 32 | u64::from(operand);
        let _ = self.word.compare_exchange(0, word, Relaxed, Relaxed);
    }
    /// Returns the row and its fault, and clears it.
    pub fn take(&self) -> Option<(u32, Fault)> {
        Self::read(self.word.swap(0, Relaxed))
    }
    /// Records why an op failed, unless a failure is already recorded.
    pub(crate) fn fail(&self, e: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }
    /// Returns the failure, and clears it.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    /// Decodes a word into the row and its fault; `None` if it holds no fault.
    pub(crate) fn read(word: u64) -> Option<(u32, Fault)> {
        let (high, operand) = (word >> 32, word as u32);
        let fault = match high >> Self::ROW_BITS {
            0 => return None,
            Self::NOT_FINITE => Fault::NotFinite(f32::from_bits(operand)),
            Self::OUT_OF_RANGE => Fault::OutOfRange(operand),
            _ => Fault::AboveMost(operand),
        };
        Some((high as u32 & ((1 << Self::ROW_BITS) - 1), fault))
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Status};

    #[test]
    fn the_first_fault_wins_and_is_cleared_by_reading() {
        let s = Status::default();
        assert_eq!(s.take(), None);
        s.fault(0, Fault::OutOfRange(0));
        s.fault(3, Fault::OutOfRange(4));
        assert_eq!(s.take(), Some((0, Fault::OutOfRange(0))));
        assert_eq!(s.take(), None);
    }

    #[test]
    fn indices_are_exact_and_numbers_keep_their_bits() {
        let s = Status::default();
        for fault in
            [Fault::OutOfRange(16_777_217), Fault::AboveMost(u32::MAX), Fault::NotFinite(f32::INFINITY)]
        {
            s.fault((1 << 30) - 1, fault);
            assert_eq!(s.take(), Some(((1 << 30) - 1, fault)));
        }
        s.fault(5, Fault::NotFinite(-f32::NAN));
        assert!(matches!(s.take(), Some((5, Fault::NotFinite(v))) if v.is_nan()));
        assert_eq!(Fault::out_of_range(1 << 40), Fault::OutOfRange(u32::MAX));
    }
}
