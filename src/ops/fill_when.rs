//! Fills a table, in place, in the steps in which a number is given
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` of any type, state | such as node memory |
//! | `now` | `[1]` u32 | the number, or [`NONE`] |
//!
//! Where it is not [`NONE`], every 32-bit word of the table becomes `word`; otherwise nothing happens.
//! With it a copy of the node memory begins anew in the middle of a pass (DistTGL, section 3.2.3).
//! Deterministic.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct FillWhen {
    word: u32,
}

impl Tape {
    /// Appends [`FillWhen`]: where `now`, u32 `[1]`, is not [`NONE`], every 32-bit word of `table` becomes `word`.
    ///
    /// # Errors
    /// `Shape` if `now` is not one number, if the table is read-only, or if it is not made of 32-bit words.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let never = tape.input(&mut store, "never", Spec::ids(Rows::fixed(1), 1), &[NONE])?;
    /// let table = store.values("table", Spec::ids(Rows::fixed(2), 1), &[7u32, 8])?;
    /// let table = tape.stored(&store, table)?;
    /// tape.fill_when(table, now, 6)?;
    /// tape.fill_when(table, never, 5)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(table, &store)?, [6, 6]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn fill_when(&mut self, table: Var, now: Var, word: u32) -> Result<()> {
        self.push(FillWhen { word }, &[table, now]).map(drop)
    }
}

/// Positions of the inputs.
mod input {
    pub(super) const TABLE: usize = 0;
    pub(super) const NOW: usize = 1;
}

impl FillWhen {
    fn fill<T: Element>(&self, io: &Io<'_>) {
        // Elements of 16 bits are filled in pairs; their number is even.
        bytemuck::cast_slice_mut::<T, u32>(io.state::<T>(input::TABLE)).fill(self.word);
    }
}

impl Op for FillWhen {
    const NAME: &'static str = "fill_when";
    const KIND: OpKind = OpKind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        let (table, now) = (&ins[input::TABLE], &ins[input::NOW]);
        ensure!(
            Self::NAME,
            table.bytes(Precision::F32).is_multiple_of(4),
            "table is {table}, want 32-bit words"
        );
        ensure!(Self::NAME, *now == Spec::count(), "now is {now}, want {}", Spec::count());
        Ok(Vec::new())
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![input::TABLE]
    }
    /// As in most steps, in which nothing happens.
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 4, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        if io.input::<u32>(input::NOW)[0] == NONE {
            return;
        }
        match io.spec(input::TABLE).dtype {
            DType::U32 => self.fill::<u32>(io),
            DType::I64 => self.fill::<i64>(io),
            DType::Bf16 => self.fill::<half::bf16>(io),
            DType::F16 => self.fill::<half::f16>(io),
            DType::F32 => self.fill::<R>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let words = on.spec(input::TABLE).bytes(Precision::F32) / 4;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.fill_when(
                on,
                Grid::items(words),
                on.address(input::TABLE) as *mut u32,
                on.input(input::NOW),
                words as u64,
                self.word,
            )
        }
    }
}

/// `[rows, columns, type: real, ids or times, whether the number is given]`
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 0, 1], &[5, 3, 0, 0], &[700, 9, 0, 1], &[30, 2, 1, 1], &[17, 1, 2, 1], &[17, 1, 2, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 100, 0, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (rows, cols) = (dims[0], dims[1]);
    let table = match dims[2] {
        0 => c.real(rows, cols),
        1 => {
            let ids: Vec<u32> = (0..rows * cols).map(|_| c.below(100) as u32).collect();
            c.ids(&ids, cols)
        }
        _ => c.times(&(0..rows as i64).collect::<Vec<_>>()),
    };
    let now = c.ids(&[if dims[3] > 0 { 7 } else { NONE }], 1);
    c.tape.fill_when(table, now, 0)?;
    Ok(Built { states: vec![table], ..Built::default() })
}
