//! Lists the targets of the layer below: each root, then its neighbours, at the root's or at their events'
//! time
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node`, `time` | `[n]` u32, i64 | roots |
//! | `neighbor` | `[n, k]` u32 | sampled neighbours of the roots, or [`NONE`] |
//! | `neighbor_time` | `[n, k]` i64, optional | times of the neighbours' events; without it, neighbours get the root's time |
//! | node, time | `[n (1 + k)]` u32, i64 | target `(1 + k) i` is root i; the next k targets are its neighbours |
//! | row | `[n, k]` u32 | row of each neighbour among the targets, or `NONE` |
//! | root row | `[n]` u32 | row of each root among the targets |
//! | identity | `[n]` u32 | 0, 1, ...: each root's own row, used where roots share no rows |
//!
//! TGN embeds a neighbour at the time of the query, TGAT at the time of the neighbour's event. Applied to the
//! positive roots of a batch, the nodes are also the list of recipients of their mails ([`deliver_mails`]),
//! `1 + k` deliveries per root.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct ExpandTargets;

/// Targets of the layer below, and the rows of the roots and neighbours among them.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// Nodes.
    pub node: Var,
    /// Query times.
    pub time: Var,
    /// Row of each neighbour slot, or `NONE`.
    pub neighbor_row: Var,
    /// Row of each root.
    pub root_row: Var,
    /// 0, 1, 2, ...
    pub identity: Var,
}

impl Tape {
    /// Appends [`ExpandTargets`]: each root, `[n]`, is followed by its neighbours, `[n, k]`, so that there
    /// are `n (1 + k)` targets. Without `neighbor_time`, neighbours get the root's time.
    ///
    /// # Errors
    /// `Shape` if the inputs are not `[n]`, `[n]`, `[n, k]` and `[n, k]` of the types in the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(1), 1), &[5u32])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(1)), &[10i64])?;
    /// let neighbor = tape.input(&mut store, "neighbor", Spec::ids(Rows::fixed(1), 2), &[7u32, NONE])?;
    /// let targets = tape.expand_targets((node, time), neighbor, None)?;
    /// let keep = [targets.node, targets.time, targets.neighbor_row, targets.root_row];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(targets.node, &store)?, [5, 7, NONE]);
    /// assert_eq!(program.read::<i64>(targets.time, &store)?, [10, 10, 10]);
    /// assert_eq!(program.read::<u32>(targets.neighbor_row, &store)?, [1, NONE]);
    /// assert_eq!(program.read::<u32>(targets.root_row, &store)?, [0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn expand_targets(
        &mut self,
        (node, time): (Var, Var),
        neighbor: Var,
        neighbor_time: Option<Var>,
    ) -> Result<Targets> {
        let ins: Vec<Var> = [node, time, neighbor].into_iter().chain(neighbor_time).collect();
        let o = self.push(ExpandTargets, &ins)?;
        Ok(Targets { node: o[0], time: o[1], neighbor_row: o[2], root_row: o[3], identity: o[4] })
    }
}

impl Op for ExpandTargets {
    const NAME: &'static str = "expand_targets";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, time [n] times, neighbor [n, k] ids, \
        neighbor_time? [n, k] times \
        -> node [n (k + 1)] ids, time [n (k + 1)] times, row [n, k] ids, root_row [n] ids, identity [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let neighbor = ins[at!(neighbor)];
        countable(Self::NAME, "targets", neighbor.rows.times(neighbor.cols.saturating_add(1)).capacity)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, time) = (io.input::<u32>(at!(node)), io.input::<i64>(at!(time)));
        let (neighbor, k) = (io.input::<u32>(at!(neighbor)), io.cols(at!(neighbor)));
        let neighbor_time = (io.inputs() > at!(neighbor_time)).then(|| io.input::<i64>(at!(neighbor_time)));
        let (target, target_time) = (io.out::<u32>(0), io.out::<i64>(1));
        let (row, root_row) = (io.out::<u32>(2), io.out::<u32>(3));
        io.out::<u32>(4).iter_mut().zip(0..).for_each(|(o, i)| *o = i);
        for (i, block) in target.chunks_exact_mut(1 + k).enumerate() {
            let first = i * (1 + k);
            block[0] = node[i];
            block[1..].copy_from_slice(&neighbor[i * k..][..k]);
            target_time[first..][..1 + k].fill(time[i]);
            if let Some(neighbor_time) = neighbor_time {
                target_time[first + 1..][..k].copy_from_slice(&neighbor_time[i * k..][..k]);
            }
            root_row[i] = first as u32;
            for j in 0..k {
                let present = neighbor[i * k + j] != NONE;
                row[i * k + j] = if present { (first + 1 + j) as u32 } else { NONE };
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, time, neighbor) = (on.input(at!(node)), on.input(at!(time)), on.input(at!(neighbor)));
        let (target, at, row, root, identity) = (on.out(0), on.out(1), on.out(2), on.out(3), on.out(4));
        let neighbor_time =
            if on.inputs() > at!(neighbor_time) { on.input(at!(neighbor_time)) } else { std::ptr::null() };
        let grid = Grid::items(on.out_cap(0));
        launch!(
            k, on, expand_targets[grid];
            node, time, neighbor, neighbor_time, target, at, row, root, identity, on.rows(at!(node)),
            on.cols(at!(neighbor))
        )
    }
}

/// `[n, k]`; if there is a third number, neighbours have times of their own.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1], &[0, 2], &[5, 3], &[40, 10], &[1, 1, 1], &[0, 2, 1], &[40, 10, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (n, k) = (dims[0], dims[1]);
    let node = c.ids_below(n, 9);
    let time = c.times(&(0..n as i64).collect::<Vec<_>>());
    let values: Vec<u32> = (0..n * k).map(|i| if i % 3 == 2 { NONE } else { i as u32 }).collect();
    let neighbor = c.values(Spec::ids(Rows::fixed(n), k), &values);
    let times: Vec<i64> = (0..(n * k) as i64).map(|i| 1_000_000 - 7 * i).collect();
    let neighbor_time =
        (dims.len() > 2).then(|| c.values(Spec { cols: k, ..Spec::times(Rows::fixed(n)) }, &times));
    let t = c.tape.expand_targets((node, time), neighbor, neighbor_time)?;
    Ok(Built::new(&[t.node, t.time, t.neighbor_row, t.root_row, t.identity], &[]))
}
