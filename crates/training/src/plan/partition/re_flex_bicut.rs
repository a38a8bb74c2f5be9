//! Re-FlexBiCut: a partition whose busiest rank exchanges few rows. Source: Sven, algorithm 3.
//!
//! With rank j as the source of a cut and the other ranks as its sink, a node with w(j) rows of rank j and W
//! rows in total adds W - w(j) to the cut on the source's side, and w(j) on the sink's side. The graph has no
//! edges between nodes, so nodes do not depend on each other: the least cut gives rank j exactly the nodes
//! with w(j) > W / 2, and no flow has to be computed. The N cuts leave nodes over. The balance cost of rank j
//! is therefore a constant, its own demand, plus the sum of W - 2 w(j) over the nodes that it owns. To
//! minimise the maximum of these sums is to schedule jobs on unrelated machines, which is NP-hard.
//!
//! The paper's algorithm calls an approximate bisection for every rank, in O(N^2 log^3 N). Here:
//!
//! 1. *Cut*: each node goes to the rank that uses it most, if that has room. This minimises the sum of all
//!    cuts.
//! 2. *Reassign*: passes over all nodes, the heaviest first, move a node if that lowers the sum of the ranks'
//!    costs to the power q. From pass to pass, q doubles: at first the total counts, in the end the maximum.
//!    The first step is the pass with q = 1.
//! 3. *Settle*: while it helps, the busiest rank gives a node away or exchanges one.
//!
//! The third step begins with range, interval and round robin by weight, too, and the best result is taken,
//! so it never costs more than range or interval. A pass takes time linear in the demand's entries, plus
//! nodes times ranks.
use super::{
    Demand,
    simple::{capacity, fill, interval, range},
};
use std::cmp::Reverse;
use tgnn::runtime::{NONE, philox::Key};

/// Number of passes of the second step; the power of the last is 2 to this.
const PASSES: u32 = 10;
/// Number of nodes that the third step may visit: about a second.
const VISITS: usize = 30_000_000;
/// Above this number of nodes, the third step begins only with the start that costs least: the others would
/// run out of visits.
const MANY: usize = 100_000;
/// Number of nodes on either side that are tried for an exchange between two ranks.
const EXCHANGED: usize = 32;
/// Up to this number of nodes, random starts are tried, too: where single nodes decide, a search by single
/// moves often gets stuck.
const FEW: usize = 64;
/// Number of random starts.
const RANDOM_STARTS: u32 = 48;

/// Returns the owners of all nodes.
pub(super) fn search(demand: &Demand, slack: f64) -> Vec<u32> {
    let search = Search::new(demand, slack);
    let (n, ranks) = (demand.nodes(), demand.ranks());
    let mut starts = vec![search.cut()];
    for start in [range(n, ranks), interval(n, ranks)] {
        starts.push(search.owned_by(|i| start[search.nodes[i] as usize]));
    }
    starts.push(search.owned_by(|i| (i % ranks) as u32));
    if search.nodes.len() <= FEW {
        starts.extend((0..RANDOM_STARTS).filter_map(|seed| search.random(seed)));
    }
    starts.sort_by_key(Owners::worth);
    if search.nodes.len() > MANY {
        starts.truncate(1);
    }
    starts.iter_mut().for_each(|start| search.settle(start));
    let best = starts.into_iter().min_by_key(Owners::worth);
    best.map_or_else(Vec::new, |best| search.of_all_nodes(&best))
}

/// The problem, and what the search needs to know of it.
struct Search<'a> {
    demand: &'a Demand,
    /// The nodes that any rank uses, the heaviest first.
    nodes: Vec<u32>,
    /// The total of each of them.
    totals: Vec<i64>,
    /// The cost of each rank if it owned nothing: its own demand.
    own: Vec<i64>,
    /// Maximum number of nodes of a rank.
    capacity: usize,
    /// How many ranks may be left without a node of `nodes`: other nodes can fill them.
    may_lack: usize,
}

/// The owners of the nodes of a search, with what follows from them.
struct Owners {
    rank_of: Vec<u32>,
    cost: Vec<i64>,
    count: Vec<usize>,
}

impl Owners {
    fn most(&self) -> i64 {
        self.cost.iter().copied().max().unwrap_or(0)
    }
    /// Returns what makes an assignment better than another: its cost, then the rows that travel in total.
    fn worth(&self) -> (i64, i64) {
        (self.most(), self.cost.iter().sum())
    }
    fn members(&self, rank: usize) -> impl Iterator<Item = usize> {
        self.rank_of.iter().enumerate().filter(move |&(_, &r)| r as usize == rank).map(|(i, _)| i)
    }
}

