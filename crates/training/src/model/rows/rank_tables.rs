//! State of a model over several ranks: who keeps which rows, and how they travel.
//!
//! Every rank computes with a slice of each batch. *Replicated* state has all rows on every rank; after a
//! batch each rank sends its new rows to all others (the papers call this DepCache). *Partitioned* state has
//! each node's rows on one rank, the node's owner; before a batch the owners *dispatch* rows to the ranks
//! that compute with them, and after it they get the new rows back (*aggregation*).
//!
//! If several ranks have new rows of the same node, the rank with the node's latest event sends them. Which
//! rank that is, and which rows go where, follows from the data alone: ranks find it out by lists of ids,
//! ahead of the rows. Source: Sven, sections 3.1 and 4.1.
//!
//! *Cached* state is partitioned, but a rank keeps the rows that it gets as copies. The owner knows whose
//! copies are valid, because it dispatches the rows and gets the new ones; it sends only rows that have
//! changed since. This is ours.
use std::sync::Arc;
use tgnn::{
    error::{Error, Result, ensure},
    ops::{
        Link, Tape,
        exchange_rows::{Parts, RowsToSend},
        next_batch::{Batch, Slice},
        next_turn::Turns,
        route::Routes,
        unique::UniqueNodes,
    },
    runtime::{
        comm::{Channel, Ranks, TrafficKind},
        *,
    },
};

/// How the rows of nodes travel between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTravel {
    /// Number of parts in which the rows of a step are dispatched and updated.
    pub micro_batches: usize,
    /// Whether owners update memory rows before they dispatch them, in place of the ranks that read them.
    pub owners_update: bool,
    /// Whether a row is dispatched for every occurrence of its node, in place of once for each rank.
    pub dispatch_repeated: bool,
    /// Whether every occurrence of a node sends a new row, in place of the latest.
    pub aggregate_repeated: bool,
    /// Whether ranks keep the rows that they get, and get only those that have changed since.
    pub cached: bool,
}

/// Tables by which a rank finds the owners of nodes, and its connections to the other ranks.
#[derive(Clone, Debug)]
pub struct RankTables {
    ranks: Ranks,
    partitioned: bool,
    travel: RowTravel,
    /// Which events of a batch this rank gets.
    slice: Slice,
    /// Which batches it gets.
    turns: Turns,
    /// `[1]` u32: the first batch of a pass, if ranks take turns.
    first: Option<BufferId>,
    /// Maximum number of events of a batch, if ranks take turns or get whole batches; else 0.
    most_events: usize,
    routes: Link,
    rows: Link,
    /// For each node, its owner, and its row in the owner's tables. If state is replicated, every rank owns
    /// every node: all owners are 0, and rows are the nodes' ids.
    rank_of: BufferId,
    row_of: BufferId,
    /// Zeros, one for each row of this rank's tables.
    stamp: BufferId,
    /// If ranks keep copies: for each of this rank's rows, a bit for each rank whose copy is valid.
    copies: Option<BufferId>,
    /// The nodes of this rank's tables, in the order of their rows. All nodes, if ranks keep copies.
    own: Arc<Vec<u32>>,
    /// The owner of each node, if state is partitioned.
    owners: Arc<Vec<u32>>,
}

/// Appends the request over `link` for the rows that `needed` lists, of which at most `capacity` are asked of
/// this rank. Returns the rows that other ranks want of this one, and how the answers travel.
pub(super) fn request(t: &mut Tape, link: &Link, needed: &Routes, capacity: usize) -> Result<(Var, Parts)> {
    let asked = t.exchange_ids(link, needed.row, Some(needed.counts), capacity)?;
    let parts = Parts { like: needed.order, recv_counts: needed.counts, send_counts: Some(asked.counts) };
    Ok((asked.id, parts))
}

/// New rows that this rank sends, and where the rows that it receives belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRows {
    /// Rows of the offered list of nodes, grouped by destination: the rows to send.
    pub sent: Var,
    /// Row in this rank's tables of each received row.
    pub place: Var,
    parts: Parts,
    /// Received rows that count; `None` if all do.
    kept: Option<Var>,
}

/// Rows that owners have dispatched.
#[derive(Clone, Debug)]
pub(crate) struct DispatchedRows {
    /// For each node for which this rank asked, its place among the rows; [`NONE`] for those that are none.
    pub position: Var,
    /// For each row, the number of its node in the list.
    pub order: Var,
    /// The rows of each table.
    pub rows: Vec<Var>,
}

