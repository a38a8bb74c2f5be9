//! Lists the mails in the mailbox of each query `(node, time)`, latest first. [`temporal_attention`] reads
//! them as neighbours.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node`, `time` | `[n]` u32 (or [`NONE`]), i64 | queries |
//! | `mail event` | `[v, k]` u32 | event of the mail in each slot of a node's mailbox; `NONE` in an empty slot |
//! | `mail time` | `[v, k]` i64 | time of the mail in each slot |
//! | `next` | `[v]` u32 | slot of the ring that the node's next mail takes; the latest mail is in the slot before it |
//! | row | `[n, k]` u32 | `node k + slot`: row of the mail in the table of mail contents; `NONE` in unused slots |
//! | event | `[n, k]` u32 | event of the mail; `NONE` in unused slots |
//! | dt | `[n, k]` f32 | seconds from the mail to the query; 0 in unused slots |
//! | count | `[n]` u32 | number of mails; they fill the first `count` slots |
//!
//! Reading stops at the first empty slot. A query for `NONE` has no mails; a node outside the mailboxes is
//! reported as a fault. If mails keep features of their own, `row` is also their row in that table.
//! Source: APAN (Wang et al., SIGMOD 2021), the mailbox; ignoring empty slots is ours.
//!
//! [`temporal_attention`]: super::temporal_attention
use super::*;
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct ReadMails {
    gaps: Gaps,
}

/// Mailboxes: a ring of k slots per node; a new mail overwrites the oldest. All values are state.
///
/// Example: [`Tape::read_mails`].
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// `[v k, c]` contents, f32 or 16 bits.
    pub mail: Var,
    /// `[v, k]` u32 events, `NONE` in an empty slot.
    pub event: Var,
    /// `[v, k]` i64 times.
    pub time: Var,
    /// `[v]` u32 slots that the next mails take.
    pub next: Var,
    /// `[v k, f]` features stored per mail, for the mean combiner.
    pub features: Option<Var>,
}

/// Mails of queries.
#[derive(Clone, Copy, Debug)]
pub struct Mails {
    /// `[n, k]` u32 rows in the table of mail contents, or `NONE`.
    pub row: Var,
    /// `[n, k]` u32 events, or `NONE`.
    pub event: Var,
    /// `[n, k]` f32 seconds from the mail to the query.
    pub dt: Var,
    /// `[n]` u32 numbers of mails.
    pub count: Var,
}

impl Tape {
    /// Appends [`ReadMails`] for queries `(node, time)`, u32 and i64 `[n]`: the mails of each node, latest
    /// first.
    ///
    /// # Errors
    /// `Shape` if types or rows do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{read_mails::Mailbox, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let times = Spec { cols: 3, ..Spec::times(Rows::fixed(1)) };
    /// let sent = tape.input(&mut store, "sent", times, &[10i64, 20, 0])?;
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 3), &[7u32, 8, NONE])?;
    /// let next = tape.input(&mut store, "next", Spec::ids(Rows::fixed(1), 1), &[2u32])?;
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(1)), &[25i64])?;
    /// let mail = store.zeros("mail", Spec::real(Rows::fixed(3), 2))?;
    /// let mail = tape.stored(mail)?;
    /// let mailbox = Mailbox { mail, event, time: sent, next, features: None };
    /// let mails = tape.read_mails(mailbox, (node, time), Gaps::unlimited(1.0))?;
    /// let keep = [mails.row, mails.event, mails.dt];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(mails.event, &store)?, [8, 7, NONE]); // latest first
    /// assert_eq!(program.read::<u32>(mails.row, &store)?, [1, 0, NONE]);
    /// assert_eq!(program.read::<f32>(mails.dt, &store)?, [5.0, 15.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn read_mails(&mut self, mailbox: Mailbox, query: (Var, Var), gaps: Gaps) -> Result<Mails> {
        let ins = [query.0, query.1, mailbox.event, mailbox.time, mailbox.next];
        let o = self.push(ReadMails { gaps }, &ins)?;
        Ok(Mails { row: o[0], event: o[1], dt: o[2], count: o[3] })
    }
}

