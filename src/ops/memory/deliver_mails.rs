//! Delivers the mails of a batch in place: one mail to each recipient, into the next slot of its mailbox
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `mail` | `[v k, 2 d]` f32, bf16 or f16, state | contents of the slots |
//! | `mail event`, `mail time`, `next` | as in [`read_mails`] | state |
//! | `node` | `[<= v]` u32, unique | recipients |
//! | `phi` | `[<= v]` u32 | latest delivery of each recipient |
//! | `out` | `[stride b, d]` f32 | rows of the roots, event by event: source, destination, then others |
//! | `event`, `event time` | `[b]` u32, i64 | events of the batch |
//! | `mail features` | `[v k, f]` as `mail`, state | mean combiner only: features stored with the mails |
//! | `edge`, `edge row` | `[e, f]` f32, `[b]` u32 | mean combiner only: edge features, and the row of each event |
//! | `starts`, `order` | `[<= v + 1]`, `[<= 2 b each]` u32 | mean combiner only: deliveries of each recipient ([`group_roots`]) |
//!
//! The root of side s (0 source, 1 destination) of event i sends the mail `{out[i, s] | out[i, 1 - s]}`, with
//! the event's id and time. Its `each` deliveries have the numbers `(2 i + s) each` and up: the first goes to
//! the root's node itself, the others to its neighbours. A recipient gets one mail per batch: the mail of its
//! latest delivery, or the mean of the contents and edge features of all its deliveries, with event and time
//! of the latest. The mail is written to the slot `next`, which then advances by one, modulo k, so that the
//! oldest mail is overwritten. Means are computed in f32 and rounded to the nearest number of the mailbox's
//! storage type ([`StoredAs`]). No gradient. Deterministic: `phi` selects the latest delivery, and deliveries
//! are summed in their order.
//! Source: APAN (Wang et al., SIGMOD 2021), the mail propagator; one mail per batch as in TGL.
//!
//! [`group_roots`]: super::group_roots
use super::{
    read_mails::{Mailbox, case_mailbox, check_mailbox},
    unique::UniqueNodes,
    write_memory::axpy,
    *,
};
use crate::runtime::team::{self, InParallel};
use std::ptr::{null, null_mut};

/// Number of inputs without, and with, those of the mean combiner.
const FEATURES: usize = 9;
const INPUTS: usize = 14;

/// See the [module](self).
#[derive(Debug)]
pub struct DeliverMails {
    /// Deliveries per root.
    each: usize,
    /// Roots per event.
    stride: usize,
}

/// The mails of a batch and their recipients.
///
/// Example: [`Tape::deliver_mails`].
#[derive(Clone, Copy, Debug)]
pub struct Deliveries<'a> {
    /// Unique nodes of the deliveries, from [`Tape::unique`] with stride 2, so that all are positives.
    pub to: &'a UniqueNodes,
    /// Deliveries per root: one to its own node, the others to its neighbours.
    pub each: usize,
    /// Rows of the roots.
    pub out: Var,
    /// Event ids of the batch.
    pub event: Var,
    /// Times of the events.
    pub event_time: Var,
    /// Edge features; read only if the mailbox stores features.
    pub edge: Var,
    /// Row of `edge` for each event of the batch: the event's id if `edge` has a row for every event.
    pub edge_row: Var,
}

