//! What the definition and the fast host path read.
use super::{
    super::{epilogue::DropRate, time_encode::define_phi, *},
    TemporalAttention, input,
};
use crate::runtime::{parts, philox::Key};
use std::ops::Range;

/// The inputs of the op and of its gradient, on the host.
pub(super) struct Operands<'a, R> {
    pub(super) io: &'a Io<'a>,
    pub(super) query: &'a [R],
    pub(super) starts: &'a [u32],
    pub(super) order: &'a [u32],
    pub(super) own: &'a [u32],
    pub(super) queries: usize,
    /// Whether `starts` divides all of `order`. If not, no root is processed.
    pub(super) grouped: bool,
    pub(super) h: &'a [R],
    pub(super) row: &'a [u32],
    pub(super) event: &'a [u32],
    pub(super) dt: &'a [R],
    pub(super) count: &'a [u32],
    pub(super) edge: &'a [R],
    pub(super) w: &'a [R],
    pub(super) b: &'a [R],
    pub(super) heads: usize,
    pub(super) k: usize,
    pub(super) d: usize,
    pub(super) f: usize,
    pub(super) scale: f64,
    pub(super) drop: Option<(DropRate, Key)>,
}

impl<'a, R: Real> Operands<'a, R> {
    /// Reads the inputs; reports a fault if `starts` does not divide all of `order`.
    pub(super) fn new(op: &TemporalAttention, io: &'a Io<'a>) -> Self {
        let (starts, order) = (io.input::<u32>(input::STARTS), io.input::<u32>(input::ORDER));
        let queries = io.rows(input::QUERY);
        let ends = [starts[0], starts[queries]].map(|end| end as usize);
        let grouped = ends == [0, order.len()] && starts[..=queries].is_sorted();
        if !grouped {
            io.fault(queries, Fault::out_of_range(ends[1]));
        }
        Operands {
            io,
            query: io.input(input::QUERY),
            starts,
            order,
            own: io.input(input::OWN),
            queries,
            grouped,
            h: io.input(input::H),
            row: io.input(input::ROW),
            event: io.input(input::EVENT),
            dt: io.input(input::DT),
            count: io.input(input::COUNT),
            edge: io.input(input::EDGE),
            w: io.input(input::W),
            b: io.input(input::B),
            heads: op.heads,
            k: io.cols(input::ROW),
            d: io.cols(input::H),
            f: io.cols(input::EDGE),
            scale: 1.0 / (op.head_width as f64).sqrt(),
            drop: op
                .drop
                .map(|rate| (rate, rate.key(io.input(input::NOW), op.per_event(io.spec(input::ROW))))),
        }
    }
    /// Returns the width c of a raw row.
    pub(super) fn width(&self) -> usize {
        self.d + self.f + self.w.len()
    }
    /// Returns the root at index `at` of `order`, and its slots in use. Reports a fault for a query that is
    /// not there, for a root outside of `count`, which has no slots in use, and for a count above `k`, which
    /// is cut to `k`.
    pub(super) fn root(&self, at: usize) -> (usize, usize) {
        if self.own[at] as usize >= self.queries {
            self.io.fault(at, Fault::OutOfRange(self.own[at]));
        }
        let i = self.order[at] as usize;
        match self.count.get(i) {
            None => drop(self.io.row_of(at, self.order[at], self.count.len())),
            Some(&n) if n as usize > self.k => self.io.fault(i, Fault::AboveMost(n)),
            Some(_) => {}
        }
        (i, self.used(i))
    }
    /// Returns the number of slots in use of root `i`.
    pub(super) fn used(&self, i: usize) -> usize {
        self.count.get(i).map_or(0, |&n| (n as usize).min(self.k))
    }
    /// Returns the row of h of `slot`; `None` if it is outside of h.
    pub(super) fn memory(&self, slot: usize) -> Option<&'a [R]> {
        self.h.get(self.row[slot] as usize * self.d..)?.get(..self.d)
    }
    /// Returns the edge features of `slot`; `None` if its event is outside of the table.
    pub(super) fn features(&self, slot: usize) -> Option<&'a [R]> {
        self.edge.get(self.event[slot] as usize * self.f..)?.get(..self.f)
    }
    /// Reports a fault if the row of h or the edge features of `slot` of root `i` are missing.
    pub(super) fn check(&self, i: usize, slot: usize) {
        if self.memory(slot).is_none() {
            self.io.row_of(i, self.row[slot], self.io.rows(input::H));
        }
        if self.features(slot).is_none() {
            self.io.row_of(i, self.event[slot], self.io.rows(input::EDGE));
        }
    }
    /// Returns element `i` of the raw row of `slot`, by its definition; 0 if the row is missing.
    pub(super) fn z(&self, slot: usize, i: usize) -> R {
        if i < self.d {
            self.memory(slot).map_or(R::ZERO, |h| h[i])
        } else if i < self.d + self.f {
            self.features(slot).map_or(R::ZERO, |e| e[i - self.d])
        } else {
            define_phi(self.dt[slot], self.w, self.b, i - self.d - self.f)
        }
    }
    /// Returns the dropout factor of the weight of head `h` and neighbour `j` of root `i`.
    pub(super) fn drop_factor(&self, i: usize, h: usize, j: usize) -> R {
        R::from_f64(self.drop.map_or(1.0, |(rate, key)| rate.factor(key, (i * self.heads + h) * self.k + j)))
    }
    /// Whether the roots at indices `a` and `b` of `order` have the same neighbours; their gaps may differ.
    pub(super) fn same_neighbors(&self, a: usize, b: usize) -> bool {
        let (i, j) = (self.order[a] as usize, self.order[b] as usize);
        let n = self.used(i);
        let slots = |i: usize| i * self.k..i * self.k + n;
        n == self.used(j)
            && self.event.get(slots(i)) == self.event.get(slots(j))
            && self.row.get(slots(i)) == self.row.get(slots(j))
    }
    /// Returns query `q` of head `h`.
    pub(super) fn query_of(&self, q: usize, h: usize) -> &'a [R] {
        let c = self.width();
        &self.query[(q * self.heads + h) * c..][..c]
    }
    /// Returns the query, the index in `order`, the root and its slots in use for every root that has
    /// neighbours. Checks every slot in use.
    pub(super) fn roots(&self) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        (0..if self.grouped { self.queries } else { 0 }).flat_map(move |q| {
            (self.starts[q] as usize..self.starts[q + 1] as usize).map(move |at| {
                let (i, n) = self.root(at);
                (0..n).for_each(|j| self.check(i, i * self.k + j));
                (q, at, i, n)
            })
        })
    }
    /// Divides the queries into [`parts::PARTS`] ranges with about the same number of roots each. Returns
    /// each range and the range of its roots in `order`.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let starts = &self.starts[..=self.queries];
        let cut = move |part: usize| match part {
            0 => 0,
            parts::PARTS => self.queries,
            _ => starts
                .partition_point(|&s| (s as usize) < part * self.order.len() / parts::PARTS)
                .min(self.queries),
        };
        (0..parts::PARTS).map(move |part| {
            let (from, until) = (cut(part), cut(part + 1));
            (from..until, starts[from] as usize..starts[until] as usize)
        })
    }
}
