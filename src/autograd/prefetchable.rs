//! Finds the nodes of a step that may run before the previous step has finished.
use crate::{
    ops::{Node, OpKind},
    runtime::{Spec, Var},
};
use std::collections::HashSet;

/// Returns, for each node of a step, whether it can be prefetched: whether it only prepares the step and
/// depends on nothing that a step computes. Such nodes move the cursor, draw negatives, sample neighbours,
/// find unique nodes and gather features. They may run steps ahead of the other nodes, on separate copies of
/// their values.
///
/// The result follows from the declared reads and writes alone. A node cannot be prefetched if
/// - it computes (kind `Nn`),
/// - it reads what a node that cannot be prefetched computes or writes, or
/// - it writes what a node that cannot be prefetched reads or writes.
///
/// If every node could be prefetched, none is: there would be nothing to overlap with.
pub(super) fn prefetchable(nodes: &[&Node], specs: &[Spec]) -> Vec<bool> {
    let reads = |n: &Node| -> Vec<Var> {
        let counts = n.ins.iter().chain(&n.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        n.ins.iter().copied().chain(counts.filter(|c| !n.outs.contains(c))).collect()
    };
    let writes = |n: &Node| -> Vec<Var> { n.writes.iter().map(|&w| n.ins[w]).collect() };
    let mut prefetchable: Vec<bool> = nodes.iter().map(|n| n.op.kind() != OpKind::Nn).collect();
    loop {
        // What the nodes that cannot be prefetched change and read.
        let (mut changed, mut read) = (HashSet::new(), HashSet::new());
        for (n, _) in nodes.iter().zip(&prefetchable).filter(|(_, p)| !**p) {
            changed.extend(n.outs.iter().copied().chain(writes(n)));
            read.extend(reads(n));
        }
        let mut excluded_another = false;
        for (n, prefetchable) in nodes.iter().zip(&mut prefetchable).filter(|(_, p)| **p) {
            let excluded =
                reads(n).iter().any(|v| changed.contains(v)) || writes(n).iter().any(|v| read.contains(v));
            (*prefetchable, excluded_another) = (!excluded, excluded_another || excluded);
        }
        if !excluded_another {
            break;
        }
    }
    if prefetchable.iter().all(|&p| p) {
        prefetchable.fill(false);
    }
    prefetchable
}

#[cfg(test)]
mod tests {
    use super::prefetchable;
    use crate::{
        ops::{Node, Tape, epilogue::Activation},
        runtime::*,
    };

    #[test]
    fn a_gather_is_prefetchable_unless_the_step_changes_or_computes_what_it_reads() {
        let mut store = Store::new(Precision::F32);
        let table = |store: &mut Store, name: &str| store.zeros(name, Spec::real(Rows::fixed(4), 2)).unwrap();
        let [features, memory] = ["features", "memory"].map(|name| table(&mut store, name));
        let index = store.values("index", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2]).unwrap();
        let square = store.zeros("weight", Spec::real(Rows::fixed(2), 2)).unwrap();
        let mut t = Tape::new(&store);
        let [features, memory, index, square] = t.stored_all([features, memory, index, square]).unwrap();
        let feature_rows = t.gather_rows(features, index).unwrap();
        let memory_rows = t.gather_rows(memory, index).unwrap();
        let computed = t.linear(feature_rows, square, None, Some(memory_rows), Activation::Identity).unwrap();
        t.gather_rows(computed, index).unwrap();
        t.write_rows(memory, index, computed).unwrap();
        let nodes: Vec<&Node> = t.nodes().iter().collect();
        let specs: Vec<Spec> = t.vars().map(|v| t.spec(v)).collect();
        assert_eq!(prefetchable(&nodes, &specs), [true, false, false, false, false]);
        assert_eq!(prefetchable(&nodes[..2], &specs), [false, false], "nothing to overlap with");
    }
}