/// Memory rows that other ranks have asked this one for, which owns them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedRows {
    /// Unique rows of this rank's tables.
    pub row: Var,
    /// For each row that other ranks want, its index in `row`.
    wanted: Var,
    /// For each of the nodes for which this rank asked, its place among the answers.
    position: Var,
    parts: Parts,
}

impl NewRows {
    /// Appends the choice of those of the received `rows` that count, in the order of [`NewRows::place`].
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub(crate) fn keep(&self, t: &mut Tape, rows: Var) -> Result<Var> {
        self.kept.map_or(Ok(rows), |kept| t.gather_rows(rows, kept))
    }
}

impl RankTables {
    /// Adds the tables for `nodes` nodes to `store`. `owners` holds the owner of each node; `None` replicates
    /// the state. Rows travel as `travel` says.
    ///
    /// # Errors
    /// `Shape` if `owners` does not have an owner below the number of ranks for each node.
    pub(crate) fn new(
        store: &mut Store,
        ranks: &Ranks,
        nodes: usize,
        owners: Option<&[u32]>,
        travel: RowTravel,
    ) -> Result<Self> {
        let size = ranks.size() as u32;
        let fits = owners.is_none_or(|owners| owners.len() == nodes && owners.iter().all(|&r| r < size));
        ensure!("ranks", fits, "the partition is not one of {nodes} nodes over {size} ranks");
        let all_own = |owners: &[u32]| (0..size).all(|rank| owners.contains(&rank));
        ensure!("ranks", owners.is_none_or(all_own), "a rank owns no node; use fewer ranks");
        let all: Vec<u32> = (0..nodes as u32).collect();
        let cached = owners.is_some() && travel.cached;
        let (rank_of, row_of, own) = match owners {
            None => (vec![0; nodes], all.clone(), all),
            Some(owners) if cached => (owners.to_vec(), all.clone(), all),
            Some(owners) => {
                let mut rows = vec![0; size as usize];
                let next = |&owner: &u32| {
                    rows[owner as usize] += 1;
                    rows[owner as usize] - 1
                };
                let row_of: Vec<u32> = owners.iter().map(next).collect();
                let is_own = |&v: &u32| owners[v as usize] == ranks.rank() as u32;
                (owners.to_vec(), row_of, all.into_iter().filter(is_own).collect())
            }
        };
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let bits = Spec::ids(Rows::fixed(nodes), ranks.size().div_ceil(32));
        let copies = cached.then(|| store.zeros("valid copies", bits)).transpose()?;
        let tables = RankTables {
            ranks: ranks.clone(),
            partitioned: owners.is_some(),
            travel,
            slice: Slice::new(ranks.rank(), ranks.size()),
            turns: Turns::ALL,
            first: None,
            most_events: 0,
            routes: Link::new(store, ranks, Channel::Routes)?,
            rows: Link::new(store, ranks, Channel::Rows)?,
            rank_of: store.table("owners", ids(nodes), Arc::new(rank_of))?,
            row_of: store.table("rows in tables", ids(nodes), Arc::new(row_of))?,
            stamp: store.zeros("stamp of own rows", ids(own.len()))?,
            own: Arc::new(own),
            copies,
            owners: Arc::new(owners.unwrap_or_default().to_vec()),
        };
        tables.reset(store)?;
        Ok(tables)
    }
    /// Lets the ranks, which have the same copy of the state, take turns: in their order, they are divided
    /// into `turns.groups` groups, of which each has a batch of at most `most_events` events. `turns.group`
    /// is this rank's.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn in_turns(mut self, store: &mut Store, turns: Turns, most_events: usize) -> Result<Self> {
        let ranks = self.ranks.size() / turns.groups.max(1);
        self.slice = Slice { rank: self.ranks.rank() % ranks.max(1), ranks, ..self.slice };
        (self.turns, self.most_events) = (turns, most_events);
        self.first = Some(store.zeros("first batch", Spec::ids(Rows::fixed(1), 1))?);
        Ok(self)
    }
    /// Lets the next pass begin with batch `first`.
    ///
    /// # Errors
    /// `Shape` if the tables belong to another store.
    pub(crate) fn begin_at(&self, store: &mut Store, first: usize) -> Result<()> {
        self.first.map_or(Ok(()), |id| store.write(id, &[first as u32]))
    }
    /// Gives the ranks whole batches of at most `most_events` events, one after the other.
    pub(crate) fn with_whole_batches(mut self, most_events: usize) -> Self {
        (self.slice.whole, self.most_events) = (true, most_events);
        self
    }
    /// Returns which events of a batch this rank gets.
    pub(crate) fn slice(&self) -> Slice {
        self.slice
    }
    /// Returns `[rank, ranks]` of the pipeline, if several ranks take whole batches in turn.
    pub(crate) fn pipeline(&self) -> Option<[usize; 2]> {
        (self.slice.whole && self.slice.ranks > 1).then_some([self.slice.rank, self.slice.ranks])
    }
    /// Returns which batches this rank gets.
    pub(crate) fn turns(&self) -> Turns {
        self.turns
    }
    /// Appends the next batch of at most `capacity` of the events `stream`: this rank's slice, or turn.
    pub(in crate::model) fn next_batch(
        &self,
        t: &mut Tape,
        stream: [Var; 3],
        [range, clock]: [Var; 2],
        capacity: usize,
    ) -> Result<Batch> {
        let turn = self.first.map(|first| {
            let first = t.stored(first)?;
            t.next_turn([stream[0], range, clock, first], capacity, self.turns)
        });
        t.next_slice(stream, range, clock, capacity, self.slice, turn.transpose()?)
    }
    /// Appends the list of the nodes of `roots` and of `others`: unique, or each occurrence apart.
    pub(in crate::model) fn unique(
        &self,
        t: &mut Tape,
        stamp: Var,
        (roots, stride): (Var, usize),
        others: &[Var],
    ) -> Result<UniqueNodes> {
        match self.repeats() {
            true => t.occurrences(stamp, roots, others, stride),
            false => t.unique(stamp, roots, others, stride),
        }
    }
    /// Returns the maximum number of events of a batch, if ranks take turns or get whole batches; else 0.
    pub(super) fn most_events(&self) -> usize {
        self.most_events
    }
    /// Appends the marks of the last appearance of each of the rows `row` of this rank's tables, u32 `[n]`.
    pub(super) fn latest(&self, t: &mut Tape, row: Var) -> Result<Var> {
        let stamp = t.stored(self.stamp)?;
        t.latest(stamp, row)
    }
    /// Whether state is written as without ranks: there is no other rank with the same state, and nodes are
    /// listed once.
    pub(crate) fn is_alone(&self) -> bool {
        self.ranks.size() == 1 && !self.repeats()
    }
    /// Appends the number of those of the first `rows` rows, or of all, that this rank offers in a step.
    pub(super) fn offered(&self, t: &mut Tape, batch: &Batch, rows: Option<Var>) -> Result<Option<Var>> {
        let Some(turn) = batch.turn.filter(|_| self.turns.groups > 1) else { return Ok(rows) };
        rows.map_or(Ok(turn.writes), |rows| t.least(rows, turn.writes)).map(Some)
    }
    /// Prepares for state that is the same on all ranks, such as that of nodes without events: all copies are
    /// valid.
    ///
    /// # Errors
    /// `Shape` if the tables belong to another store.
    pub(crate) fn reset(&self, store: &mut Store) -> Result<()> {
        self.copies.map_or(Ok(()), |copies| store.fill(copies, u32::MAX))
    }
    /// Whether ranks keep copies of rows that they do not own.
    pub(crate) fn is_cached(&self) -> bool {
        self.copies.is_some()
    }
    /// Returns the connection by which ranks say ahead which rows they need.
    pub(super) fn routes(&self) -> &Link {
        &self.routes
    }
    /// Returns all ranks.
    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }
    /// Whether each node's state is on one rank.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.partitioned
    }
    /// Returns the number of parts in which rows are dispatched and updated: 1 if none are dispatched.
    pub(crate) fn micro_batches(&self) -> usize {
        if self.partitioned { self.travel.micro_batches.max(1) } else { 1 }
    }
    /// Whether owners update the memory rows that they dispatch.
    pub(crate) fn owners_update(&self) -> bool {
        self.partitioned && !self.is_cached() && self.travel.owners_update
    }
    /// Whether the nodes of a batch are listed once for each occurrence.
    pub(crate) fn repeats(&self) -> bool {
        self.travel.dispatch_repeated || self.travel.aggregate_repeated
    }
    /// Refuses the mean of a node's mails, which is not computed over ranks.
    pub(in crate::model) fn refuse_mean(rank_tables: Option<&Self>, mean: bool, key: &str) -> Result<()> {
        if rank_tables.is_some() && mean {
            let what = format!("{key} is `mean`, and means of mails are not computed over ranks");
            return Err(Error::usage(what).remedy(format!("give {key}=last, or one rank")));
        }
        Ok(())
    }
    /// Returns the nodes whose state this rank keeps, in the order of its tables.
    pub fn own(&self) -> &Arc<Vec<u32>> {
        &self.own
    }
    /// Returns the nodes whose state a rank keeps, in the order of its tables.
    pub(crate) fn nodes_of(&self, rank: usize) -> Vec<u32> {
        if !self.partitioned {
            return self.own.to_vec();
        }
        let all = self.owners.iter().zip(0..).filter(|&(&owner, _)| owner as usize == rank);
        all.map(|(_, v)| v).collect()
    }
    /// Returns the shape of a table of state with the rows of all nodes, given the shape of this rank's.
    pub(crate) fn whole(&self, own: Spec) -> Spec {
        let per_node = own.rows.capacity / self.own.len().max(1);
        let nodes = if self.partitioned { self.owners.len() } else { self.own.len() };
        Spec { rows: Rows::fixed(per_node * nodes), ..own }
    }
    /// Returns the number of ranks among which owners are told apart.
    fn owners(&self) -> usize {
        if self.partitioned { self.ranks.size() } else { 1 }
    }
    fn routed(&self, t: &mut Tape, node: Var, limit: Option<Var>) -> Result<Routes> {
        let [rank_of, row_of] = t.stored_all([self.rank_of, self.row_of])?;
        t.route(node, (rank_of, row_of), self.owners(), limit)
    }
    /// Returns the most ids that a rank receives if each rank sends at most `each`.
    fn capacity(&self, each: usize) -> usize {
        // If ranks get whole batches, one of them sends.
        let senders = if self.slice.whole { 1 } else { self.ranks.size() };
        senders * if self.repeats() { each } else { each.min(self.own.len()) }
    }
    /// Appends the request for rows of the nodes `node`.
    fn request(&self, t: &mut Tape, node: Var) -> Result<(Var, Var, Parts)> {
        let needed = self.routed(t, node, None)?;
        let capacity = self.capacity(t.spec(node).rows.capacity);
        let (asked, parts) = request(t, &self.routes, &needed, capacity)?;
        Ok((asked, needed.position, parts))
    }
    /// Appends the dispatch of the state of the unique nodes `node`, u32 `[<= n]`: of each table, which is
    /// partitioned by node and has the given number of rows for each. A node may be [`NONE`].
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(crate) fn dispatch(
        &self,
        t: &mut Tape,
        node: Var,
        tables: &[(Var, usize)],
    ) -> Result<DispatchedRows> {
        let (index, position, parts) = self.request(t, node)?;
        let picked = |&(table, each)| RowsToSend { table, index, each };
        let tables: Vec<RowsToSend> = tables.iter().map(picked).collect();
        let rows = t.exchange_rows(&self.rows, TrafficKind::Dispatch, parts, &tables)?;
        Ok(DispatchedRows { position, order: parts.like, rows })
    }
    /// Appends the renewal of this rank's copies of the state of the unique nodes `node`, u32 `[<= n]`: of
    /// each table, which has rows for all nodes, the given number for each. Afterwards, the tables have the
    /// state of these nodes.
    ///
    /// # Errors
    /// `Shape` if ranks keep no copies, or if an op refuses its inputs.
    pub(crate) fn renew(&self, t: &mut Tape, node: Var, tables: &[(Var, usize)]) -> Result<()> {
        let Some(copies) = self.copies else {
            return Err(Error::shape("renew", "ranks keep no copies"));
        };
        let needed = self.routed(t, node, None)?;
        let capacity = self.capacity(t.spec(node).rows.capacity);
        let asked = t.exchange_ids(&self.routes, needed.row, Some(needed.counts), capacity)?;
        let copies = t.stored(copies)?;
        let stale = t.stale_copies(copies, asked.id, asked.counts, self.ranks.rank())?;
        // The owner tells which rows it will send.
        let parts = Parts { like: needed.order, recv_counts: needed.counts, send_counts: Some(asked.counts) };
        let told = t.exchange_all_rows(&self.routes, TrafficKind::Routes, parts, &[stale])?;
        let mine = t.keep_marked(told[0], needed.counts, needed.row, None)?;
        let theirs = t.keep_marked(stale, asked.counts, asked.id, None)?;
        let parts = Parts { like: mine.id, recv_counts: mine.counts, send_counts: Some(theirs.counts) };
        let picked = |&(table, each)| RowsToSend { table, index: theirs.id, each };
        let picked: Vec<RowsToSend> = tables.iter().map(picked).collect();
        let rows = t.exchange_rows(&self.rows, TrafficKind::Dispatch, parts, &picked)?;
        let items = tables.iter().zip(rows).map(|(&(table, each), rows)| (table, rows, each));
        t.write_items(&items.collect::<Vec<_>>(), mine.id)
    }
    /// Appends the request for the updated memory of the nodes `node`. Their owners update it once each, and
    /// then [`answer`](Self::answer).
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(crate) fn ask(&self, t: &mut Tape, node: Var) -> Result<RequestedRows> {
        let (asked, position, parts) = self.request(t, node)?;
        let stamp = t.stored(self.stamp)?;
        let unique = t.unique(stamp, asked, &[], 2)?;
        Ok(RequestedRows { row: unique.node, wanted: unique.psi[0], position, parts })
    }
    /// Appends the dispatch of `tables`, each with a row for each of [`RequestedRows::row`]. Returns the
    /// received rows of each, for the nodes that this rank asked for. Gradients of the first table travel
    /// back.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(crate) fn answer(&self, t: &mut Tape, asked: &RequestedRows, tables: &[Var]) -> Result<Vec<Var>> {
        let rows = t.gather_all_rows(tables, asked.wanted)?;
        let answers = t.exchange_all_rows(&self.rows, TrafficKind::Dispatch, asked.parts, &rows)?;
        t.gather_all_rows(&answers, asked.position)
    }
    /// Appends the agreement on who sends new rows of which of the unique nodes `node`, u32 `[<= n]`, of
    /// which the first `limit` have new rows: for each node, the last rank that offers some. If every
    /// occurrence of a node sends a row, the ranks agree only on which of the received rows counts. If ranks
    /// keep copies, those of the rows expire; `kept` says whether a rank keeps the rows that it sends.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(crate) fn offer(&self, t: &mut Tape, node: Var, limit: Option<Var>, kept: bool) -> Result<NewRows> {
        let offered = self.routed(t, node, limit)?;
        let counts = self.partitioned.then_some(offered.counts);
        let capacity = self.capacity(t.spec(node).rows.capacity);
        let offers = t.exchange_ids(&self.routes, offered.row, counts, capacity)?;
        let latest = self.latest(t, offers.id)?;
        let theirs = t.keep_marked(latest, offers.counts, offers.id, None)?;
        if let Some(copies) = self.copies {
            let copies = t.stored(copies)?;
            t.expire_copies(copies, theirs.id, theirs.counts, kept)?;
        }
        if self.travel.aggregate_repeated {
            let parts = Parts { like: offers.id, recv_counts: offers.counts, send_counts: counts };
            return Ok(NewRows { sent: offered.order, place: theirs.id, parts, kept: Some(theirs.row) });
        }
        let mine = if self.partitioned {
            let parts =
                Parts { like: offered.order, recv_counts: offered.counts, send_counts: Some(offers.counts) };
            let accepted = t.exchange_all_rows(&self.routes, TrafficKind::Routes, parts, &[latest])?;
            t.keep_marked(accepted[0], offered.counts, offered.order, None)?
        } else {
            t.keep_marked(latest, offers.counts, offered.order, Some(self.ranks.rank()))?
        };
        let send_counts = self.partitioned.then_some(mine.counts);
        let parts = Parts { like: theirs.id, recv_counts: theirs.counts, send_counts };
        Ok(NewRows { sent: mine.id, place: theirs.id, parts, kept: None })
    }
    /// Appends the aggregation of new rows: of each table the rows of its index, in the order of
    /// [`NewRows::sent`]. Returns the received rows of each table, of which [`NewRows::keep`] keeps those
    /// that count.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(crate) fn aggregate(&self, t: &mut Tape, new: &NewRows, tables: &[(Var, Var)]) -> Result<Vec<Var>> {
        self.exchange(t, TrafficKind::Aggregation, new.parts, tables)
    }
    /// Appends the exchange of the rows of each table's index. Returns the received rows of each table.
    pub(super) fn exchange(
        &self,
        t: &mut Tape,
        kind: TrafficKind,
        parts: Parts,
        tables: &[(Var, Var)],
    ) -> Result<Vec<Var>> {
        let tables: Vec<RowsToSend> = tables.iter().map(|&table| table.into()).collect();
        t.exchange_rows(&self.rows, kind, parts, &tables)
    }
}
