//! Feature tables over ranks: each rank keeps its share of the rows, and asks the others for the rows that a
//! step reads.
//!
//! Row i is on rank i mod ranks, so no rank needs a table of owners, and recent events, which are read most,
//! are on all ranks. Each row is asked for once in a step, and travels in its storage type.
//!
//! Which rows a step reads mostly follows from the data alone: those are asked for in the stage `route` and
//! travel in the stage `fetch_features`, both ahead of the step. Only which event a mail belongs to is
//! decided by the step before, so the features of mails' events are asked for, on a channel of their own,
//! when the mails are read.
use super::{RankTables, rank_tables::request};
use crate::model::EventTables;
use tgnn::{
    error::{Error, Result},
    ops::{Link, Tape, route::Owners},
    runtime::{
        comm::{Channel, TrafficKind},
        *,
    },
};

/// The connections by which ranks get rows of features from one another.
#[derive(Clone, Debug)]
pub(in crate::model) struct FeatureRows {
    /// Requests that follow from the data alone.
    routes: Link,
    /// Their answers.
    rows: Link,
    /// Requests for features of mails' events, and their answers.
    of_mails: Link,
    /// `[events]` u32: stamps of the mails' events whose features a step asks for.
    mail_event_stamp: BufferId,
}

/// When it is known which rows a step reads.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum KnownWhen {
    /// Ahead of the step.
    Ahead,
    /// When the mails are read. All ranks together read at most this many rows for each rank.
    WithMails(usize),
}

impl FeatureRows {
    fn new(store: &mut Store, rank_tables: &RankTables, events: usize) -> Result<Self> {
        Ok(FeatureRows {
            routes: rank_tables.routes().clone(),
            rows: Link::new(store, rank_tables.ranks(), Channel::Features)?,
            of_mails: Link::new(store, rank_tables.ranks(), Channel::MailFeatures)?,
            mail_event_stamp: store.zeros("mail event stamp", Spec::ids(Rows::fixed(events), 1))?,
        })
    }
    /// Appends the exchange of the rows with the ids `id`, unique numbers below `items`, of the table of
    /// which this rank has its share. Returns them in the order of the ids.
    fn fetch(&self, t: &mut Tape, table: Var, id: Var, of: (usize, KnownWhen)) -> Result<Var> {
        let (items, known) = of;
        let (asking, answering, each) = match known {
            KnownWhen::Ahead => (&self.routes, &self.rows, t.spec(id).rows.capacity),
            KnownWhen::WithMails(each) => (&self.of_mails, &self.of_mails, each),
        };
        let ranks = asking.ranks().size();
        let needed = t.route(id, Owners::Interleaved(items), ranks, None)?;
        let capacity = ranks * each.min(t.spec(table).rows.capacity);
        let (asked, parts) = request(t, asking, &needed, capacity)?;
        let picked = [(table, asked).into()];
        let rows = t.exchange_rows(answering, TrafficKind::Features, parts, &picked)?;
        t.gather_rows(rows[0], needed.position)
    }
}

impl EventTables {
    /// Keeps only this rank's share of the rows of the feature tables. To be called once, before programs are
    /// recorded.
    pub(crate) fn partition_features(&mut self, store: &mut Store) -> Result<()> {
        let Some(rank_tables) = &self.rows.ranks else {
            return Err(Error::shape("features", "there are no ranks to divide them among"));
        };
        let (rank, ranks) = (rank_tables.ranks().rank(), rank_tables.ranks().size());
        self.features.rows = Some(FeatureRows::new(store, rank_tables, self.events)?);
        let filled: Vec<BufferId> = self.features.tables().filter(|&id| store.spec(id).cols > 0).collect();
        filled.into_iter().try_for_each(|id| store.keep_rows(id, rank, ranks))?;
        self.features.stamp_events(store)
    }
    /// Returns the exchange of rows of the edge features `edge`; `None` if this rank has all of them.
    pub(in crate::model) fn exchanged(&self, t: &Tape, edge: Var) -> Option<&FeatureRows> {
        self.features.rows.as_ref().filter(|_| t.spec(edge).cols > 0)
    }
    /// Returns the rows of `edge` of the unique events in the lists `events`, got from the ranks that keep
    /// them, and for each list its row indices among them.
    pub(in crate::model) fn fetched(
        &self,
        t: &mut Tape,
        (rows, known): (&FeatureRows, KnownWhen),
        edge: Var,
        events: &[Var],
    ) -> Result<(Var, Vec<Var>)> {
        let stamp = match known {
            KnownWhen::Ahead => self.features.event_stamp,
            KnownWhen::WithMails(_) => Some(rows.mail_event_stamp),
        };
        let (Some(stamp), [first, others @ ..]) = (stamp, events) else {
            return Err(Error::shape("features", "no list of events"));
        };
        let stamp = t.stored(stamp)?;
        let unique = t.unique(stamp, *first, others, 2)?;
        Ok((rows.fetch(t, edge, unique.node, (self.events, known))?, unique.psi))
    }
    /// Returns the rows of `node` of the node features `table`, got from the ranks that keep them.
    pub(in crate::model) fn fetched_nodes(
        &self,
        t: &mut Tape,
        rows: &FeatureRows,
        table: Var,
        node: Var,
    ) -> Result<Var> {
        let stamp = self.stamp(t)?;
        let unique = t.unique(stamp, node, &[], 2)?;
        let rows = rows.fetch(t, table, unique.node, (self.nodes, KnownWhen::Ahead))?;
        t.gather_rows(rows, unique.psi[0])
    }
}
