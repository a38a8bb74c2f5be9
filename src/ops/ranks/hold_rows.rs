//! Places of rows that are held over several steps, in a table of one slot for each step
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `slot` | `[1]` u32 below `s` | slot of this step |
//! | `id` | `[n]` u32 | rows of this step, with a live row count |
//! | `held` | `[s]` u32, state | number of rows in each slot |
//! | place | `[n]` u32 | row of the table in which each row is to be held, which has `m` rows for each slot |
//!
//! [`DueRows`] gives the rows back in the step of the last slot, when all slots are full. With both ops,
//! ranks that train on the same events for several steps see the node memory of the first one, while others
//! already write (DistTGL, section 3.2.2). A slot outside of the table is a fault, and so are more than `m`
//! rows. Deterministic.
use super::*;
use std::ops::Range;

/// See the [module](self).
#[derive(Debug)]
pub struct HoldRows {
    /// Maximum number of rows of a slot, m.
    rows: usize,
}

/// The rows of a range of slots, in the step of the last slot, slot by slot: `slot m + i` for all rows i that
/// the slot holds; in other steps none.
#[derive(Debug)]
pub struct DueRows {
    slots: Range<usize>,
    /// Maximum number of rows of a slot, m.
    rows: usize,
}

impl Tape {
    /// Appends [`HoldRows`] for the rows `id`, u32 `[n]`, of the step with the given `slot`, u32 `[1]`;
    /// `held`, u32 `[s]`, counts the rows of each slot. Returns their places in a table with `rows` rows for
    /// each slot.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let slot = tape.input(&mut store, "slot", Spec::ids(Rows::fixed(1), 1), &[1u32])?; // of two
    /// let id = tape.input(&mut store, "id", Spec::ids(Rows::fixed(3), 1), &[7u32, 8, 9])?;
    /// let held = store.values("held", Spec::ids(Rows::fixed(2), 1), &[1u32, 0])?;
    /// let held = tape.stored(held)?;
    /// let place = tape.hold_rows(slot, id, held, 3)?;
    /// let due = tape.due_rows(slot, held, 0..2, 3)?.id;
    /// let mut program = Program::new(&tape, &[place, due], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(place, &store)?, [3, 4, 5]);
    /// assert_eq!(program.read::<u32>(due, &store)?, [0, 3, 4, 5]); // because this is the last slot
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn hold_rows(&mut self, slot: Var, id: Var, held: Var, rows: usize) -> Result<Var> {
        self.push1(HoldRows { rows }, &[slot, id, held])
    }
    /// Appends [`DueRows`] of the `slots` of a table of `rows` rows a slot; `slot`, u32 `[1]`, is the slot of
    /// this step, and `held`, u32 `[s]`, counts the rows of each slot.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32, or there are no such slots.
    ///
    /// # Examples
    /// As [`hold_rows`](Self::hold_rows).
    pub fn due_rows(&mut self, slot: Var, held: Var, slots: Range<usize>, rows: usize) -> Result<Due> {
        let outs = self.push(DueRows { slots, rows }, &[slot, held])?;
        Ok(Due { count: outs[0], id: outs[1] })
    }
}

/// Held rows that are due.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Number of rows, u32 `[1]`.
    pub count: Var,
    /// The rows, u32 `[<= slots m]`.
    pub id: Var,
}

impl Op for HoldRows {
    const NAME: &'static str = "hold_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "slot [1] ids, id [n] ids, held [s + 1] ids state -> place [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "rows of all slots", ins[at!(held)].len().saturating_mul(self.rows))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (slot, held) = (io.input::<u32>(at!(slot))[0], io.state::<u32>(at!(held)));
        let n = io.rows(at!(id));
        let Some(slot) = io.row_of(0, slot, held.len()) else { return };
        if n > self.rows {
            io.fault(self.rows, Fault::out_of_range(n));
        }
        held[slot] = n.min(self.rows) as u32;
        for (i, place) in io.out::<u32>(0)[..n].iter_mut().enumerate() {
            *place = if i < self.rows { (slot * self.rows + i) as u32 } else { NONE };
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, hold_rows[Grid::items(on.capacity(at!(id)))];
            on.input(at!(slot)), on.state(at!(held)), on.out(0), on.rows(at!(id)), self.rows as u32,
            on.capacity(at!(held)) as u32, on.status()
        )
    }
}

impl Op for DueRows {
    const NAME: &'static str = "due_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "slot [1] ids, held [s + 1] ids -> count [1] ids, id [r] ids by count";
    fn sizes(&self) -> Sizes {
        vec![("r", Rows::fixed(self.slots.len().saturating_mul(self.rows)))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (slots, &Range { start, end }) = (ins[1].len(), &self.slots);
        ensure!(Self::NAME, start <= end && end <= slots, "slots {start}..{end} of {slots}");
        countable(Self::NAME, "rows of all slots", slots.saturating_mul(self.rows))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (slot, held) = (io.input::<u32>(0)[0] as usize, io.input::<u32>(1));
        let (out, mut n) = (io.out::<u32>(1), 0);
        if slot + 1 == held.len() {
            for of in self.slots.clone() {
                let rows = (held[of] as usize).min(self.rows);
                let due = out[n..n + rows].iter_mut();
                due.zip((of * self.rows) as u32..).for_each(|(out, row)| *out = row);
                n += rows;
            }
        }
        io.out::<u32>(0)[0] = n as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (slots, rows) = (on.capacity(1) as u32, self.rows as u32);
        let [begin, end] = [self.slots.start, self.slots.end].map(|of| of as u32);
        let (slot, held, grid) = (on.input(0), on.input(1), Grid::items(self.rows));
        launch!(k, on, due_rows[grid]; slot, held, on.needed(0), on.out(1), slots, begin, end, rows)
    }
}

/// `[rows, slots, slot of the step, rows of the other slots]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0, 0], &[5, 2, 0, 3], &[5, 2, 1, 5], &[0, 3, 2, 0], &[700, 4, 3, 300], &[40, 4, 3, 10]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_200, 4, 3, 1_200]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, slots, slot, others] = dims[..] else {
        return Err(Error::shape("hold_rows", "four numbers"));
    };
    let (slot, id) = (c.count(slot), c.ids_below(n, 1_000));
    let held = c.ids(&vec![others as u32; slots], 1);
    let mut outs = vec![c.tape.hold_rows(slot, id, held, n)?];
    for range in [0..slots, 0..1, slots / 2..slots] {
        outs.push(c.tape.due_rows(slot, held, range, n)?.id);
    }
    Ok(Built { outs, states: vec![held], ..Built::default() })
}
