//! Fills tables, in place, in the steps in which a number is given
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `now` | `[1]` u32 | the number, or [`NONE`] |
//! | `tables` | at most 8, `[v, d]` of any type, state | such as node memory |
//!
//! Where it is not [`NONE`], every 32-bit word of a table becomes the table's `word`; otherwise nothing
//! happens. With it a copy of the node memory begins anew in the middle of a pass (DistTGL, section 3.2.3).
//! Deterministic.
use super::*;
use crate::runtime::cuda::abi;

/// See the [module](self).
#[derive(Debug)]
pub struct FillWhen {
    /// The word of each table.
    words: Vec<u32>,
}

impl Tape {
    /// Appends [`FillWhen`]: where `now`, u32 `[1]`, is not [`NONE`], every 32-bit word of each of the
    /// `tables` becomes the word beside it.
    ///
    /// # Errors
    /// `Shape` if `now` is not one number, if a table is read-only or not made of 32-bit words, or if there
    /// are more than 8.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let never = tape.input(&mut store, "never", Spec::ids(Rows::fixed(1), 1), &[NONE])?;
    /// let table = store.values("table", Spec::ids(Rows::fixed(2), 1), &[7u32, 8])?;
    /// let table = tape.stored(table)?;
    /// tape.fill_when(now, &[(table, 6)])?;
    /// tape.fill_when(never, &[(table, 5)])?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(table, &store)?, [6, 6]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn fill_when(&mut self, now: Var, tables: &[(Var, u32)]) -> Result<()> {
        let ins: Vec<Var> = std::iter::once(now).chain(tables.iter().map(|table| table.0)).collect();
        let words = tables.iter().map(|table| table.1).collect();
        self.push(FillWhen { words }, &ins).map(drop)
    }
}

/// Fills the table that is input `at`.
fn fill<T: Element>(io: &Io<'_>, at: usize, word: u32) {
    // Elements of 16 bits are filled in pairs; their number is even.
    bytemuck::cast_slice_mut::<T, u32>(io.state::<T>(at)).fill(word);
}

impl Op for FillWhen {
    const NAME: &'static str = "fill_when";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "now [1] ids, {table state} ->";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (n, want, most) = (ins.len() - 1, self.words.len(), abi::Fills::MOST);
        ensure!(Self::NAME, n == want && n <= most, "{n} tables, want {want}, and at most {most}");
        for table in &ins[1..] {
            let whole = table.bytes(Precision::F32).is_multiple_of(4);
            ensure!(Self::NAME, whole, "a table is {table}, want 32-bit words");
        }
        Ok(())
    }
    /// As in most steps, in which nothing happens.
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 4, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        if io.input::<u32>(0)[0] == NONE {
            return;
        }
        for (at, &word) in (1..).zip(&self.words) {
            match io.spec(at).dtype {
                DType::U32 => fill::<u32>(io, at, word),
                DType::I64 => fill::<i64>(io, at, word),
                DType::Bf16 => fill::<half::bf16>(io, at, word),
                DType::F16 => fill::<half::f16>(io, at, word),
                DType::F32 => fill::<R>(io, at, word),
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let mut of = [abi::Fill { table: std::ptr::null_mut(), words: 0, word: 0 }; abi::Fills::MOST];
        for (at, (fill, &word)) in (1..).zip(of.iter_mut().zip(&self.words)) {
            let words = on.spec(at).bytes(Precision::F32) as u64 / 4;
            *fill = abi::Fill { table: on.address(at) as *mut u32, words, word: word.into() };
        }
        let most = of.iter().map(|fill| fill.words).max().unwrap_or(0) as usize;
        launch!(k, on, fill_when[Grid::items(most)]; on.input(0), abi::Fills { of })
    }
}

/// `[rows, columns, whether the number is given]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[5, 3, 0], &[700, 9, 1], &[17, 1, 1], &[17, 1, 0], &[0, 2, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (rows, cols) = (dims[0], dims[1]);
    let ids: Vec<u32> = (0..rows * cols).map(|_| c.below(100) as u32).collect();
    let times: Vec<i64> = (0..rows as i64).collect();
    let (real, ids, times) = (c.real(rows, cols), c.ids(&ids, cols), c.times(&times));
    let now = c.ids(&[if dims[2] > 0 { 7 } else { NONE }], 1);
    c.tape.fill_when(now, &[(real, 0), (ids, NONE), (times, 0)])?;
    Ok(Built { states: vec![real, ids, times], ..Built::default() })
}
