//! The nodes of a stream, of which some are new.
use std::collections::HashSet;
use tgnn::error::Result;
use tgnn_data::{
    NodeId, NodeNames,
    format::{EventPart, EventRow, LaterEvent},
};
use tgnn_training::task::Predictor;

/// The nodes of a stream.
pub(super) struct Nodes {
    pub names: NodeNames,
    /// Number of nodes of the data set.
    known: usize,
    /// Whether only some nodes are destinations.
    separate: bool,
    /// The nodes that may be the best destination: those of the data set, and those that came later.
    pub destinations: Vec<u32>,
    /// Those that came later.
    new: HashSet<u32>,
    /// How many new nodes stay when the pending lines are scored, if the last one asks for nodes without an
    /// event.
    pub kept: Option<usize>,
}

impl Nodes {
    pub fn of(predictor: &Predictor) -> Self {
        let names = predictor.names();
        let known = predictor.destinations();
        let mut nodes = Nodes {
            known: known.end as usize,
            separate: known.start > 0,
            destinations: known.collect(),
            new: HashSet::new(),
            kept: None,
            names,
        };
        for i in 0..nodes.names.added().len() {
            nodes.add(nodes.names.number_of_added(i), nodes.names.added()[i].1.into());
        }
        nodes
    }
    /// Returns the numbers of the source of a line, of its destination if it has one, and of the candidates
    /// that it lists. Ends of an event may be new. Others that had no event yet have a number only until the
    /// line is scored: a question changes nothing, nor does a line that is refused.
    pub fn of_line(
        &mut self,
        line: &LaterEvent,
        row: &EventRow<'_>,
    ) -> Result<(u32, Option<u32>, Option<Vec<u32>>)> {
        let before = self.names.added().len();
        let found = self.asked(line, row);
        match (&found, &line.dst) {
            (Err(_), _) => {
                self.names.forget(before);
                self.kept = None;
            }
            (Ok(_), Some(dst)) => {
                for (side, id) in [&line.src, dst].into_iter().enumerate() {
                    let node = self.names.number(id, side == 1);
                    node.into_iter().for_each(|node| self.add(node, side));
                }
            }
            (Ok(_), None) => {}
        }
        found
    }
    /// As [`of_line`](Self::of_line), without making the ends of an event known.
    fn asked(
        &mut self,
        line: &LaterEvent,
        row: &EventRow<'_>,
    ) -> Result<(u32, Option<u32>, Option<Vec<u32>>)> {
        let before = self.names.added().len();
        let src = self.node(&line.src, EventPart::End(0), row)?;
        let dst = line.dst.as_ref().map(|dst| self.node(dst, EventPart::End(1), row)).transpose()?;
        let kept = if dst.is_some() { self.names.added().len() } else { before };
        let listed = line.candidates.as_ref().map(|ids| {
            ids.iter().map(|id| self.node(id, EventPart::Candidates, row)).collect::<Result<Vec<u32>>>()
        });
        let listed = listed.transpose()?;
        self.kept = (self.names.added().len() > kept).then_some(kept);
        Ok((src, dst, listed))
    }
    /// Forgets the nodes that were only asked for.
    pub fn forget_asked(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.names.forget(kept);
        }
    }
    /// Returns the number of a node. One that is new gets the next free number.
    fn node(&mut self, id: &NodeId, part: EventPart, row: &EventRow<'_>) -> Result<u32> {
        if let (NodeId::Text(text), true) = (id, self.names.are_numbers()) {
            let e = row.error(part, format!("`{text}` is not a node"));
            return Err(e.remedy("nodes are whole numbers from 0"));
        }
        self.names.asked(id, !matches!(part, EventPart::End(0))).ok_or_else(|| {
            let nodes = self.names.capacity();
            let what = format!("node {id} does not fit: the predictor holds {nodes} nodes");
            let e = row.error(part, what);
            match id {
                // Such ids are the numbers of nodes.
                NodeId::Number(n) if self.names.are_numbers() => {
                    e.remedy(format!("allow it with --nodes {} or more", n.saturating_add(1)))
                }
                _ => e.remedy("allow more with --nodes"),
            }
        })
    }
    /// Adds a node that events may lead to, if it is new.
    fn add(&mut self, node: u32, side: usize) {
        let leads = side == 1 || !self.separate;
        if leads && node as usize >= self.known && self.new.insert(node) {
            self.destinations.push(node);
        }
    }
    /// Returns the original id of a node.
    pub fn id(&self, predictor: &Predictor, node: u32) -> NodeId {
        let new = || self.names.id_of_added(node).cloned();
        predictor.id(node).or_else(new).unwrap_or(NodeId::Number(node.into()))
    }
}