impl Tape {
    /// Appends [`DeliverMails`] for `stride` roots per event. A recipient gets the mean of its mails if the
    /// mailbox stores features, otherwise the latest one.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match, or if state is read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{deliver_mails::*, read_mails::Mailbox, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Event 7 of nodes 0 and 1 at time 30. The mailboxes have two slots each and hold zeros.
    /// let roots = tape.input(&mut store, "roots", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let out = tape.input(&mut store, "out", Spec::real(Rows::fixed(2), 1), &[5.0f32, 6.0])?;
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 1), &[7u32])?;
    /// let event_time = tape.input(&mut store, "event time", Spec::times(Rows::fixed(1)), &[30i64])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(2), 1))?;
    /// let mail = store.zeros("mail", Spec::real(Rows::fixed(4), 2))?;
    /// let mail_event = store.zeros("mail event", Spec::ids(Rows::fixed(2), 2))?;
    /// let mail_time = store.zeros("mail time", Spec { cols: 2, ..Spec::times(Rows::fixed(2)) })?;
    /// let next = store.zeros("next", Spec::ids(Rows::fixed(2), 1))?;
    /// let [stamp, mail] = tape.stored_all([stamp, mail])?;
    /// let [mail_event, mail_time, next] = tape.stored_all([mail_event, mail_time, next])?;
    /// let nodes = tape.unique(stamp, roots, &[], 2)?;
    /// let mailbox = Mailbox { mail, event: mail_event, time: mail_time, next, features: None };
    /// let (to, each, edge, edge_row) = (&nodes, 1, out, event); // there are no edge features
    /// let mails = Deliveries { to, each, out, event, event_time, edge, edge_row };
    /// tape.deliver_mails(mailbox, mails, 2)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // Slot 0 of each node holds {its own row | the partner's row}.
    /// assert_eq!(program.read::<f32>(mail, &store)?, [5.0, 6.0, 0.0, 0.0, 6.0, 5.0, 0.0, 0.0]);
    /// assert_eq!(program.read::<u32>(next, &store)?, [1, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn deliver_mails(&mut self, into: Mailbox, d: Deliveries<'_>, stride: usize) -> Result<()> {
        let UniqueNodes { node, phi, psi, rows, .. } = d.to;
        let mut ins =
            vec![into.mail, into.event, into.time, into.next, *node, *phi, d.out, d.event, d.event_time];
        if let Some(features) = into.features {
            let grouped = self.group_roots(psi[0], None, *rows)?;
            ins.extend([features, d.edge, grouped.starts, grouped.order, d.edge_row]);
        }
        self.push(DeliverMails { each: d.each, stride }, &ins).map(drop)
    }
}

/// The mailboxes of consecutive nodes, from `first` on.
struct Boxes<'a, T> {
    first: usize,
    mail: &'a mut [T],
    event: &'a mut [u32],
    time: &'a mut [i64],
    next: &'a mut [u32],
    features: &'a mut [T],
}

/// The read-only inputs of a running op, and its sizes; those after `mean` are empty without the mean
/// combiner.
struct Inputs<'a, R> {
    node: &'a [u32],
    phi: &'a [u32],
    out: &'a [R],
    event: &'a [u32],
    event_time: &'a [i64],
    /// Slots per mailbox.
    k: usize,
    /// Width of `out`.
    d: usize,
    mean: bool,
    edge: &'a [R],
    /// Rows of `edge`.
    edges: usize,
    /// Width of `edge`.
    f: usize,
    edge_row: &'a [u32],
    starts: &'a [u32],
    order: &'a [u32],
}

impl<'a, R: Real> Inputs<'a, R> {
    fn new(io: &Io<'a>) -> Self {
        let mean = io.inputs() > FEATURES;
        let ids_if_mean = |at| if mean { io.input::<u32>(at) } else { &[] };
        Inputs {
            node: io.input(at!(DeliverMails, node)),
            phi: io.input(at!(DeliverMails, phi)),
            out: io.input(at!(DeliverMails, out)),
            event: io.input(at!(DeliverMails, event)),
            event_time: io.input(at!(DeliverMails, event_time)),
            k: io.cols(at!(DeliverMails, mail_event)),
            d: io.cols(at!(DeliverMails, out)),
            mean,
            edge: if mean { io.input(at!(DeliverMails, edge)) } else { &[] },
            edges: if mean { io.rows(at!(DeliverMails, edge)) } else { 0 },
            f: if mean { io.cols(at!(DeliverMails, edge)) } else { 0 },
            edge_row: ids_if_mean(at!(DeliverMails, edge_row)),
            starts: ids_if_mean(at!(DeliverMails, starts)),
            order: ids_if_mean(at!(DeliverMails, order)),
        }
    }
    /// Returns the deliveries in the mail of recipient `row`; `None` if its range in `order` is invalid.
    fn deliveries(&self, row: usize) -> Option<&'a [u32]> {
        match self.mean {
            true => self.order.get(self.starts[row] as usize..self.starts[row + 1] as usize),
            false => Some(&self.phi[row..=row]),
        }
    }
}

