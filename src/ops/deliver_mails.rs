//! The mails of a batch, delivered: one to each recipient, into the next slot of its mailbox, in place
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `mail` | `[v k, 2 d]` f32, bf16 or f16, state | contents of the slots |
//! | `mail event`, `mail time`, `next` | as in [`read_mails`] | state |
//! | `node` | `[<= v]` u32, unique | recipients |
//! | `phi` | `[<= v]` u32 | latest delivery of each |
//! | `out` | `[stride b, d]` f32 | rows of the roots, event by event: source, destination, then others |
//! | `event`, `event time` | `[b]` u32, i64 | events of the batch |
//! | `mail features` | `[v k, f]` as `mail`, state | only with the mean combiner: the mails' own features |
//! | `edge`, `edge row` | `[e, f]` f32, `[b]` u32 | with it: edge features, and the rows of the batch's events |
//! | `starts`, `order` | `[<= v + 1]`, `[<= 2 b each]` u32 | with it: the deliveries of each recipient ([`group_roots`]) |
//!
//! A root of side s (0 source, 1 destination) of event i sends a mail `{out[i, s] | out[i, 1 - s]}` of that event and its
//! time. Its `each` deliveries are numbers `(2 i + s) each` and on: to the root's node itself, and to its neighbours. A
//! recipient gets one mail a batch: that of its latest delivery, or the mean of the contents and edge features of all its
//! deliveries, with event and time of the latest. It takes the slot `next`, which moves on by one, modulo k: so the oldest
//! mail is overwritten. No gradient. Deterministic: phi decides, and deliveries are added up in their order. A mailbox of 16
//! bits takes the nearest numbers ([`StoredAs`]), of means computed before.
//! Source: APAN (Wang et al., SIGMOD 2021), the mail propagator; one mail a batch as in TGL.
//!
//! [`group_roots`]: super::group_roots
use super::{
    read_mails::{Mailbox, case_mailbox, check_mailbox},
    unique::UniqueNodes,
    write_memory::axpy,
    *,
};
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct DeliverMails {
    /// Deliveries of a root.
    each: usize,
    /// Roots an event.
    stride: usize,
}

/// What is delivered, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Deliveries<'a> {
    /// Unique nodes of the list of deliveries, as [`Tape::unique`] gives them, with a stride of 2: every one counts.
    pub to: &'a UniqueNodes,
    /// Deliveries of a root: to itself and to its neighbours.
    pub each: usize,
    /// Rows of the roots.
    pub out: Var,
    /// Event ids of the batch.
    pub event: Var,
    /// Their times.
    pub event_time: Var,
    /// Edge features; read where the mails keep features of their own.
    pub edge: Var,
    /// Rows of these by event of the batch: the events' ids, where they are those of all events.
    pub edge_row: Var,
}

impl Tape {
    /// Appends [`DeliverMails`]; `stride` roots an event. Where the mailbox has features, mails are combined to their mean,
    /// else the last one counts.
    ///
    /// # Errors
    /// `Shape` when types, rows or widths do not fit, or state is read only.
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

/// The mailboxes of some nodes, those from `first` on.
struct Boxes<'a, T> {
    first: usize,
    mail: &'a mut [T],
    event: &'a mut [u32],
    time: &'a mut [i64],
    next: &'a mut [u32],
    features: &'a mut [T],
}

/// The mean of `rows`, each times `share`, kept in `to`; with `add_scaled(y, a, x)`: `y += a x`.
fn keep_mean<'a, R: Real, T: Stored<R>>(
    to: &mut [T],
    share: R,
    rows: impl Iterator<Item = &'a [R]> + Clone,
    add_scaled: &impl Fn(&mut [R], R, &[R]),
) {
    let mut sums = [R::ZERO; 64];
    for (piece, to) in to.chunks_mut(sums.len()).enumerate() {
        let (first, sum) = (piece * sums.len(), &mut sums[..to.len()]);
        sum.fill(R::ZERO);
        rows.clone().for_each(|row| add_scaled(sum, share, &row[first..][..to.len()]));
        T::keep(sum, to);
    }
}

