//! Gathers rows, some of which are mixed with the mean of similar rows: `lambda x + (1 - lambda) mean`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` f32, bf16 or f16 | one row per node, such as node memory |
//! | `node` | `[n]` u32 below `v`, or [`NONE`] | rows to gather |
//! | `row` | `[m]` u32 below n, each once | rows of the result that are mixed |
//! | `picks` | `[m, s]` u32, or [`NONE`] | whether each similar row counts |
//! | `similar` | `[m s, d]` f32 | the similar rows, [gathered](super::gather_rows) by `picks` |
//! | out | `[n, d]` f32 | zeros where the index is `NONE` |
//!
//! The mean is over the rows that count, in their order; without any, a row is not mixed. No gradient: the
//! table is state. Deterministic.
//! Source: MSPipe, section 3.3, the mitigation of staleness.
use super::*;
use crate::runtime::{
    cuda::abi,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct MixSimilar {
    lambda: f32,
}

/// Positions of the inputs.
mod input {
    pub(in crate::ops) const COUNT: usize = 5;
}

impl Tape {
    /// Appends [`MixSimilar`]: gathers the rows `node`, u32 `[n]`, of `table`, `[v, d]`, and mixes the rows
    /// `row`, u32 `[m]`, of the result with the mean of those of `similar`, f32 `[m s, d]`, whose entry in
    /// `picks`, u32 `[m, s]`, is not [`NONE`].
    ///
    /// # Errors
    /// `Shape` if types or shapes are not those of the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let table = tape.input(&mut store, "table", Spec::real(Rows::fixed(3), 1), &[4.0f32, 8.0, 16.0])?;
    /// let node = tape.input(&mut store, "node", ids(2), &[0u32, 1])?;
    /// let row = tape.input(&mut store, "row", ids(1), &[1u32])?;
    /// let picks = tape.input(&mut store, "picks", ids(1), &[2u32])?;
    /// let similar = tape.gather_rows(table, picks)?;
    /// let mixed = tape.mix_similar(table, node, (row, picks), similar, 0.75)?;
    /// let mut program = Program::new(&tape, &[mixed], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(mixed, &store)?, [4.0, 0.75 * 8.0 + 0.25 * 16.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn mix_similar(
        &mut self,
        table: Var,
        node: Var,
        (row, picks): (Var, Var),
        similar: Var,
        lambda: f32,
    ) -> Result<Var> {
        self.push1(MixSimilar { lambda }, &[table, node, row, picks, similar])
    }
}

/// Columns that are summed side by side.
const COLUMNS: usize = 32;

impl MixSimilar {
    /// Gathers the rows of a table stored as `T`, and mixes those that are to be mixed.
    fn mix<R: Real, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, s) = (io.cols(at!(table)), io.cols(at!(picks)));
        let (table, node) = (io.input::<T>(at!(table)), io.input::<u32>(at!(node)));
        let out = io.out::<R>(0);
        if d == 0 {
            return;
        }
        let size = team::piece(node.len(), 128);
        out[..node.len() * d].chunks_mut(size * d).enumerate().in_parallel(1, |(piece, out)| {
            for (i, out) in (piece * size..).zip(out.chunks_exact_mut(d)) {
                match io.row_of(i, node[i], table.len() / d) {
                    Some(r) => T::real(&table[r * d..][..d], out),
                    None => out.fill(R::ZERO),
                }
            }
        });
        let (picks, similar) = (io.input::<u32>(at!(picks)), io.input::<R>(at!(similar)));
        let (lambda, rest) = (R::from_f64(f64::from(self.lambda)), R::from_f64(1.0 - f64::from(self.lambda)));
        for (k, &row) in io.input::<u32>(at!(row)).iter().enumerate() {
            let Some(row) = io.row_of(k, row, node.len()) else { continue };
            let picked = || (0..s).filter(|j| picks[k * s + j] != NONE);
            let count = picked().count();
            if count == 0 {
                continue;
            }
            for (at, out) in out[row * d..][..d].chunks_mut(COLUMNS).enumerate() {
                let mut sums = [R::ZERO; COLUMNS];
                for j in picked() {
                    let similar = &similar[(k * s + j) * d + at * COLUMNS..][..out.len()];
                    sums.iter_mut().zip(similar).for_each(|(sum, &x)| *sum += x);
                }
                let mixed = sums.iter().map(|&sum| rest * (sum / R::from_f64(count as f64)));
                out.iter_mut().zip(mixed).for_each(|(out, mixed)| *out = lambda * *out + mixed);
            }
        }
    }
}

impl Op for MixSimilar {
    const NAME: &'static str = "mix_similar";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "table [v, d] stored, node [n] ids, row [m] ids, picks [m, s] ids, \
        similar [m s, d] -> out [n, d]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let read = outs[0].len() * ins[at!(table)].dtype.size(Precision::F32);
        Cost { bytes: read + 4 * (outs[0].len() + ins[at!(node)].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        by_storage!(io.spec(at!(table)).dtype, R, self.mix(io));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rows, from, d) = (on.out_rows(0), on.rows(at!(table)), on.cols(at!(table)));
        let grid = Grid::warps(on.out_cap(0));
        let spec = on.spec(at!(table));
        let addresses = [on.address(at!(table)), on.needed::<f32>(0) as u64];
        let tables = abi::Tables::new([(spec.dtype, spec.cols, addresses)]);
        launch!(k, on, gather_rows[grid]; tables, on.input(at!(node)), rows, from, on.status())?;
        launch!(
            k, on, mix_similar[Grid::warps(on.capacity(at!(row)))];
            on.input(at!(row)), on.input(at!(picks)), on.input(at!(similar)), on.needed(0),
            on.rows(at!(row)), rows, on.cols(at!(picks)), d, self.lambda, on.status()
        )
    }
    /// The table is state: no gradient flows into it.
    fn vjp(&self, _: &mut Tape, _: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; input::COUNT])
    }
}

/// `[nodes, rows, mixed rows, similar rows, columns, storage type]`
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1, 0],
    &[9, 7, 3, 2, 5, 0],
    &[40, 300, 90, 4, 36, 1],
    &[40, 300, 90, 4, 33, 2],
    &[5, 0, 0, 2, 3, 0],
    &[5, 4, 2, 0, 3, 0],
    &[5, 4, 2, 2, 0, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 5_000, 60, 8, 100, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, m, s, d, kept] = dims[..] else { return Err(Error::shape("mix_similar", "six numbers")) };
    let table = c.stored(v, d, StoredAs::ALL[kept]);
    let node: Vec<u32> = (0..n).map(|i| if i % 9 == 8 { NONE } else { c.below(v) as u32 }).collect();
    let row: Vec<u32> = (0..m as u32).map(|i| i * (n / m.max(1)) as u32).collect();
    let picks: Vec<u32> = (0..m * s).map(|i| if i % 3 == 2 { NONE } else { c.below(v) as u32 }).collect();
    let (node, row) = (c.ids(&node, 1), c.ids(&row, 1));
    let picks = c.values(Spec::ids(Rows::fixed(m), s), &picks);
    let similar = c.tape.gather_rows(table, picks)?;
    let mixed = c.tape.mix_similar(table, node, (row, picks), similar, 0.75)?;
    Ok(Built::new(&[mixed], &[]))
}
