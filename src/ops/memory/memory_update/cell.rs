//! The recurrent cells that update node memory.
use super::super::*;
use crate::runtime::cuda::abi;

/// A recurrent cell: the code in which memory updates differ.
///
/// A cell has `JOINT + APART` gates, each with d rows of the weights. Gate g has the terms
/// `x(g) = W_x m + b_x` of the message and `h(g) = W_h s + b_h` of the state. The first `JOINT` gates use
/// only `x + h`; the others use the two terms separately. Each memory column therefore has `SUMS` sums:
/// `x + h` of the joint gates, then `x`, then `h` of the others. A row of `SUMS` times d numbers holds the
/// first sum of all columns, then the second, and so on.
///
/// The trait is sealed, because the kernel of a cell relies on the numbers of gates for the size of its
/// outputs.
pub trait Cell: sealed::Sealed + std::fmt::Debug + Send + Sync + 'static {
    /// Name of the cell's op.
    const NAME: &'static str;
    /// Name of the op that computes the gradients.
    const GRAD_NAME: &'static str;
    /// Number of gates that use the sum of message term and state term.
    const JOINT: usize;
    /// Number of gates that use the two terms separately.
    const APART: usize;
    /// Number of all gates.
    const GATES: usize = Self::JOINT + Self::APART;
    /// Number of sums per memory column.
    const SUMS: usize = Self::GATES + Self::APART;
    /// Kernel of the cell.
    const KERNEL: unsafe fn(&Kernels, &Launch<'_>, Grid, abi::MemoryUpdate) -> Result<()>;

    /// Defines the cell for one column of a row: returns the new memory, given the terms `x(g)` and `h(g)` of
    /// every gate and the column's memory `s`. Writes the `SUMS` numbers that the backward pass reads to
    /// `gates`.
    fn define<R: Real>(x: impl Fn(usize) -> R, h: impl Fn(usize) -> R, s: R, gates: &mut [R]) -> R;
    /// Computes the gradients `dpre` of the sums of one column, given the `gates` that `define` saved and the
    /// gradient `dy` of the new memory.
    fn define_grad<R: Real>(dpre: &mut [R], gates: &[R], s: R, dy: R);
    /// Computes `define` for a row. `gates` holds the sums without the biases on entry, and the numbers that
    /// the backward pass reads on return.
    fn cpu(gates: &mut [f32], out: &mut [f32], s: &[f32], b_x: &[f32], b_h: &[f32]);
    /// Computes `define_grad` for a row.
    fn cpu_grad(dpre: &mut [f32], gates: &[f32], s: &[f32], dy: &[f32]);
    /// Launches the kernel that computes `dpre`, `[m, SUMS d]`, for all mails.
    ///
    /// # Safety
    /// As [`Op::launch`] of [`MemoryUpdateGrad`](super::MemoryUpdateGrad), and `dpre` must point to device
    /// memory for `[m, SUMS d]` numbers, where m is the capacity of the mails.
    ///
    /// # Errors
    /// `Device` if the driver refuses the launch.
    unsafe fn launch_grad(k: &Kernels, on: &Launch<'_>, dpre: *mut f32) -> Result<()>;
}

mod sealed {
    use super::super::super::{gru_memory::Gru, rnn_memory::Rnn};

    /// Restricts [`Cell`](super::Cell) to the cells of this crate.
    pub trait Sealed {}
    impl Sealed for Gru {}
    impl Sealed for Rnn {}
}