impl DeliverMails {
    /// Event and side of the root that a delivery is of.
    fn root(&self, delivery: usize) -> (usize, usize) {
        let root = delivery / self.each;
        (root / 2, root % 2)
    }
    /// The writes, with `add_scaled(y, a, x)`: `y += a x`.
    fn write<R: Real, T: Stored<R>>(&self, io: &Io<'_>, add_scaled: impl Fn(&mut [R], R, &[R]) + Sync) {
        let (mut mail, mut event, mut time, mut next) =
            (io.state::<T>(0), io.state::<u32>(1), io.state::<i64>(2), io.state::<u32>(3));
        let (node, phi, out) = (io.input::<u32>(4), io.input::<u32>(5), io.input::<R>(6));
        let (batch, batch_time) = (io.input::<u32>(7), io.input::<i64>(8));
        let mean = io.inputs() > 9;
        let mut features = if mean { io.state::<T>(9) } else { &mut [] };
        let (edge, edge_row): (&[R], &[u32]) = if mean { (io.input(10), io.input(13)) } else { (&[], &[]) };
        let (starts, order): (&[u32], &[u32]) = if mean { (io.input(11), io.input(12)) } else { (&[], &[]) };
        let (nodes, k, d, f) = (next.len(), io.cols(1), io.cols(6), if mean { io.cols(10) } else { 0 });
        let (sent, edges) = (2 * self.each * batch.len(), if mean { io.rows(10) } else { 0 });
        // Mailboxes in pieces, each with the recipients among its nodes: whoever has a piece writes it alone.
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
        pieces.into_iter().in_parallel(1, |to| {
            for (row, &v) in node.iter().enumerate() {
                let v = io.row_of(row, v, nodes).and_then(|v| v.checked_sub(to.first));
                let Some(v) = v.filter(|&v| v < to.next.len()) else { continue };
                let Some(latest) = io.row_of(row, phi[row], sent) else { continue };
                let deliveries = match mean {
                    true => order.get(starts[row] as usize..starts[row + 1] as usize),
                    false => Some(&phi[row..=row]),
                };
                let Some(deliveries) = deliveries else {
                    io.fault(row, f64::from(starts[row]));
                    continue;
                };
                let slot = v * k + to.next[v] as usize % k;
                let share = R::ONE / R::of(deliveries.len() as f64);
                let (own, other) = to.mail[slot * 2 * d..][..2 * d].split_at_mut(d);
                let there = deliveries.iter().filter_map(|&delivery| io.row_of(row, delivery, sent));
                let roots = there.map(|delivery| self.root(delivery));
                let of = |(i, side): (usize, usize)| &out[(self.stride * i + side) * d..][..d];
                keep_mean(own, share, roots.clone().map(of), &add_scaled);
                keep_mean(other, share, roots.clone().map(|(i, side)| of((i, 1 - side))), &add_scaled);
                if mean {
                    let rows = roots.filter_map(|(i, _)| io.row_of(i, edge_row[i], edges));
                    let features = rows.map(|at| &edge[at * f..][..f]);
                    keep_mean(&mut to.features[slot * f..][..f], share, features, &add_scaled);
                }
                let (latest, _) = self.root(latest);
                (to.event[slot], to.time[slot]) = (batch[latest], batch_time[latest]);
                to.next[v] = ((slot % k + 1) % k) as u32;
            }
        });
    }
}