/// Stores the sum of `rows`, each times `weight`, in `to`; `add_scaled(y, a, x)` computes `y += a x`.
fn store_mean<'a, R: Real, T: Stored<R>>(
    to: &mut [T],
    weight: R,
    rows: impl Iterator<Item = &'a [R]> + Clone,
    add_scaled: &impl Fn(&mut [R], R, &[R]),
) {
    let mut sums = [R::ZERO; 64];
    for (piece, to) in to.chunks_mut(sums.len()).enumerate() {
        let (first, sum) = (piece * sums.len(), &mut sums[..to.len()]);
        sum.fill(R::ZERO);
        rows.clone().for_each(|row| add_scaled(sum, weight, &row[first..][..to.len()]));
        T::keep(sum, to);
    }
}

impl DeliverMails {
    /// Returns event and side (0 source, 1 destination) of the root that sends `delivery`.
    fn root(&self, delivery: usize) -> (usize, usize) {
        let root = delivery / self.each;
        (root / 2, root % 2)
    }
    /// Delivers all mails; `add_scaled(y, a, x)` computes `y += a x`.
    fn write<R: Real, T: Stored<R>>(&self, io: &Io<'_>, add_scaled: impl Fn(&mut [R], R, &[R]) + Sync) {
        let inputs = Inputs::<R>::new(io);
        let (mut mail, mut event) = (io.state::<T>(at!(mail)), io.state::<u32>(at!(mail_event)));
        let (mut time, mut next) = (io.state::<i64>(at!(mail_time)), io.state::<u32>(at!(next)));
        let mut features = if inputs.mean { io.state::<T>(FEATURES) } else { &mut [] };
        let (nodes, k, d, f) = (next.len(), inputs.k, inputs.d, inputs.f);
        // Each piece of the mailboxes is written by one thread, which serves the recipients among its nodes.
        let size = team::piece(nodes, 1);
        let pieces = (0..nodes).step_by(size).map(|first| {
            let n = size.min(nodes - first);
            Boxes {
                first,
                mail: split_off(&mut mail, n * k * 2 * d),
                event: split_off(&mut event, n * k),
                time: split_off(&mut time, n * k),
                next: split_off(&mut next, n),
                features: split_off(&mut features, n * k * f),
            }
        });
        let pieces: Vec<_> = pieces.collect();
        pieces.into_iter().in_parallel(1, |mut boxes| {
            for (row, &v) in inputs.node.iter().enumerate() {
                let v = io.row_of(row, v, nodes).and_then(|v| v.checked_sub(boxes.first));
                if let Some(v) = v.filter(|&v| v < boxes.next.len()) {
                    self.deliver(io, &inputs, row, &mut boxes, v, &add_scaled);
                }
            }
        });
    }
    /// Delivers the mail of recipient `row`, whose mailbox is number `v` of `boxes`.
    fn deliver<R: Real, T: Stored<R>>(
        &self,
        io: &Io<'_>,
        inputs: &Inputs<'_, R>,
        row: usize,
        boxes: &mut Boxes<'_, T>,
        v: usize,
        add_scaled: &impl Fn(&mut [R], R, &[R]),
    ) {
        let (k, d, f) = (inputs.k, inputs.d, inputs.f);
        let sent = 2 * self.each * inputs.event.len();
        let Some(latest) = io.row_of(row, inputs.phi[row], sent) else { return };
        let Some(deliveries) = inputs.deliveries(row) else {
            io.fault(row, Fault::OutOfRange(inputs.starts[row]));
            return;
        };
        let slot = v * k + boxes.next[v] as usize % k;
        let weight = R::ONE / R::from_f64(deliveries.len() as f64);
        let deliveries = deliveries.iter().filter_map(|&delivery| io.row_of(row, delivery, sent));
        let roots = deliveries.map(|delivery| self.root(delivery));
        let out_row = |(i, side): (usize, usize)| &inputs.out[(self.stride * i + side) * d..][..d];
        let (own, other) = boxes.mail[slot * 2 * d..][..2 * d].split_at_mut(d);
        store_mean(own, weight, roots.clone().map(out_row), add_scaled);
        store_mean(other, weight, roots.clone().map(|(i, side)| out_row((i, 1 - side))), add_scaled);
        if inputs.mean {
            let rows = roots.filter_map(|(i, _)| io.row_of(i, inputs.edge_row[i], inputs.edges));
            let features = rows.map(|at| &inputs.edge[at * f..][..f]);
            store_mean(&mut boxes.features[slot * f..][..f], weight, features, add_scaled);
        }
        let (i, _) = self.root(latest);
        (boxes.event[slot], boxes.time[slot]) = (inputs.event[i], inputs.event_time[i]);
        boxes.next[v] = ((slot % k + 1) % k) as u32;
    }
}

