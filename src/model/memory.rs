//! Node memory with a mailbox of one lean mail per node, updated by a recurrent cell.
use super::{
    Dispatched, Embedded, EventTables, RankTables, TimeEncoding,
    handed_rows::{Handed, HandedRows},
    missed_writes::MissedWrites,
    similar_nodes::{Mixed, SimilarNodes},
    turns::TurnWrites,
};
use crate::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{
        Tape,
        gru_memory::Gru,
        memory_update::{Cell, CellVars, FeatureRow, MemoryVars},
        next_batch::Batch,
        rnn_memory::Rnn,
        split_rows::Split,
        unique::UniqueNodes,
        write_memory::{Combiner, Written},
    },
    runtime::*,
};

/// The cell that updates a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// A GRU.
    Gru,
    /// A plain RNN.
    Rnn,
}

impl CellKind {
    /// Parses `gru` or `rnn`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "gru" => Some(CellKind::Gru),
            "rnn" => Some(CellKind::Rnn),
            _ => None,
        }
    }
    /// Returns the number of gates. Each gate has as many rows of the weights as the memory is wide.
    fn gates(self) -> usize {
        match self {
            CellKind::Gru => Gru::GATES,
            CellKind::Rnn => Rnn::GATES,
        }
    }
}

/// The memory of TGN, JODIE and DyRep: memory rows, mails, and the cell that updates the rows from the mails.
#[derive(Debug)]
pub struct NodeMemory {
    kind: CellKind,
    edge_features: bool,
    cell: [BufferId; 4],
    memory: BufferId,
    memory_time: BufferId,
    mail: BufferId,
    mail_event: BufferId,
    mail_time: BufferId,
    mail_edge: Option<BufferId>,
    turns: TurnWrites,
    missed: Option<MissedWrites>,
    similar: Option<SimilarNodes>,
    handed: Option<HandedRows>,
}

/// Updated memory of unique nodes.
#[derive(Clone, Copy, Debug)]
pub struct Updated {
    /// `[n, d]`: the memory after the mails.
    pub memory: Var,
    /// `[n]` i64: its times, in ticks.
    pub time: Var,
    /// `[n]` u32: the versions of the rows that were read, if they may be older.
    pub(crate) seen: Option<Var>,
    /// The rows that were read, if some were mixed with those of similar nodes.
    pub(crate) mixed: Option<Mixed>,
    /// The positive roots, the first of the unique nodes, if they were updated apart.
    pub(crate) roots: Option<UpdatedRoots>,
}

/// Positive roots that were updated apart from the other nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdatedRoots {
    memory: Var,
    time: Var,
    /// Those that repeat in the next batch or the one before, if ranks hand rows on.
    handed: Option<Handed>,
}

