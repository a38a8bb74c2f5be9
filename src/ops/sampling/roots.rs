//! Lists the roots of a batch event by event: source, destination, then the negatives, all at the event's
//! time.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[<= b]` u32 | sources and destinations of the events |
//! | `time` | `[<= b]` i64 | times of the events |
//! | `negatives` | `[<= b, m]` u32, optional | negatives of each event; m is 0 without them |
//! | node | `[<= (2 + m) b]` u32 | root `(2 + m) i + side` of event i: side 0 is the source, 1 the destination, 2 and up the negatives |
//! | time | `[<= (2 + m) b]` i64 | time of each root |
//!
//! With this order the live roots are a prefix for any batch length, and they are sorted by time.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Roots;

impl Tape {
    /// Appends [`Roots`] for b events with m negatives each, u32 `[b, m]`; returns the nodes and times of the
    /// `(2 + m) b` roots.
    ///
    /// # Errors
    /// `Shape` if the inputs differ in their rows.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let dst = tape.input(&mut store, "dst", Spec::ids(Rows::fixed(2), 1), &[2u32, 3])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(2)), &[10i64, 20])?;
    /// let negatives = tape.input(&mut store, "negatives", Spec::ids(Rows::fixed(2), 1), &[8u32, 9])?;
    /// let (node, times) = tape.roots(src, dst, time, negatives)?;
    /// let mut program = Program::new(&tape, &[node, times], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(node, &store)?, [0, 2, 8, 1, 3, 9]);
    /// assert_eq!(program.read::<i64>(times, &store)?, [10, 10, 10, 20, 20, 20]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
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
    const SIGNATURE: &'static str = "src [b] ids, dst [b] ids, time [b] times, negatives? [b, m] ids \
        -> node, time";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        signature::infer(self, ins)?;
        let m = ins.get(at!(negatives)).map_or(0, |negatives| negatives.cols);
        let rows = ins[0].rows.times(m.saturating_add(2));
        ensure!(
            Self::NAME,
            rows.capacity < NONE as usize && m < NONE as usize - 2,
            "{m} negatives for each of {}, want fewer than {NONE} roots in all",
            ins[0]
        );
        Ok(vec![Spec::ids(rows, 1).into(), Spec::times(rows).into()])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (src, dst, time) = (io.input::<u32>(0), io.input::<u32>(1), io.input::<i64>(2));
        let (negatives, m): (&[u32], _) = if io.inputs() > at!(negatives) {
            (io.input(at!(negatives)), io.cols(at!(negatives)))
        } else {
            (&[], 0)
        };
        let (node, at) = (io.out::<u32>(0), io.out::<i64>(1));
        for (i, root) in node.chunks_exact_mut(2 + m).enumerate() {
            (root[0], root[1]) = (src[i], dst[i]);
            root[2..].copy_from_slice(&negatives[i * m..][..m]);
            at[i * (2 + m)..][..2 + m].fill(time[i]);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (src, dst, time, node, at) = (on.input(0), on.input(1), on.input(2), on.out(0), on.out(1));
        let given = on.inputs() > at!(negatives);
        let (negatives, m) =
            if given { (on.input(at!(negatives)), on.cols(at!(negatives))) } else { (std::ptr::null(), 0) };
        launch!(k, on, roots[Grid::items(on.out_cap(0))]; src, dst, time, negatives, node, at, on.rows(0), m)
    }
}

/// `[b, m]`; no negatives if m is 0.
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1], &[0, 1], &[5, 3], &[300, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (n, m) = (dims[0], dims[1]);
    let (src, dst) = (c.ids_below(n, 9), c.ids_below(n, 9));
    let time = c.times(&(0..n as i64).collect::<Vec<_>>());
    let values: Vec<u32> = (0..n * m).map(|i| i as u32).collect();
    let negatives = c.values(Spec::ids(Rows::fixed(n), m), &values);
    let (node, at) = c.tape.roots(src, dst, time, (m > 0).then_some(negatives))?;
    Ok(Built::new(&[node, at], &[]))
}
