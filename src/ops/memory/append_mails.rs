//! Writes one mail into the next slot of each of a list of mailboxes, in place
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `mail` | `[v k, c]` f32, bf16 or f16, state | contents of the slots |
//! | `mail event`, `mail time`, `next` | as in [`read_mails`], state | |
//! | `node` | `[n]` u32 below `v`, unique, or [`NONE`] | recipients |
//! | `content` | `[n, c]` f32 | content of each recipient's mail |
//! | `event`, `event time` | `[n]` u32, i64 | event of the mail, and its time |
//!
//! As in [`deliver_mails`], the slot after the last one is the first, so that the oldest mail is overwritten,
//! and a mailbox of 16 bits stores rounded numbers. Over several ranks, each rank so delivers the mails that
//! arrive for the nodes that it keeps. No gradient. Deterministic.
//!
//! [`deliver_mails`]: super::deliver_mails
use super::{
    read_mails::{Mailbox, check_mailbox},
    *,
};

/// See the [module](self).
#[derive(Debug)]
pub struct AppendMails;

impl Tape {
    /// Appends [`AppendMails`] for the recipients `node`, u32 `[n]`, with mails of `content`, f32 `[n, c]`,
    /// and `(event, time)`, u32 and i64 `[n]`.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match, if state is read-only, or if mails have features of
    /// their own.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{read_mails::Mailbox, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let mail = store.zeros("mail", Spec::real(Rows::fixed(4), 1))?; // two mailboxes of two slots
    /// let mail_event = store.zeros("mail event", Spec::ids(Rows::fixed(2), 2))?;
    /// let mail_time = store.zeros("mail time", Spec { cols: 2, ..Spec::times(Rows::fixed(2)) })?;
    /// let next = store.zeros("next", Spec::ids(Rows::fixed(2), 1))?;
    /// let [mail, mail_event] = tape.stored_all([mail, mail_event])?;
    /// let [mail_time, next] = tape.stored_all([mail_time, next])?;
    /// let mailbox = Mailbox { mail, event: mail_event, time: mail_time, next, features: None };
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let content = tape.input(&mut store, "content", Spec::real(Rows::fixed(1), 1), &[5.0f32])?;
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 1), &[7u32])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(1)), &[30i64])?;
    /// tape.append_mails(mailbox, node, content, (event, time))?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(mail, &store)?, [0.0, 0.0, 5.0, 0.0]);
    /// assert_eq!(program.read::<u32>(next, &store)?, [0, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn append_mails(&mut self, into: Mailbox, node: Var, content: Var, sent: (Var, Var)) -> Result<()> {
        ensure!(AppendMails::NAME, into.features.is_none(), "the mailbox keeps features of its own");
        let Mailbox { mail, event, time, next, .. } = into;
        self.push(AppendMails, &[mail, event, time, next, node, content, sent.0, sent.1]).map(drop)
    }
}

impl AppendMails {
    fn write<R: Real, T: Stored<R>>(&self, io: &Io<'_>) {
        let (mail, mail_event) = (io.state::<T>(at!(mail)), io.state::<u32>(at!(mail_event)));
        let (mail_time, next) = (io.state::<i64>(at!(mail_time)), io.state::<u32>(at!(next)));
        let (node, content) = (io.input::<u32>(at!(node)), io.input::<R>(at!(content)));
        let (event, time) = (io.input::<u32>(at!(event)), io.input::<i64>(at!(event_time)));
        let (k, c) = (io.cols(at!(mail_event)), io.cols(at!(content)));
        let mut row = vec![R::ZERO; c];
        for (i, &v) in node.iter().enumerate() {
            let Some(v) = io.row_of(i, v, next.len()) else { continue };
            let place = next[v] as usize % k;
            let slot = v * k + place;
            // A sum of one mail, as `deliver_mails` computes it: minus zero becomes zero.
            row.iter_mut().zip(&content[i * c..][..c]).for_each(|(to, &x)| *to = R::ZERO + x);
            T::keep(&row, &mut mail[slot * c..][..c]);
            (mail_event[slot], mail_time[slot]) = (event[i], time[i]);
            next[v] = ((place + 1) % k) as u32;
        }
    }
}

impl Op for AppendMails {
    const NAME: &'static str = "append_mails";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "mail [V k, c] stored state, mail_event [V, k] ids state, \
        mail_time [V, k] times state, next [V] ids state, node [n] ids, content [n, c], event [n] ids, \
        event_time [n] times ->";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_mailbox(Self::NAME, &ins[at!(mail_event)])
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let (rows, number) = (ins[at!(node)].len(), ins[at!(mail)].dtype.size(Precision::F32));
        Cost { bytes: rows * (ins[at!(content)].cols * (4 + number) + 36), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        by_storage!(io.spec(at!(mail)).dtype, R, self.write(io));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        macro_rules! append {
            ($kernel:ident, $($mail:expr),+) => {
                launch!(
                    k, on, $kernel[Grid::warps(on.capacity(at!(node)))];
                    $($mail,)+ on.state(at!(mail_event)), on.state(at!(mail_time)), on.state(at!(next)),
                    on.input(at!(node)), on.input(at!(content)), on.input(at!(event)),
                    on.input(at!(event_time)), on.rows(at!(node)), on.capacity(at!(next)) as u32,
                    on.cols(at!(mail_event)), on.cols(at!(content)), on.status()
                )
            };
        }
        if on.spec(at!(mail)).dtype.is_half() {
            let (mail, kind) = on.halves_state(at!(mail));
            return append!(append_half_mails, mail, kind);
        }
        append!(append_mails, on.state(at!(mail)))
    }
}

/// `[nodes, recipients, slots, columns]`, and the index of the mailbox's storage type in [`StoredAs::ALL`]
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 0],
    &[5, 0, 3, 2, 0],
    &[9, 9, 2, 5, 0],
    &[90, 50, 10, 40, 0],
    &[9, 9, 2, 5, 1],
    &[90, 50, 3, 8, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 1_500, 10, 200, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (v, n, k, d) = (dims[0], dims[1], dims[2], dims[3]);
    let mail = c.stored(v * k, d, StoredAs::ALL[dims[4]]);
    let events: Vec<u32> = (0..v * k).map(|_| c.below(1_000) as u32).collect();
    let times: Vec<i64> = (0..(v * k) as i64).collect();
    let (event, next) = (c.ids(&events, k), c.ids_below(v, k));
    let time = c.values(Spec { cols: k, ..Spec::times(Rows::fixed(v)) }, &times);
    let recipients: Vec<u32> =
        (0..n as u32).map(|i| if i % 7 == 6 { NONE } else { v as u32 - 1 - i }).collect();
    let (node, content, sent) = (c.ids(&recipients, 1), c.real(n, d), c.ids_below(n, 1_000));
    let sent_at = c.times(&(0..n as i64).map(|i| i << 33).collect::<Vec<_>>());
    let mailbox = Mailbox { mail, event, time, next, features: None };
    c.tape.append_mails(mailbox, node, content, (sent, sent_at))?;
    Ok(Built { states: vec![mail, event, time, next], ..Built::default() })
}