impl Op for DeliverMails {
    const NAME: &'static str = "deliver_mails";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if ins.len() > 9 { 14 } else { 9 })?;
        check_mailbox(Self::NAME, &ins[1], &ins[2], &ins[3])?;
        let (slots, d) = (ins[1].len(), ins[6].cols);
        kept_reals(Self::NAME, "mail", &ins[0])?;
        shaped(Self::NAME, "mail", &ins[0], slots, d.saturating_mul(2))?;
        ensure!(
            Self::NAME,
            ins[4] == Spec::ids(ins[4].rows, 1) && ins[5] == ins[4],
            "node is {}, phi is {}",
            ins[4],
            ins[5]
        );
        let (event, time) = (ins[7], ins[8]);
        ensure!(
            Self::NAME,
            event == Spec::ids(event.rows, 1) && time == Spec::times(event.rows),
            "event is {event}, its time is {time}"
        );
        countable(Self::NAME, "roots an event", self.stride)?;
        countable(Self::NAME, "deliveries a root", self.each)?;
        let roots = Spec::real(event.rows.times(self.stride), d);
        ensure!(Self::NAME, self.stride >= 2 && ins[6] == roots, "out is {}, want {roots}", ins[6]);
        ensure!(Self::NAME, self.each > 0, "a root has no delivery, not even to itself");
        if let [features, edge, starts, order, row] = ins[9..] {
            ensure!(Self::NAME, edge == Spec::real(edge.rows, edge.cols), "edge is {edge}, want F32");
            ensure!(Self::NAME, row == event, "edge row is {row}, event is {event}");
            typed(Self::NAME, "mail features", &features, ins[0].dtype)?;
            shaped(Self::NAME, "mail features", &features, slots, edge.cols)?;
            typed(Self::NAME, "starts", &starts, DType::U32)?;
            shaped(Self::NAME, "starts", &starts, ins[4].rows.capacity + 1, 1)?;
            ensure!(
                Self::NAME,
                order == Spec::ids(order.rows, 1)
                    && order.rows.capacity == event.rows.times(2).times(self.each).capacity,
                "order is {order}, events are {event}, {} deliveries a root",
                self.each
            );
        }
        Ok(vec![])
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        if inputs > 9 { vec![0, 1, 2, 3, 9] } else { vec![0, 1, 2, 3] }
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let (rows, width) = (ins[4].rows.capacity, ins[0].cols + ins.get(9).map_or(0, |f| f.cols));
        // Every recipient reads a row for each delivery, and writes one.
        let deliveries = ins.get(12).map_or(rows, Spec::len);
        let number = ins[0].dtype.size(Precision::F32);
        Cost { bytes: width * (number * rows + 4 * deliveries) + 40 * rows, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let add_scaled = |y: &mut [R], a: R, x: &[R]| y.iter_mut().zip(x).for_each(|(y, &x)| *y += a * x);
        by_kept!(io.spec(0).dtype, R, self.write(io, add_scaled));
    }
    fn cpu(&self, io: &Io<'_>) {
        by_kept!(io.spec(0).dtype, f32, self.write(io, axpy));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (mean, none) = (on.inputs() > 9, std::ptr::null());
        let (edge, f) = if mean { (on.input(10), on.cols(10)) } else { (std::ptr::null(), 0) };
        let (edges, listed) = if mean { (on.rows(10), on.rows(12)) } else { (on.rows(7), on.rows(7)) };
        let [starts, order, edge_row] = [11, 12, 13].map(|i| if mean { on.input(i) } else { none });
        let (mail_event, mail_time, next) = (on.state(1), on.state(2), on.state(3));
        let (node, phi, out) = (on.input(4), on.input(5), on.input(6));
        let (event, event_time, grid) = (on.input(7), on.input(8), Grid::warps(on.capacity(4)));
        let (n, slots, d, each, stride) =
            (on.rows(4), on.cols(1), on.cols(6), self.each as u32, self.stride as u32);
        let (nodes, status) = (on.capacity(3) as u32, on.status());
        if on.spec(0).dtype.is_half() {
            let (mail, kind) = on.halves_state(0);
            let features = if mean { on.halves_state(9).0 } else { std::ptr::null_mut() };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            return unsafe {
                k.deliver_half_mails(
                    on,
                    grid,
                    mail,
                    kind,
                    mail_event,
                    mail_time,
                    next,
                    node,
                    phi,
                    out,
                    event,
                    event_time,
                    features,
                    edge,
                    starts,
                    order,
                    edge_row,
                    n,
                    on.rows(7),
                    edges,
                    listed,
                    nodes,
                    slots,
                    d,
                    f,
                    each,
                    stride,
                    status,
                )
            };
        }
        let features = if mean { on.state(9) } else { std::ptr::null_mut() };
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.deliver_mails(
                on,
                grid,
                on.state(0),
                mail_event,
                mail_time,
                next,
                node,
                phi,
                out,
                event,
                event_time,
                features,
                edge,
                starts,
                order,
                edge_row,
                n,
                on.rows(7),
                edges,
                listed,
                nodes,
                slots,
                d,
                f,
                each,
                stride,
                status,
            )
        }
    }
}

/// `[nodes, events, slots, neighbours, d, f, mean]`; every seventh slot of the neighbours is empty. An eighth number says which
/// of [`StoredAs::ALL`] the mailbox is kept as.
pub(super) const CASES: &[&[usize]] = &[
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
pub(super) const BENCH: &[&[usize]] =
    &[&[3_000, 600, 10, 10, 100, 172, 0], &[3_000, 600, 10, 10, 100, 172, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, k, near, d, f, mean] = dims[..7] else {
        return Err(Error::shape("deliver_mails", "seven sizes, or eight"));
    };
    let kept = StoredAs::ALL[dims.get(7).copied().unwrap_or(0)];
    let half_mean = mean == 1 && kept != StoredAs::F32;
    let into = case_mailbox(c, v, k, 2 * d, (mean == 1).then_some(f), kept);
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

    /// Contents, features and next slots of mailboxes; events and gaps as a query for each node reads them.
    struct Filled {
        mail: Vec<f32>,
        features: Vec<f32>,
        next: Vec<u32>,
        read: (Vec<u32>, Vec<f32>),
    }

    /// Mailboxes of two slots, filled three times by the events 0 -> 1 and 2 -> 2, whose roots have these rows and
    /// neighbours; read at time 1,000.
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
        let stored = |v| match c.tape.home(v) {
            Home::Stored { id, .. } => id,
            Home::Step => unreachable!("inputs are stored"),
        };
        for run in 0..3i64 {
            c.store.write(stored(event), &[2 * run as u32, 2 * run as u32 + 1]).unwrap();
            c.store.write(stored(event_time), &[100 * run + 10, 100 * run + 20]).unwrap();
            program.run(&mut c.store).unwrap();
        }
        let read = (
            program.read(mails.event, &c.store).unwrap().to_vec(),
            program.read(mails.dt, &c.store).unwrap().to_vec(),
        );
        Filled {
            mail: c.store.read(stored(into.mail)).unwrap().to_vec(),
            features: into.features.map_or(vec![], |f| c.store.read(stored(f)).unwrap().to_vec()),
            next: c.store.read(stored(into.next)).unwrap().to_vec(),
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
        // Of the third batch, in slot 0, and of the second.
        assert_eq!(features, [18.0, 10.0, 16.0, 8.0, 20.0, 12.0, 17.0, 9.0]);
        let last = filled(false);
        assert_eq!((next, read), (last.next, last.read));
    }
}