impl Op for DeliverMails {
    const NAME: &'static str = "deliver_mails";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "mail [V k, 2 d] stored state, mail_event [V, k] ids state, \
        mail_time [V, k] times state, next [V] ids state, node [n] ids, phi [n] ids, out [b s, d], \
        event [b] ids, event_time [b] times, mail_features? [V k, f] stored state, edge? [r, f], \
        starts? [n + 1] ids, order? [o] ids, edge_row? [b] ids ->";
    fn sizes(&self) -> Sizes {
        vec![("s", Rows::fixed(self.stride))]
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if ins.len() > FEATURES { INPUTS } else { FEATURES })?;
        let outs = signature::infer(self, ins)?;
        check_mailbox(Self::NAME, &ins[at!(mail_event)])?;
        countable(Self::NAME, "roots per event", self.stride)?;
        countable(Self::NAME, "deliveries per root", self.each)?;
        ensure!(Self::NAME, self.stride >= 2, "{} roots per event, want at least 2", self.stride);
        ensure!(Self::NAME, self.each > 0, "0 deliveries per root, want at least 1");
        let deliveries = ins[at!(event)].rows.times(2).times(self.each).capacity;
        if let Some(order) = ins.get(at!(order)) {
            ensure!(
                Self::NAME,
                order.len() == deliveries,
                "order is {order}, want ids of {deliveries} deliveries"
            );
        }
        Ok(outs)
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let rows = ins[at!(node)].rows.capacity;
        let width = ins[at!(mail)].cols + ins.get(FEATURES).map_or(0, |features| features.cols);
        // A recipient reads one row per delivery and writes one row.
        let deliveries = ins.get(at!(order)).map_or(rows, Spec::len);
        let number = ins[at!(mail)].dtype.size(Precision::F32);
        Cost { bytes: width * (number * rows + 4 * deliveries) + 40 * rows, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let add_scaled = |y: &mut [R], a: R, x: &[R]| y.iter_mut().zip(x).for_each(|(y, &x)| *y += a * x);
        by_storage!(io.spec(at!(mail)).dtype, R, self.write(io, add_scaled));
    }
    fn cpu(&self, io: &Io<'_>) {
        by_storage!(io.spec(at!(mail)).dtype, f32, self.write(io, axpy));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let mean = on.inputs() > FEATURES;
        let (edge, f) = if mean { (on.input(at!(edge)), on.cols(at!(edge))) } else { (null(), 0) };
        // Without the mean combiner the results do not depend on these two counts, but the kernels load them.
        let (edges, listed) = if mean {
            (on.rows(at!(edge)), on.rows(at!(order)))
        } else {
            (on.rows(at!(event)), on.rows(at!(event)))
        };
        let [starts, order, edge_row] =
            [at!(starts), at!(order), at!(edge_row)].map(|i| if mean { on.input(i) } else { null() });
        let grid = Grid::warps(on.capacity(at!(node)));
        let (nodes, each, stride) = (on.capacity(at!(next)) as u32, self.each as u32, self.stride as u32);
        // The two kernels differ in the type of the mailbox, and in the code of that type if it has 16 bits.
        macro_rules! deliver {
            ($kernel:ident, $features:expr, $($mail:expr),+) => {
                launch!(
                    k, on, $kernel[grid];
                    $($mail,)+ on.state(at!(mail_event)), on.state(at!(mail_time)), on.state(at!(next)),
                    on.input(at!(node)), on.input(at!(phi)), on.input(at!(out)), on.input(at!(event)),
                    on.input(at!(event_time)), $features, edge, starts, order, edge_row, on.rows(at!(node)),
                    on.rows(at!(event)), edges, listed, nodes, on.cols(at!(mail_event)), on.cols(at!(out)), f,
                    each, stride, on.status()
                )
            };
        }
        if on.spec(at!(mail)).dtype.is_half() {
            let (mail, kind) = on.halves_state(at!(mail));
            let features = if mean { on.halves_state(FEATURES).0 } else { null_mut() };
            return deliver!(deliver_half_mails, features, mail, kind);
        }
        let features = if mean { on.state(FEATURES) } else { null_mut() };
        deliver!(deliver_mails, features, on.state(at!(mail)))
    }
}