impl NodeMemory {
    /// Adds the parameters `memory.*` and the state, with memory rows of width `d`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        time: &TimeEncoding,
        d: usize,
        kind: CellKind,
        combiner: Combiner,
        edge_features: bool,
    ) -> Result<Self> {
        RankTables::refuse_mean(data.over.as_ref(), combiner == Combiner::Mean, "combiner")?;
        let (v, g) = (Rows::fixed(data.state_rows()), kind.gates());
        let f = data.edge_width_if(edge_features);
        let mut add = |name: &str, rows, cols| p.add(store, name, rows, cols, ScaledInit::FanIn(d));
        let cell = [
            add("memory.w_x", g * d, 2 * d + f + time.width)?,
            add("memory.w_h", g * d, d)?,
            add("memory.b_x", 1, g * d)?,
            add("memory.b_h", 1, g * d)?,
        ];
        let memory = store.zeros("memory", data.memory_spec(v, d))?;
        let memory_time = store.zeros("memory time", Spec::times(v))?;
        let mail = store.zeros("mail", data.memory_spec(v, d))?;
        let mail_event = store.zeros("mail event", Spec::ids(v, 1))?;
        let mail_time = store.zeros("mail time", Spec::times(v))?;
        // A batch writes the rows of its sources and destinations.
        let state = [(memory, 0), (memory_time, 0), (mail, 0), (mail_event, NONE), (mail_time, 0)];
        let (real, time) = (Spec::real(v, d), Spec::times(v));
        let rows = [real, time, real, Spec::ids(v, 1), time];
        let turns = TurnWrites::new(store, data.training_over(), 2, &rows, &state)?;
        let memory = NodeMemory {
            kind,
            edge_features,
            cell,
            memory,
            memory_time,
            mail,
            mail_event,
            mail_time,
            turns,
            missed: MissedWrites::new(store, data)?,
            similar: SimilarNodes::new(store, data)?,
            handed: HandedRows::new(store, data, &state.map(|(id, _)| id))?,
            mail_edge: (combiner == Combiner::Mean)
                .then(|| store.zeros("mail features", data.memory_spec(v, f)))
                .transpose()?,
        };
        memory.reset(store)?;
        Ok(memory)
    }
    /// Returns the bytes of memory rows of width `d` and mails for `nodes` nodes, with edge features of
    /// `width`.
    pub fn bytes(nodes: usize, d: usize, width: usize, combiner: Combiner, kept: StoredAs) -> usize {
        let features = if combiner == Combiner::Mean { width } else { 0 };
        nodes * (kept.size() * (2 * d + features) + 2 * size_of::<i64>() + size_of::<u32>())
    }
    /// Returns the buffers of memory rows and mails.
    pub fn state(&self) -> Vec<BufferId> {
        let fixed = [self.memory, self.memory_time, self.mail, self.mail_event, self.mail_time];
        fixed.into_iter().chain(self.mail_edge).collect()
    }
    /// Returns the buffer of each mail's event id.
    pub fn mail_event(&self) -> BufferId {
        self.mail_event
    }
    /// Returns the buffer that counts the writes that fetched rows have missed.
    pub fn missed_writes(&self) -> Option<BufferId> {
        self.missed.map(MissedWrites::counts)
    }
    /// Returns the buffer of the errors of rows that are mixed with those of similar nodes.
    pub fn row_errors(&self) -> Option<BufferId> {
        self.similar.map(SimilarNodes::errors)
    }
    /// Empties memory and mailbox.
    pub fn reset(&self, store: &mut Store) -> Result<()> {
        self.similar.map_or(Ok(()), |similar| similar.reset(store))?;
        self.state().into_iter().chain(self.turns.counts()).try_for_each(|id| store.clear(id))?;
        store.fill(self.mail_event, NONE)
    }
    fn vars(&self, t: &mut Tape, store: &Store, edge: Var) -> Result<MemoryVars> {
        let mut stored = |id| t.stored(store, id);
        Ok(MemoryVars {
            memory: stored(self.memory)?,
            memory_time: stored(self.memory_time)?,
            mail: stored(self.mail)?,
            mail_event: stored(self.mail_event)?,
            mail_time: stored(self.mail_time)?,
            edge: self.mail_edge.map_or(Ok(edge), stored)?,
            gathered: false,
        })
    }
    /// Gathers the rows of the unique nodes `node` into f32: of tables stored in 16 bits or on the host, or
    /// that later steps may write before this one has computed.
    fn gathered(
        &self,
        t: &mut Tape,
        state: MemoryVars,
        node: Var,
        mixed: Option<Mixed>,
    ) -> Result<MemoryVars> {
        let MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, .. } = state;
        let mut tables = vec![memory_time, mail, mail_event, mail_time];
        tables.extend(mixed.is_none().then_some(memory));
        tables.extend(self.mail_edge.map(|_| edge));
        let rows = t.gather_all_rows(&tables, node)?;
        let memory = mixed.map_or_else(|| rows[4], |mixed| mixed.rows);
        let edge = if self.mail_edge.is_some() { rows[rows.len() - 1] } else { edge };
        let [memory_time, mail, mail_event, mail_time] = [rows[0], rows[1], rows[2], rows[3]];
        Ok(MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, gathered: true })
    }
    /// Appends the update of the unique nodes `node` by their mails.
    /// Over ranks, micro-batches of the nodes follow one another: the rows of one can travel while another is
    /// updated (Sven, section 3.3.2).
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn update(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        time: &TimeEncoding,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
    ) -> Result<Updated> {
        let node = unique.node;
        let missed = self.missed.filter(|_| data.gathers_memory);
        let seen = missed.map(|missed| missed.seen(t, store, node)).transpose()?;
        let mixed = match (self.similar.filter(|_| data.gathers_memory), batch) {
            (Some(similar), Some(batch)) => {
                let [memory, event, time] =
                    t.stored_all(store, [self.memory, self.mail_event, self.mail_time])?;
                Some(similar.mixed(t, store, data, (memory, (event, time)), node, batch)?)
            }
            _ => None,
        };
        if data.roots_first && data.gathers_memory {
            return self.update_roots_first(t, store, data, time, unique, batch);
        }
        let micro_batches = data.over.as_ref().map_or(1, RankTables::micro_batches);
        if micro_batches == 1 {
            let (memory, time) = self.update_part(t, store, data, time, (node, None), mixed)?;
            return Ok(Updated { memory, time, seen, mixed, roots: None });
        }
        let (mut memory, mut times) = (Vec::new(), Vec::new());
        for at in 0..micro_batches {
            let part = t.slice_rows(node, at, micro_batches)?;
            let (rows, time) = self.update_part(t, store, data, time, (part, None), None)?;
            memory.push(rows);
            times.push(time);
        }
        let (memory, time) = (t.join_rows(node, &memory)?, t.join_rows(node, &times)?);
        Ok(Updated { memory, time, seen, mixed: None, roots: None })
    }
    /// Appends the update of the positive roots, whose new rows other ranks wait for, and then that of the
    /// other nodes (PipeTGL, section 4.1).
    fn update_roots_first(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        time: &TimeEncoding,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
    ) -> Result<Updated> {
        let parts = t.split_rows(unique.node, unique.positives)?;
        let handed = match (&self.handed, &data.over, batch) {
            (Some(_), Some(over), Some(batch)) => {
                Some(HandedRows::repeated(t, store, (data, over), parts.first, batch)?)
            }
            _ => None,
        };
        let roots = self.update_part(t, store, data, time, (parts.first, handed), None)?;
        let rest = self.update_part(t, store, data, time, (parts.rest, None), None)?;
        let memory = t.join_split(unique.node, Split { first: roots.0, rest: rest.0 })?;
        let both_times = t.join_split(unique.node, Split { first: roots.1, rest: rest.1 })?;
        let roots = UpdatedRoots { memory: roots.0, time: roots.1, handed };
        Ok(Updated { memory, time: both_times, seen: None, mixed: None, roots: Some(roots) })
    }
    /// Appends the update of some of the unique nodes, or of all of them with memory that is `mixed`, or of
    /// the positive roots, of which some may have been handed on.
    #[allow(clippy::too_many_arguments)]
    fn update_part(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        time: &TimeEncoding,
        (node, handed): (Var, Option<Handed>),
        mixed: Option<Mixed>,
    ) -> Result<(Var, Var)> {
        let edge = data.edge_if(t, store, self.edge_features)?;
        let mut state = self.vars(t, store, edge)?;
        // Owners update together what all ranks ask for.
        let each = t.spec(node).rows.capacity;
        let (mut node, mut asked, mut received) = (node, None, false);
        if let Some(over) = data.over.as_ref().filter(|over| over.owners_update()) {
            // This rank updates rows of its tables that others want, and gets those that it wants.
            let rows = over.ask(t, store, node)?;
            node = rows.row;
            asked = Some((over, rows));
        } else if let Some(over) = data.over.as_ref().filter(|over| over.is_partitioned()) {
            (node, state, received) = self.dispatched(t, store, over, (node, handed), state)?;
        }
        // Rows that travel over the bus do so once, ahead of the arithmetic.
        let elsewhere = data.memory_on_host || data.gathers_memory;
        if t.spec(state.memory).dtype.is_half() || elsewhere && !received {
            state = self.gathered(t, state, node, mixed)?;
        }
        let cell = {
            let (time_w, time_b) = time.vars(t, store)?;
            let [w_x, w_h, b_x, b_h] = t.stored_all(store, self.cell)?;
            CellVars { time_w, time_b, w_x, w_h, b_x, b_h }
        };
        let row = if self.mail_edge.is_some() {
            if state.gathered { FeatureRow::Unique } else { FeatureRow::Node }
        } else if data.gathers(t, edge) {
            // The previous step decides which event a mail belongs to, so these rows alone cannot be
            // prefetched.
            let events = match state.gathered {
                true => state.mail_event,
                false => t.gather_rows(state.mail_event, node)?,
            };
            state.edge = data.each_mail_edge_row(t, store, edge, events, each)?;
            FeatureRow::Unique
        } else {
            FeatureRow::Event
        };
        let (memory, time) = match self.kind {
            CellKind::Gru => t.memory_update::<Gru>(node, state, cell, row, data.gaps),
            CellKind::Rnn => t.memory_update::<Rnn>(node, state, cell, row, data.gaps),
        }?;
        let Some((over, asked)) = asked else { return Ok((memory, time)) };
        let answers = over.answer(t, store, &asked, &[memory, time])?;
        Ok((answers[0], answers[1]))
    }
    /// Appends the dispatch of the rows of `node` by their owners. Returns the rows of these nodes, the
    /// tables in which they are, and whether those are the received rows in place of stored tables.
    fn dispatched(
        &self,
        t: &mut Tape,
        store: &Store,
        over: &RankTables,
        (node, handed): (Var, Option<Handed>),
        state: MemoryVars,
    ) -> Result<(Var, MemoryVars, bool)> {
        let MemoryVars { memory, memory_time, mail, mail_event, mail_time, .. } = state;
        let tables = [memory, memory_time, mail, mail_event, mail_time].map(|table| (table, 1));
        if over.is_cached() {
            over.renew(t, store, node, &tables)?;
            return Ok((node, state, false));
        }
        let (row, rows, received) = match (&self.handed, handed) {
            (Some(kept), Some(handed)) => {
                let (row, rows) = kept.completed(t, store, over, (handed, node), &tables)?;
                (row, rows, false)
            }
            _ => {
                let Dispatched { position, rows, .. } = over.dispatch(t, store, node, &tables)?;
                (position, rows, true)
            }
        };
        let [memory, memory_time, mail, mail_event, mail_time] = rows[..] else {
            return Err(Error::shape("dispatch", "a table is missing"));
        };
        Ok((row, MemoryVars { memory, memory_time, mail, mail_event, mail_time, ..state }, received))
    }
    /// Appends the writes of a batch's memory and mails.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or if `e` has no memory of the unique nodes.
    pub fn write(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embedded,
    ) -> Result<()> {
        let Some((memory, Some(time))) = e.memory else {
            return Err(Error::shape("write_memory", "there is no new memory"));
        };
        if let Some(over) = data.over.as_ref().filter(|over| !over.is_alone()) {
            let (rows, handed) =
                e.roots.map_or(((memory, time), None), |roots| ((roots.memory, roots.time), roots.handed));
            return self.aggregate(t, store, over, batch, stride, e, rows, handed);
        }
        let combiner = if self.mail_edge.is_some() { Combiner::Mean } else { Combiner::Last };
        let edge = data.edge_if(t, store, self.edge_features)?;
        let state = self.vars(t, store, edge)?;
        let (edge, edge_row) = match combiner {
            Combiner::Mean => data.batch_edge_rows(t, store, edge, batch.event)?,
            Combiner::Last => (edge, batch.event),
        };
        let unique = e.unique_nodes()?;
        let written = Written {
            node: unique.node,
            phi: unique.phi,
            positives: unique.positives,
            psi: unique.psi[0],
            memory,
            content: e.content,
            time,
            event: batch.event,
            event_time: batch.time,
            edge,
            edge_row,
        };
        if let (Some(similar), Some(mixed)) = (self.similar, &e.mixed) {
            similar.add_errors(t, store, state.memory, mixed)?;
        }
        t.write_memory(state, &written, combiner, stride)?;
        if let Some(missed) = self.missed {
            missed.count(t, store, e, (unique.node, Some(unique.positives)))?;
        }
        data.over.as_ref().map_or(Ok(()), |over| self.turns.begin_anew(t, store, over, batch))
    }
    /// Appends the writes over several ranks: each new row goes to the ranks that keep it.
    #[allow(clippy::too_many_arguments)]
    fn aggregate(
        &self,
        t: &mut Tape,
        store: &Store,
        over: &RankTables,
        batch: &Batch,
        stride: usize,
        e: &Embedded,
        (memory, time): (Var, Var),
        handed: Option<Handed>,
    ) -> Result<()> {
        let UniqueNodes { node, phi, positives, psi, .. } = e.unique_nodes()?;
        let new_rows = |t: &mut Tape, sent: Var| -> Result<[(Var, Var); 5]> {
            let from = t.mail_sources(sent, *phi, psi[0], stride, None)?;
            let mail = e.content.map_or((memory, from.partner_row), |content| (content, from.end));
            let (event, event_time) = ((batch.event, from.event), (batch.time, from.event));
            Ok([(memory, sent), (time, sent), mail, event, event_time])
        };
        // The next rank waits for the rows that it is handed.
        if let (Some(kept), Some(handed)) = (&self.handed, handed) {
            let tables = new_rows(t, handed.sent.row)?;
            kept.hand_over(t, store, over, handed, &tables)?;
        }
        let limit = over.offered(t, batch, Some(*positives))?;
        let new = over.offer(t, store, handed.map_or(*node, |handed| handed.sent.rest), limit, true)?;
        let tables = new_rows(t, new.sent)?;
        let rows = over.aggregate(t, store, &new, &tables)?;
        let rows: Vec<Var> = rows.into_iter().map(|rows| new.keep(t, rows)).collect::<Result<_>>()?;
        if let Some(missed) = self.missed {
            missed.count(t, store, e, (new.place, None))?;
        }
        let state = [self.memory, self.memory_time, self.mail, self.mail_event, self.mail_time];
        self.turns.write(t, store, over, batch, (new.place, &rows), &|t, place, rows| {
            let tables = t.stored_all(store, state)?.into_iter().zip(rows.iter().copied());
            t.write_all_rows(&tables.collect::<Vec<_>>(), place)
        })?;
        if over.is_cached() {
            // This rank keeps the rows that it has sent.
            let sent = t.gather_rows(*node, new.sent)?;
            for (id, (rows, from)) in state.into_iter().zip(tables) {
                let table = t.stored(store, id)?;
                t.write_picked(table, sent, rows, from)?;
            }
        }
        Ok(())
    }
}