/// Checks that mailboxes are `[v, k]` events and times and `[v]` next slots, and that u32 ids can number the
/// slots.
pub(in crate::ops) fn check_mailbox(op: &'static str, event: &Spec) -> Result<()> {
    let (v, k) = (event.rows.capacity, event.cols);
    ensure!(op, k > 0, "mail_event is {event}, want one slot or more");
    ensure!(op, v * k < NONE as usize, "{v} mailboxes of {k} slots, want fewer than {NONE} slots in all");
    Ok(())
}

impl Op for ReadMails {
    const NAME: &'static str = "read_mails";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, time [n] times, mail_event [v, k] ids, \
        mail_time [v, k] times, next [v] ids -> row [n, k] ids, event [n, k] ids, dt [n, k], count [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_mailbox(Self::NAME, &ins[at!(mail_event)])
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        // A slot reads 12 bytes and writes 12.
        let (row, count) = (&outs[0], &outs[3]);
        Cost { bytes: 24 * row.len() + 20 * count.len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, time, next) =
            (io.input::<u32>(at!(node)), io.input::<i64>(at!(time)), io.input::<u32>(at!(next)));
        let (mail_event, mail_time) = (io.input::<u32>(at!(mail_event)), io.input::<i64>(at!(mail_time)));
        let (row, event, dt, count) = (io.out::<u32>(0), io.out::<u32>(1), io.out::<R>(2), io.out::<u32>(3));
        let k = io.cols(at!(mail_event));
        let size = team::piece(node.len(), 64);
        let slots = row.chunks_mut(size * k).zip(event.chunks_mut(size * k)).zip(dt.chunks_mut(size * k));
        let pieces = slots.zip(count.chunks_mut(size));
        pieces.enumerate().in_parallel(1, |(piece, (((row, event), dt), count))| {
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
                    dt[slot] = R::from_f64(f64::from(self.gaps.seconds(mail_time[from], time[i])));
                    *count += 1;
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, time, next) = (on.input(at!(node)), on.input(at!(time)), on.input(at!(next)));
        let (mail_event, mail_time) = (on.input(at!(mail_event)), on.input(at!(mail_time)));
        let (row, event, dt, count) = (on.out(0), on.out(1), on.out(2), on.out(3));
        launch!(
            k, on, read_mails[Grid::warps(on.capacity(at!(node)))];
            node, time, mail_event, mail_time, next, row, event, dt, count, on.rows(at!(node)),
            on.capacity(at!(next)) as u32, on.cols(at!(mail_event)), self.gaps.into(), on.status()
        )
    }
}

/// `[nodes, slots, queries]`. Mailboxes are partly filled, just full or overwritten, and every ninth query is
/// for `NONE`.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[3, 2, 0], &[9, 4, 30], &[50, 10, 200], &[7, 70, 40]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 10, 1_800]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, k, n] = *dims else { return Err(Error::shape("read_mails", "three sizes")) };
    let mailbox = case_mailbox(c, v, k, 0, None, StoredAs::F32);
    let nodes: Vec<u32> = (0..n).map(|i| if i % 9 == 8 { NONE } else { c.below(v) as u32 }).collect();
    let times: Vec<i64> = (0..n).map(|i| 1_000 + i as i64).collect();
    let query = (c.ids(&nodes, 1), c.times(&times));
    let gaps = Gaps { seconds_per_tick: 0.5, longest: 900 };
    let m = c.tape.read_mails(mailbox, query, gaps)?;
    Ok(Built::new(&[m.row, m.event, m.dt, m.count], &[]))
}

/// Returns mailboxes for a case: a third with fewer mails than slots, a third just full, a third overwritten.
pub(in crate::ops) fn case_mailbox(
    c: &mut CaseBuilder,
    v: usize,
    k: usize,
    width: usize,
    features: Option<usize>,
    stored_as: StoredAs,
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
        mail: c.stored(v * k, width, stored_as),
        event: c.values(Spec::ids(Rows::fixed(v), k), &events),
        time: c.values(Spec { cols: k, ..Spec::times(Rows::fixed(v)) }, &times),
        next: c.ids(&next, 1),
        features: features.map(|f| c.stored(v * k, f, stored_as)),
    }
}
