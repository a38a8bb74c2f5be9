//! The mails of each query `(node, time)`, latest first: neighbours that [`temporal_attention`] can look at
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node`, `time` | `[n]` u32 (or [`NONE`]), i64 | queries |
//! | `mail event` | `[v, k]` u32 | event of the mail in each slot of a node's mailbox; `NONE` where it is empty |
//! | `mail time` | `[v, k]` i64 | |
//! | `next` | `[v]` u32 | slot that the node's next mail takes; the latest is in the one before, round the ring |
//! | row | `[n, k]` u32 | `node k + slot`: the mail's row of the mails' contents; `NONE` where there is none |
//! | event | `[n, k]` u32 | its event, or `NONE` |
//! | dt | `[n, k]` f32 | seconds from the mail to the query; 0 where there is none |
//! | count | `[n]` u32 | mails: a prefix. An older slot than an empty one is not looked at |
//!
//! A query for `NONE` has no mails; a node that there is not is a fault. Where mails keep features of their own, `row` is
//! the row of these too.
//! Source: APAN (Wang et al., SIGMOD 2021), the mailbox; that empty slots take no part is ours.
//!
//! [`temporal_attention`]: super::temporal_attention
use super::*;
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct ReadMails {
    gaps: Gaps,
}

/// Mailboxes: a ring of k slots for each node, of which the oldest is overwritten. All of it is state.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// `[v k, c]` contents, f32 or of 16 bits.
    pub mail: Var,
    /// `[v, k]` u32 events, `NONE` in an empty slot.
    pub event: Var,
    /// `[v, k]` i64 times.
    pub time: Var,
    /// `[v]` u32 slots that the next mails take.
    pub next: Var,
    /// `[v k, f]` features of the mails' own, where several are combined to their mean.
    pub features: Option<Var>,
}

/// Mails of queries.
#[derive(Clone, Copy, Debug)]
pub struct Mails {
    /// `[n, k]` u32 rows of the mails, or `NONE`.
    pub row: Var,
    /// `[n, k]` u32 events, or `NONE`.
    pub event: Var,
    /// `[n, k]` f32 seconds.
    pub dt: Var,
    /// `[n]` u32.
    pub count: Var,
}

impl Tape {
    /// Appends [`ReadMails`] for queries `(node, time)`.
    ///
    /// # Errors
    /// `Shape` when types or rows do not fit.
    pub fn read_mails(&mut self, of: Mailbox, query: (Var, Var), gaps: Gaps) -> Result<Mails> {
        let o = self.push(ReadMails { gaps }, &[query.0, query.1, of.event, of.time, of.next])?;
        Ok(Mails { row: o[0], event: o[1], dt: o[2], count: o[3] })
    }
}

/// Refuses mailboxes that are not `[v, k]` events and times and `[v]` next slots, or have more slots than ids.
pub(super) fn check_mailbox(op: &'static str, event: &Spec, time: &Spec, next: &Spec) -> Result<()> {
    let (v, k) = (event.rows.capacity, event.cols);
    ensure!(op, k > 0, "a mailbox has no slot");
    ensure!(op, v * k < NONE as usize, "{v} mailboxes of {k} slots, fewer than {NONE} slots wanted");
    ensure!(op, *event == Spec::ids(Rows::fixed(v), k), "mail event is {event}");
    ensure!(
        op,
        *time == Spec { cols: k, ..Spec::times(Rows::fixed(v)) },
        "mail time is {time}, mail event is {event}"
    );
    ensure!(op, *next == Spec::ids(Rows::fixed(v), 1), "next is {next}, mail event is {event}");
    Ok(())
}

impl Op for ReadMails {
    const NAME: &'static str = "read_mails";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 5)?;
        let (n, k) = (ins[0].rows, ins[2].cols);
        ensure!(
            Self::NAME,
            ins[0] == Spec::ids(n, 1) && ins[1] == Spec::times(n),
            "node is {}, time is {}",
            ins[0],
            ins[1]
        );
        check_mailbox(Self::NAME, &ins[2], &ins[3], &ins[4])?;
        let slots = Spec::ids(n, k);
        Ok(vec![slots.into(), slots.into(), Spec::real(n, k).into(), ins[0].into()])
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        // A slot reads 12 bytes and writes 12.
        Cost { bytes: 24 * outs[0].len() + 20 * outs[3].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, time, next) = (io.input::<u32>(0), io.input::<i64>(1), io.input::<u32>(4));
        let (mail_event, mail_time, k) = (io.input::<u32>(2), io.input::<i64>(3), io.cols(2));
        let size = team::piece(node.len(), 64);
        let outs = io.out::<u32>(0).chunks_mut(size * k).zip(io.out::<u32>(1).chunks_mut(size * k));
        let outs = outs.zip(io.out::<R>(2).chunks_mut(size * k)).zip(io.out::<u32>(3).chunks_mut(size));
        outs.enumerate().in_parallel(1, |(piece, (((row, event), dt), count))| {
            row.fill(NONE);
            event.fill(NONE);
            dt.fill(R::ZERO);
            for (at, count) in count.iter_mut().enumerate() {
                let i = piece * size + at;
                *count = 0;
                let Some(v) = io.row_of(i, node[i], next.len()) else { continue };
                for j in 0..k {
                    let from = v * k + (next[v] as usize % k + k - 1 - j) % k;
                    if mail_event[from] == NONE {
                        break;
                    }
                    let slot = at * k + j;
                    (row[slot], event[slot]) = (from as u32, mail_event[from]);
                    dt[slot] = R::of(f64::from(self.gaps.seconds(mail_time[from], time[i])));
                    *count += 1;
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, time, event, mail_time, next) =
            (on.input(0), on.input(1), on.input(2), on.input(3), on.input(4));
        let (row, out, dt, count) = (on.out(0), on.out(1), on.out(2), on.out(3));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.read_mails(
                on,
                Grid::warps(on.capacity(0)),
                node,
                time,
                event,
                mail_time,
                next,
                row,
                out,
                dt,
                count,
                on.rows(0),
                on.capacity(4) as u32,
                on.cols(2),
                self.gaps.into(),
                on.status(),
            )
        }
    }
}

/// `[nodes, slots, queries]`; mailboxes have from no mail to more than they have slots for, and every ninth query is for no
/// node.
pub(super) const CASES: &[&[usize]] = &[&[1, 1, 1], &[3, 2, 0], &[9, 4, 30], &[50, 10, 200], &[7, 70, 40]];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 10, 1_800]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, k, n] = *dims else { return Err(Error::shape("read_mails", "three sizes")) };
    let mailbox = case_mailbox(c, v, k, 0, None, StoredAs::F32);
    let nodes: Vec<u32> = (0..n).map(|i| if i % 9 == 8 { NONE } else { c.below(v) as u32 }).collect();
    let times: Vec<i64> = (0..n).map(|i| 1_000 + i as i64).collect();
    let query = (c.ids(&nodes, 1), c.times(&times));
    let gaps = Gaps { seconds_per_tick: 0.5, longest: 900 };
    let m = c.tape.read_mails(mailbox, query, gaps)?;
    Ok(Built::new(&[m.row, m.event, m.dt, m.count], &[]))
}

/// Mailboxes for a case, a third of them with fewer mails than slots, a third just full, a third overwritten.
pub(super) fn case_mailbox(
    c: &mut CaseBuilder,
    v: usize,
    k: usize,
    width: usize,
    features: Option<usize>,
    kept: StoredAs,
) -> Mailbox {
    let (mut events, mut times, mut next) = (vec![NONE; v * k], vec![0; v * k], vec![0; v]);
    for node in 0..v {
        let mails = [c.below(k), k, k + 1 + c.below(k)][node % 3];
        for mail in 0..mails {
            let slot = node * k + mail % k;
            (events[slot], times[slot]) = ((3 * mail) as u32, 2 * mail as i64 + c.below(2) as i64);
        }
        next[node] = (mails % k) as u32;
    }
    Mailbox {
        mail: c.kept(v * k, width, kept),
        event: c.values(Spec::ids(Rows::fixed(v), k), &events),
        time: c.values(Spec { cols: k, ..Spec::times(Rows::fixed(v)) }, &times),
        next: c.ids(&next, 1),
        features: features.map(|f| c.kept(v * k, f, kept)),
    }
}
