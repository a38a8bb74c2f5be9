//! `out[i b + c, r] = x[i a + r, c]`: transposes each of n blocks of `a` rows and `b` columns
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n a, b]` f32, `b > 0` | for example n nodes with `a` neighbours of `b` channels each |
//! | out | `[n b, a]` f32 | |
//!
//! Backward: the blocks of the gradient, transposed. Source: none.
use super::*;
use crate::runtime::team::{self, InParallel};

/// Most elements of a block that is transposed whole, with an odd row length (`MOST` in
/// `kernels/transpose_blocks.cu`).
const MOST: usize = 4096;
/// Rows and columns of a tile of a larger block.
const TILE: usize = 32;

/// See the [module](self).
#[derive(Debug)]
pub struct TransposeBlocks {
    a: usize,
}

impl Tape {
    /// Appends [`TransposeBlocks`] and returns `x`, f32 `[n a, b]`, with each block of `a` rows transposed,
    /// `[n b, a]`.
    ///
    /// # Errors
    /// `Shape` if `x` has no column, or if `a` is 0 or does not divide the capacity of `x` or its live rows
    /// per unit of their count.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let values: Vec<f32> = (1..=8).map(|i| i as f32).collect();
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(4), 2), &values)?;
    /// let y = tape.transpose_blocks(x, 2)?; // blocks [[1, 2], [3, 4]] and [[5, 6], [7, 8]]
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [1.0, 3.0, 2.0, 4.0, 5.0, 7.0, 6.0, 8.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn transpose_blocks(&mut self, x: Var, a: usize) -> Result<Var> {
        self.push1(TransposeBlocks { a }, &[x])
    }
}

impl TransposeBlocks {
    /// Transposes blocks of `b` columns.
    fn transpose<R: Real>(&self, out: &mut [R], x: &[R], b: usize) {
        let size = self.a * b;
        for (out, x) in out.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
            for (c, row) in out.chunks_exact_mut(self.a).enumerate() {
                for (out, &x) in row.iter_mut().zip(x[c..].iter().step_by(b)) {
                    *out = x;
                }
            }
        }
    }
}

impl Op for TransposeBlocks {
    const NAME: &'static str = "transpose_blocks";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x [n a, d] -> out [n d, a]";
    fn sizes(&self) -> Sizes {
        vec![("a", Rows::fixed(self.a))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[0])?;
        countable(Self::NAME, "rows", (ins[0].rows.capacity / self.a).saturating_mul(ins[0].cols))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        self.transpose(io.out::<R>(0), io.input(0), io.cols(0));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, b) = (io.input::<f32>(0), io.cols(0));
        let piece = team::piece(x.len() / (self.a * b), 16) * self.a * b;
        let pieces = io.out::<f32>(0).chunks_mut(piece).zip(x.chunks(piece));
        pieces.in_parallel(1, |(out, x)| self.transpose(out, x, b));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, b) = (self.a, on.spec(0).cols);
        let tiles = if a * (b | 1) <= MOST { 1 } else { a.div_ceil(TILE) * b.div_ceil(TILE) };
        let grid = Grid::items((on.capacity(0) / a * tiles).saturating_mul(Grid::THREADS as usize));
        launch!(k, on, transpose_blocks[grid]; on.input(0), on.out(0), on.rows(0), self.a as u32, on.cols(0))
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let b = t.spec(node.ins[0]).cols;
        Ok(vec![douts[0].map(|d| t.transpose_blocks(d, b)).transpose()?])
    }
}

/// `[n, a, b]`; `n` of `n + 2` blocks are live. The last ones are transposed by tiles of 32 x 32, full and
/// ragged.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1],
    &[0, 2, 3],
    &[5, 3, 1],
    &[4, 20, 37],
    &[3, 33, 32],
    &[2, 65, 5],
    &[2, 64, 64],
    &[1, 70, 90],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 20, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, a, b] = [dims[0], dims[1], dims[2]];
    let rows = Rows::live(n + 2, c.count(n)).times(a);
    let values: Vec<f32> = (0..rows.capacity * b).map(|_| c.uniform()).collect();
    let x = c.values(Spec::real(rows, b), &values);
    let out = c.tape.transpose_blocks(x, a)?;
    Ok(Built::new(&[out], &[x]))
}
