//! Roots of a batch, event by event: source, destination, then the negatives, all at the event's time
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[<= b]` u32 | |
//! | `time` | `[<= b]` i64 | |
//! | `negatives` | `[<= b, m]` u32, optional | m is 0 without |
//! | node | `[<= (2 + m) b]` u32 | root `(2 + m) i + side`: side 0 source, 1 destination, 2.. negatives |
//! | time | `[<= (2 + m) b]` i64 | |
//!
//! Event by event, so that live roots are a prefix whatever the batch's length, and in order of time.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Roots;

impl Tape {
    /// Appends [`Roots`]; returns nodes and times.
    ///
    /// # Errors
    /// `Shape` when the rows differ.
    pub fn roots(
        &mut self,
        src: Var,
        dst: Var,
        time: Var,
        negatives: impl Into<Option<Var>>,
    ) -> Result<(Var, Var)> {
        let ins: Vec<Var> = [src, dst, time].into_iter().chain(negatives.into()).collect();
        let o = self.push(Roots, &ins)?;
        Ok((o[0], o[1]))
    }
}

impl Op for Roots {
    const NAME: &'static str = "roots";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(3, 4))?;
        let (events, m) = (ins[0].rows, ins.get(3).map_or(0, |negatives| negatives.cols));
        let ends = Spec::ids(events, 1);
        let wants = [ends, ends, Spec::times(events), Spec::ids(events, m)];
        for ((what, found), want) in ["src", "dst", "time", "negatives"].iter().zip(ins).zip(wants) {
            ensure!(Self::NAME, *found == want, "{what} is {found}, want {want}");
        }
        let rows = events.times(m.saturating_add(2));
        ensure!(
            Self::NAME,
            rows.capacity < NONE as usize && m < NONE as usize - 2,
            "{m} negatives for each of {ends}"
        );
        Ok(vec![Spec::ids(rows, 1).into(), Spec::times(rows).into()])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (src, dst, time) = (io.input::<u32>(0), io.input::<u32>(1), io.input::<i64>(2));
        let (negatives, m): (&[u32], _) = if io.inputs() > 3 { (io.input(3), io.cols(3)) } else { (&[], 0) };
        let (node, at) = (io.out::<u32>(0), io.out::<i64>(1));
        for (i, root) in node.chunks_exact_mut(2 + m).enumerate() {
            (root[0], root[1]) = (src[i], dst[i]);
            root[2..].copy_from_slice(&negatives[i * m..][..m]);
            at[i * (2 + m)..][..2 + m].fill(time[i]);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (src, dst, time, node, at) = (on.input(0), on.input(1), on.input(2), on.out(0), on.out(1));
        let (negatives, m) = if on.inputs() > 3 { (on.input(3), on.cols(3)) } else { (std::ptr::null(), 0) };
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.roots(on, Grid::items(on.out_cap(0)), src, dst, time, negatives, node, at, on.rows(0), m) }
    }
}

/// `[b, m]`; without negatives where m is 0.
pub(super) const CASES: &[&[usize]] = &[&[1, 1], &[0, 1], &[5, 3], &[300, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[600, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (n, m) = (dims[0], dims[1]);
    let (src, dst) = (c.ids_below(n, 9), c.ids_below(n, 9));
    let time = c.times(&(0..n as i64).collect::<Vec<_>>());
    let values: Vec<u32> = (0..n * m).map(|i| i as u32).collect();
    let negatives = c.values(Spec::ids(Rows::fixed(n), m), &values);
    let (node, at) = c.tape.roots(src, dst, time, (m > 0).then_some(negatives))?;
    Ok(Built::new(&[node, at], &[]))
}