/// A change of owners that lowers the cost of the busiest rank.
struct Change {
    /// The new owner of each node.
    moves: Vec<(usize, usize)>,
    /// The greater of the two ranks' costs after the change, then the rows that it adds in total.
    key: (i64, i64),
}

impl<'a> Search<'a> {
    fn new(demand: &'a Demand, slack: f64) -> Self {
        let (all, ranks) = (demand.nodes(), demand.ranks());
        let mut own = vec![0; ranks];
        for entry in (0..all).flat_map(|node| demand.of_node(node)) {
            own[entry.rank as usize] += i64::from(entry.rows);
        }
        let mut weighted: Vec<(Reverse<u64>, u32)> =
            (0..all).map(|node| (Reverse(demand.total(node)), node as u32)).filter(|w| w.0.0 > 0).collect();
        weighted.sort_unstable();
        let idle = all - weighted.len();
        Search {
            demand,
            totals: weighted.iter().map(|w| w.0.0 as i64).collect(),
            nodes: weighted.into_iter().map(|w| w.1).collect(),
            own,
            capacity: capacity(demand, slack),
            may_lack: if all < ranks { ranks } else { idle },
        }
    }
    /// Returns what owning a node adds to the cost of a rank that uses `rows` rows of it.
    fn adds(&self, i: usize, rows: u64) -> i64 {
        self.totals[i] - 2 * rows as i64
    }
    /// Returns what owning a node adds to the cost of a rank.
    fn adds_to(&self, i: usize, rank: usize) -> i64 {
        self.adds(i, self.demand.rows(self.nodes[i] as usize, rank))
    }
    /// Returns the ranks with room that use a node, and what owning it adds to their costs.
    fn users(&self, i: usize, owners: &Owners) -> impl Iterator<Item = (usize, i64)> {
        let entries = self.demand.of_node(self.nodes[i] as usize).iter();
        let uses = entries.map(move |e| (e.rank as usize, self.adds(i, e.rows.into())));
        uses.filter(|&(rank, _)| owners.count[rank] < self.capacity)
    }
    /// Returns the rank with room that has the least cost, `but` excepted.
    fn cheapest(&self, owners: &Owners, but: usize) -> Option<usize> {
        let open = |&rank: &usize| rank != but && owners.count[rank] < self.capacity;
        (0..owners.cost.len()).filter(open).min_by_key(|&rank| owners.cost[rank])
    }
    /// Whether a rank may give a node away.
    fn may_give(&self, owners: &Owners, rank: usize) -> bool {
        let lacking = || owners.count.iter().filter(|&&n| n == 0).count();
        owners.count[rank] > 1 || lacking() < self.may_lack
    }
    /// Returns the state in which `rank_of(i)` owns node i.
    fn owned_by(&self, rank_of: impl Fn(usize) -> u32) -> Owners {
        let rank_of: Vec<u32> = (0..self.nodes.len()).map(rank_of).collect();
        let (mut cost, mut count) = (self.own.clone(), vec![0; self.own.len()]);
        for (i, &rank) in rank_of.iter().enumerate() {
            cost[rank as usize] += self.adds_to(i, rank as usize);
            count[rank as usize] += 1;
        }
        Owners { rank_of, cost, count }
    }
    fn give(&self, owners: &mut Owners, i: usize, to: usize) {
        let from = std::mem::replace(&mut owners.rank_of[i], to as u32) as usize;
        owners.cost[from] -= self.adds_to(i, from);
        owners.cost[to] += self.adds_to(i, to);
        owners.count[from] -= 1;
        owners.count[to] += 1;
    }
    /// Steps 1 and 2: cuts, then reassigns.
    fn cut(&self) -> Owners {
        // Round robin, so that every rank has a node; the others are then given away one by one.
        let ranks = self.own.len();
        let mut owners = self.owned_by(|i| (i % ranks) as u32);
        for power in 0..=PASSES {
            self.reassign(&mut owners, power);
        }
        owners
    }
    /// Moves each node if that lowers the sum of the costs to the power 2^`doublings`.
    fn reassign(&self, owners: &mut Owners, doublings: u32) {
        let most = owners.most().max(1) as f64;
        let level = |cost: i64| (0..doublings).fold(cost as f64 / most, |x, _| x * x);
        let mut levels: Vec<f64> = owners.cost.iter().map(|&cost| level(cost)).collect();
        for i in 0..self.nodes.len() {
            let from = owners.rank_of[i] as usize;
            if !self.may_give(owners, from) {
                continue;
            }
            let rest = level(owners.cost[from] - self.adds_to(i, from));
            let lowers = levels[from] - rest;
            // A rank that does not use the node is worth trying only if its cost is least.
            let cheapest = self.cheapest(owners, from).map(|rank| (rank, self.totals[i]));
            let tried = self.users(i, owners).filter(|&(rank, _)| rank != from).chain(cheapest);
            let raises = tried.map(|(rank, adds)| (level(owners.cost[rank] + adds) - levels[rank], rank));
            let Some((raises, to)) = raises.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            if raises < lowers {
                self.give(owners, i, to);
                levels[from] = rest;
                levels[to] = level(owners.cost[to]);
            }
        }
    }
    /// Step 3: lowers the cost of the busiest rank, until no move and no exchange does.
    fn settle(&self, owners: &mut Owners) {
        let mut visits = 0;
        while visits < VISITS {
            let Some(worst) = (0..self.own.len()).max_by_key(|&r| (owners.cost[r], Reverse(r))) else {
                return;
            };
            visits += self.nodes.len();
            let change = self.best_move(owners, worst).or_else(|| self.best_exchange(owners, worst));
            let Some(change) = change else { return };
            change.moves.into_iter().for_each(|(i, to)| self.give(owners, i, to));
        }
    }
    /// Returns the best way to give away one node of the busiest rank.
    fn best_move(&self, owners: &Owners, worst: usize) -> Option<Change> {
        if !self.may_give(owners, worst) {
            return None;
        }
        let (most, cheapest) = (owners.cost[worst], self.cheapest(owners, worst));
        let mut best: Option<Change> = None;
        for i in owners.members(worst) {
            let saves = self.adds_to(i, worst);
            let cheapest = cheapest.map(|rank| (rank, self.totals[i]));
            for (rank, adds) in self.users(i, owners).filter(|&(rank, _)| rank != worst).chain(cheapest) {
                let key = ((most - saves).max(owners.cost[rank] + adds), adds - saves);
                if key.0 < most && best.as_ref().is_none_or(|b| key < b.key) {
                    best = Some(Change { moves: vec![(i, rank)], key });
                }
            }
        }
        best
    }
    /// Returns the best exchange of a node of the busiest rank for a node of another one. It tries the nodes
    /// that weigh most there, and those that would weigh least.
    fn best_exchange(&self, owners: &Owners, worst: usize) -> Option<Change> {
        let most = owners.cost[worst];
        let mut outs: Vec<(i64, usize)> =
            owners.members(worst).map(|i| (-self.adds_to(i, worst), i)).collect();
        let mut ins: Vec<(u32, i64, usize)> = Vec::new();
        for (i, &rank) in owners.rank_of.iter().enumerate().filter(|(_, r)| **r as usize != worst) {
            ins.push((rank, self.adds_to(i, worst), i));
        }
        outs.sort_unstable();
        outs.truncate(EXCHANGED);
        ins.sort_unstable();
        let mut best: Option<Change> = None;
        for ins in ins.chunk_by(|a, b| a.0 == b.0) {
            for &(rank, adds, other) in ins.iter().take(EXCHANGED) {
                let rank = rank as usize;
                let saves_there = self.adds_to(other, rank);
                for &(saves, i) in &outs {
                    let adds_there = self.adds_to(i, rank);
                    let costs = (most + saves + adds, owners.cost[rank] - saves_there + adds_there);
                    let key = (costs.0.max(costs.1), adds + saves + adds_there - saves_there);
                    if key.0 < most && best.as_ref().is_none_or(|b| key < b.key) {
                        best = Some(Change { moves: vec![(i, rank), (other, worst)], key });
                    }
                }
            }
        }
        best
    }
    /// Returns random owners; `None` if they break a limit.
    fn random(&self, seed: u32) -> Option<Owners> {
        let key = Key::new(u64::from(seed), 0, [0, 0]);
        let owners = self.owned_by(|i| key.below(i as u64, self.own.len() as u32));
        let lacking = owners.count.iter().filter(|&&n| n == 0).count();
        (lacking <= self.may_lack && owners.count.iter().all(|&n| n <= self.capacity)).then_some(owners)
    }
    /// Returns the owners of all nodes. The nodes that no rank uses go to the ranks with the fewest nodes.
    fn of_all_nodes(&self, owners: &Owners) -> Vec<u32> {
        let mut rank_of = vec![NONE; self.demand.nodes()];
        for (&node, &rank) in self.nodes.iter().zip(&owners.rank_of) {
            rank_of[node as usize] = rank;
        }
        fill(&mut rank_of, self.own.len());
        rank_of
    }
}
