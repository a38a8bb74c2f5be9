//! Finds the rows from which the mails of a list of nodes are made
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node_row` | `[n]` u32 | rows of nodes among the unique nodes, or [`NONE`] |
//! | `phi` | `[u]` u32 | for each unique node, its latest root, or its latest delivery if `each` > 1 |
//! | `psi` | `[stride b]` u32 | rows of the roots among the unique nodes |
//! | pair | `[n, 2]` u32 | rows of the latest root and of its partner, the other end of its event, among all roots |
//! | partner row | `[n]` u32 | row of the partner among the unique nodes |
//! | end | `[n]` u32 | row of the partner among the ends of events: `2 event`, plus 1 if it is the destination |
//! | event | `[n]` u32 | row of the event in the batch |
//!
//! A delivery is one of `each` copies of a positive root's mail: delivery i is of the positive root
//! `i / each`, counted without negatives. A row outside its table is a fault, and all its results are `NONE`.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct MailSources {
    stride: usize,
    each: usize,
}

/// Rows from which mails are made.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// Rows of the latest root and of its partner among all roots.
    pub pair: Var,
    /// Row of the partner among the unique nodes.
    pub partner_row: Var,
    /// Row of the partner among the ends of the batch's events.
    pub end: Var,
    /// Row of the event in the batch.
    pub event: Var,
}

impl Tape {
    /// Appends [`MailSources`] for `stride` roots per event. `each` is the number of deliveries per root, or
    /// `None` if `phi` holds roots.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32, or there are fewer than two roots per event.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// // Two events, (4, 7) and (4, 9): the unique nodes are 4, 7 and 9.
    /// let phi = tape.input(&mut store, "phi", ids(3), &[2u32, 1, 3])?;
    /// let psi = tape.input(&mut store, "psi", ids(4), &[0u32, 1, 0, 2])?;
    /// let node_row = tape.input(&mut store, "node row", ids(2), &[0u32, 1])?;
    /// let from = tape.mail_sources(node_row, phi, psi, 2, None)?;
    /// let keep = [from.partner_row, from.event];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(from.partner_row, &store)?, [2, 0]); // 9 is 4's latest partner
    /// assert_eq!(program.read::<u32>(from.event, &store)?, [1, 0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn mail_sources(
        &mut self,
        node_row: Var,
        phi: Var,
        psi: Var,
        stride: usize,
        each: Option<usize>,
    ) -> Result<Sources> {
        let each = each.unwrap_or(0);
        let o = self.push(MailSources { stride, each }, &[node_row, phi, psi])?;
        Ok(Sources { pair: o[0], partner_row: o[1], end: o[2], event: o[3] })
    }
}

impl MailSources {
    /// Returns event and side (0 source, 1 destination) of a root or a delivery; `None` for a negative root.
    fn root(&self, at: usize) -> Option<(usize, usize)> {
        match self.each {
            0 => Some((at / self.stride, at % self.stride)).filter(|&(_, side)| side < 2),
            each => Some((at / each / 2, at / each % 2)),
        }
    }
}

impl Op for MailSources {
    const NAME: &'static str = "mail_sources";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node_row [n] ids, phi [p] ids, psi [q] ids \
        -> pair [n, 2] ids, partner_row [n] ids, end [n] ids, event [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        ensure!(Self::NAME, self.stride >= 2, "{} roots per event, want 2 or more", self.stride);
        countable(Self::NAME, "roots per event", self.stride)?;
        countable(Self::NAME, "deliveries", self.each)?;
        countable(Self::NAME, "rows", ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node_row, phi, psi) = (io.input::<u32>(0), io.input::<u32>(1), io.input::<u32>(2));
        let [pair, partner_row, end, event] = std::array::from_fn(|k| io.out::<u32>(k));
        for (i, &row) in node_row.iter().enumerate() {
            let latest = io.row_of(i, row, phi.len()).map(|row| phi[row]);
            let root = latest.filter(|&at| at != NONE).and_then(|at| self.root(at as usize));
            let there = root.filter(|(event, _)| (event + 1) * self.stride <= psi.len());
            if let (None, Some(latest)) = (there, latest) {
                io.fault(i, Fault::OutOfRange(latest));
            }
            [pair[2 * i], pair[2 * i + 1], partner_row[i], end[i], event[i]] = match there {
                Some((at, side)) => {
                    let (first, other) = (at * self.stride, 1 - side);
                    [first + side, first + other, psi[first + other] as usize, 2 * at + other, at]
                        .map(|x| x as u32)
                }
                None => [NONE; 5],
            };
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (grid, stride, each) = (Grid::items(on.capacity(0)), self.stride as u32, self.each as u32);
        let (node_row, phi, psi) = (on.input(0), on.input(1), on.input(2));
        let (pair, partner_row, end, event) = (on.out(0), on.out(1), on.out(2), on.out(3));
        let (rows, known, roots) = (on.rows(0), on.rows(1), on.rows(2));
        launch!(
            k, on, mail_sources[grid];
            node_row, phi, psi, pair, partner_row, end, event, rows, known, roots, stride, each,
            on.status()
        )
    }
}

/// `[rows, events, roots per event, deliveries per root]`; 0 deliveries: `phi` holds roots
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 2, 0], &[0, 1, 3, 0], &[0, 0, 3, 0], &[9, 20, 3, 0], &[300, 600, 2, 11], &[7, 5, 51, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[700, 600, 3, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (n, b, stride, each) = (dims[0], dims[1], dims[2], dims[3]);
    let nodes = n.max(1);
    let rows: Vec<u32> = (1..=n).map(|i| if i % 8 == 0 { NONE } else { c.below(nodes) as u32 }).collect();
    let latest = |c: &mut CaseBuilder| match each {
        0 => stride * c.below(b) + c.below(2),
        _ => c.below(2 * b * each),
    };
    let phi: Vec<u32> = (0..if b == 0 { 0 } else { nodes }).map(|_| latest(c) as u32).collect();
    let (node_row, phi, psi) = (c.ids(&rows, 1), c.ids(&phi, 1), c.ids_below(stride * b, nodes));
    let s = c.tape.mail_sources(node_row, phi, psi, stride, Some(each).filter(|&each| each > 0))?;
    Ok(Built::new(&[s.pair, s.partner_row, s.end, s.event], &[]))
}