/// `[nodes, events, slots, neighbours, d, f, mean]`; every seventh neighbour slot is empty. An eighth number
/// is the index of the mailbox's storage type in [`StoredAs::ALL`].
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[2, 1, 1, 1, 1, 0, 0],
    &[5, 0, 3, 2, 2, 1, 1],
    &[6, 9, 2, 3, 4, 3, 0],
    &[6, 9, 2, 3, 4, 3, 1],
    &[40, 20, 3, 0, 3, 4, 1],
    &[90, 50, 10, 10, 20, 8, 1],
    &[30, 60, 4, 5, 133, 70, 1],
    &[200, 60, 4, 5, 132, 0, 0],
    &[6, 9, 2, 3, 4, 3, 0, 1],
    &[30, 60, 4, 5, 132, 70, 1, 1],
    &[200, 60, 4, 5, 132, 0, 0, 2],
    &[90, 50, 10, 10, 21, 8, 1, 2],
    &[5, 0, 3, 2, 2, 1, 1, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[3_000, 600, 10, 10, 100, 172, 0], &[3_000, 600, 10, 10, 100, 172, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, k, near, d, f, mean] = dims[..7] else {
        return Err(Error::shape("deliver_mails", "want seven or eight sizes"));
    };
    let stored_as = StoredAs::ALL[dims.get(7).copied().unwrap_or(0)];
    let half_mean = mean == 1 && stored_as != StoredAs::F32;
    let into = case_mailbox(c, v, k, 2 * d, (mean == 1).then_some(f), stored_as);
    let real = |c: &mut CaseBuilder, n, d| if half_mean { c.few_bits(n, d) } else { c.real(n, d) };
    let (src, dst) = (c.ids_below(b, v), c.ids_below(b, v));
    let event_time = c.times(&(0..b as i64).map(|t| 900 + t).collect::<Vec<_>>());
    let (root, time) = c.tape.roots(src, dst, event_time, None)?;
    let neighbors: Vec<u32> =
        (0..2 * b * near).map(|s| if s % 7 == 6 { NONE } else { c.below(v) as u32 }).collect();
    let neighbors = c.values(Spec::ids(Rows::fixed(2 * b), near), &neighbors);
    let list = c.tape.expand_targets((root, time), neighbors, None)?.node;
    let stamp = c.ids(&vec![0; v], 1);
    let to = &c.tape.unique(stamp, list, &[], 2)?;
    let (out, event) = (real(c, 3 * b, d), c.ids(&(5..5 + b as u32).collect::<Vec<_>>(), 1));
    let edge = real(c, b + 5, f);
    let deliveries = Deliveries { to, each: 1 + near, out, event, event_time, edge, edge_row: event };
    c.tape.deliver_mails(into, deliveries, 3)?;
    let states = [into.mail, into.event, into.time, into.next].into_iter().chain(into.features).collect();
    Ok(Built { states, ..Built::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::Program;

    /// Contents, features and next slots of mailboxes; the events and gaps that a query for each node reads.
    struct Filled {
        mail: Vec<f32>,
        features: Vec<f32>,
        next: Vec<u32>,
        read: (Vec<u32>, Vec<f32>),
    }

    /// Fills mailboxes of two slots with three batches of the events 0 -> 1 and 2 -> 2; reads them at time
    /// 1,000.
    fn filled(mean: bool) -> Filled {
        let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
        let slots = Spec::ids(Rows::fixed(4), 2);
        let into = Mailbox {
            mail: c.real_in(8, 2, |_| 0.0),
            event: c.values(slots, &[NONE; 8]),
            time: c.values(Spec { dtype: DType::I64, ..slots }, &[0i64; 8]),
            next: c.ids(&[0; 4], 1),
            features: mean.then(|| c.real_in(8, 1, |_| 0.0)),
        };
        let (src, dst, event) = (c.ids(&[0, 2], 1), c.ids(&[1, 2], 1), c.ids(&[0, 1], 1));
        let event_time = c.times(&[10, 20]);
        let neighbors = c.ids(&[3, 3, 3, NONE, 3, 0, NONE, NONE], 2);
        let out = c.values(Spec::real(Rows::fixed(4), 1), &[1.0f32, 2.0, 3.0, 4.0]);
        let edge = c.values(Spec::real(Rows::fixed(6), 1), &[0.0f32, 4.0, 8.0, 12.0, 16.0, 20.0]);
        let stamp = c.ids(&[0; 4], 1);
        let (root, time) = c.tape.roots(src, dst, event_time, None).unwrap();
        let list = c.tape.expand_targets((root, time), neighbors, None).unwrap().node;
        let to = &c.tape.unique(stamp, list, &[], 2).unwrap();
        let deliveries = Deliveries { to, each: 3, out, event, event_time, edge, edge_row: event };
        c.tape.deliver_mails(into, deliveries, 2).unwrap();
        let query = (c.ids(&[0, 1, 2, 3], 1), c.times(&[1_000; 4]));
        let mails = c.tape.read_mails(into, query, Gaps::unlimited(1.0)).unwrap();
        let keep = [mails.event, mails.dt];
        let mut program = Program::new(&c.tape, &keep, Precision::F32, Backend::Cpu).unwrap();
        let buffer_of = |v| match c.tape.home(v) {
            Home::Stored { id, .. } => id,
            Home::Step => unreachable!("inputs are stored"),
        };
        for run in 0..3i64 {
            c.store.write(buffer_of(event), &[2 * run as u32, 2 * run as u32 + 1]).unwrap();
            c.store.write(buffer_of(event_time), &[100 * run + 10, 100 * run + 20]).unwrap();
            program.run(&mut c.store).unwrap();
        }
        let read = (
            program.read(mails.event, &c.store).unwrap().to_vec(),
            program.read(mails.dt, &c.store).unwrap().to_vec(),
        );
        Filled {
            mail: c.store.read(buffer_of(into.mail)).unwrap().to_vec(),
            features: into.features.map_or(vec![], |f| c.store.read(buffer_of(f)).unwrap().to_vec()),
            next: c.store.read(buffer_of(into.next)).unwrap().to_vec(),
            read,
        }
    }

    #[test]
    fn every_recipient_gets_its_latest_delivery_into_the_oldest_slot_and_reads_the_latest_mail_first() {
        let Filled { mail, next, read: (events, dt), .. } = filled(false);
        let of_nodes = [[3.0, 4.0], [2.0, 1.0], [4.0, 3.0], [3.0, 4.0]];
        assert_eq!(mail, of_nodes.map(|m| [m; 2].concat()).concat());
        assert_eq!(next, [1; 4]);
        assert_eq!(events, [5, 3, 4, 2, 5, 3, 5, 3]);
        assert_eq!(dt, [780.0, 880.0, 790.0, 890.0, 780.0, 880.0, 780.0, 880.0]);
    }

    #[test]
    fn a_mean_is_over_all_deliveries_and_has_event_and_time_of_the_latest() {
        let Filled { mail, features, next, read } = filled(true);
        let of_nodes = [[2.0, 3.0], [2.0, 1.0], [3.5, 3.5], [1.75, 2.25]];
        assert_eq!(mail, of_nodes.map(|m| [m; 2].concat()).concat());
        // For each node the features of the third batch, in slot 0, then those of the second.
        assert_eq!(features, [18.0, 10.0, 16.0, 8.0, 20.0, 12.0, 17.0, 9.0]);
        let last = filled(false);
        assert_eq!((next, read), (last.next, last.read));
    }
}
