//! METIS as a baseline: it minimises the rows that travel in total, not those of the busiest rank.
use super::{
    Demand,
    simple::{capacity, fill, interval},
};
use metis::{Graph, Idx};
use tgnn::{
    error::{Error, Result},
    runtime::NONE,
};

/// Total of edge weights that METIS, which adds in 32 bits, is given at most, rounding aside.
const MAX_WEIGHT: u64 = 1 << 29;

/// Returns the owners of all nodes.
pub(super) fn search(demand: &Demand, slack: f64) -> Result<Vec<u32>> {
    let mut rank_of = cut(demand, slack)?;
    shed(&mut rank_of, demand, capacity(demand, slack));
    fill(&mut rank_of, demand.ranks());
    Ok(rank_of)
}

/// Takes nodes from ranks that have too many, the lightest first, and those that empty ranks need.
fn shed(rank_of: &mut [u32], demand: &Demand, capacity: usize) {
    let mut count = vec![0; demand.ranks()];
    rank_of.iter().filter(|rank| **rank != NONE).for_each(|&rank| count[rank as usize] += 1);
    let mut lightest: Vec<usize> = (0..rank_of.len()).filter(|&node| rank_of[node] != NONE).collect();
    lightest.sort_by_key(|&node| demand.total(node));
    let empty = count.iter().filter(|&&n| n == 0).count();
    let mut lacking = empty.saturating_sub(rank_of.len() - lightest.len());
    for node in lightest {
        let count = &mut count[rank_of[node] as usize];
        let needed = lacking > 0 && *count > 1;
        if *count > capacity || needed {
            *count -= 1;
            lacking = lacking.saturating_sub(1);
            rank_of[node] = NONE;
        }
    }
}

/// Returns the owners that METIS finds; [`NONE`] for the nodes that no rank uses.
///
/// The graph is the demand, with the ranks as its first vertices. Two constraints balance the parts: each has
/// one rank, and each has the same number of nodes. METIS does not always keep the first one. Ranks that
/// share a part get the parts without a rank.
fn cut(demand: &Demand, slack: f64) -> Result<Vec<u32>> {
    let ranks = demand.ranks();
    let used: Vec<usize> = (0..demand.nodes()).filter(|&node| !demand.of_node(node).is_empty()).collect();
    if ranks == 1 || used.is_empty() {
        return Ok(interval(demand.nodes(), ranks));
    }
    let total: u64 = used.iter().map(|&node| demand.total(node)).sum();
    let unit = total.div_ceil(MAX_WEIGHT);
    let mut edges: Vec<Vec<(Idx, Idx)>> = vec![Vec::new(); ranks + used.len()];
    for (i, &node) in used.iter().enumerate() {
        for entry in demand.of_node(node) {
            let weight = (u64::from(entry.rows) / unit).max(1) as Idx;
            edges[entry.rank as usize].push(((ranks + i) as Idx, weight));
            edges[ranks + i].push((entry.rank as Idx, weight));
        }
    }
    let count: usize = edges.iter().map(Vec::len).sum();
    if count > MAX_WEIGHT as usize {
        return Err(Error::usage("the demand is too large for METIS").remedy("count fewer batches"));
    }
    let mut starts: Vec<Idx> = vec![0];
    for list in &edges {
        starts.push(starts[starts.len() - 1] + list.len() as Idx);
    }
    let (ends, weights): (Vec<Idx>, Vec<Idx>) = edges.concat().into_iter().unzip();
    let kinds: Vec<Idx> = (0..edges.len()).flat_map(|v| if v < ranks { [1, 0] } else { [0, 1] }).collect();
    let tolerance = [1.001, (1.0 + slack).min(1e3) as f32];
    let mut part = vec![0; edges.len()];
    let failed = |e: &dyn std::fmt::Display| Error::usage(format!("METIS refuses the demand: {e}"));
    let graph = Graph::new(2, ranks as Idx, &starts, &ends).map_err(|e| failed(&e))?;
    let graph = graph.set_vwgt(&kinds).set_adjwgt(&weights).set_ubvec(&tolerance);
    graph.part_kway(&mut part).map_err(|e| failed(&e))?;

    let mut rank_of_part = vec![NONE; ranks];
    let (mut late, mut free) = (Vec::new(), Vec::new());
    for (rank, &p) in (0..).zip(&part[..ranks]) {
        let place = &mut rank_of_part[p as usize];
        if *place == NONE { *place = rank } else { late.push(rank) }
    }
    free.extend((0..ranks).filter(|&p| rank_of_part[p] == NONE));
    free.into_iter().zip(late).for_each(|(p, rank)| rank_of_part[p] = rank);
    let mut rank_of = vec![NONE; demand.nodes()];
    for (i, &node) in used.iter().enumerate() {
        rank_of[node] = rank_of_part[part[ranks + i] as usize];
    }
    Ok(rank_of)
}
