//! Sends rows of tables to other ranks: to each its part (all-to-all), or the same rows to all (all-gather)
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `sequence` | `[1]` u32, state | sequence number of the [`Link`] |
//! | `like` | `[<= r, ...]` | any value with one row for each received row |
//! | `recv_counts` | `[ranks]` u32 | number of rows from each rank |
//! | `send_counts` | `[ranks]` u32, not if all ranks get the same rows | number of rows for each rank |
//! | `table` | `[v e, d]` of any type, any number of tables | rows; e of them together are one *item*, mostly e = 1 |
//! | `index` | `[<= m, c]` u32 below `v`, one for each table | for each row to send, c items of the table; mostly c = 1; those for rank 0 first |
//! | out | `[<= r c e, d]` as `table`, f32 if it is bf16 or f16; one for each table | received rows, those from rank 0 first |
//!
//! Without indices, all rows of the tables are sent, in order, and the gradients of the received rows travel
//! back. No gradient flows into rows that are looked up by an index: they are state. Rows of all tables
//! travel in one message; those stored in 16 bits travel so.
//! The counts are known on both sides, from [`exchange_ids`], so no rank waits to learn them. Rows for the
//! rank itself are copied. An index outside its table is a fault; zeros are sent for it.
//! Source: Sven, section 3.1: dispatch and aggregation.
//!
//! [`exchange_ids`]: super::exchange_ids
use super::{
    window::{REGION_ALIGN, UNIT, WindowHead, WindowParts, WindowRows},
    *,
};
use crate::runtime::{
    comm::{Channel, Comm, Ranks, TrafficKind},
    cuda::{Window, WindowSize, abi},
};
use std::sync::{Mutex, PoisonError};

/// See the [module](self).
#[derive(Debug)]
pub struct ExchangeRows {
    link: Link,
    kind: TrafficKind,
    /// Whether each rank gets its own part; else all ranks get the same rows.
    to_each: bool,
    /// For each table that has an index, the rows of an item.
    each: Vec<usize>,
    /// What is sent and what arrives, reused from run to run.
    buffers: Mutex<[Vec<u8>; 2]>,
}

/// The rows of a table that are sent.
#[derive(Clone, Copy, Debug)]
pub struct RowsToSend {
    /// `[v e, d]`: the table.
    pub table: Var,
    /// `[<= m, c]` u32: items to send.
    pub index: Var,
    /// Number of rows of an item, e.
    pub each: usize,
}

impl From<(Var, Var)> for RowsToSend {
    fn from((table, index): (Var, Var)) -> Self {
        RowsToSend { table, index, each: 1 }
    }
}

/// Where rows go, and how many arrive.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// `[<= r, ...]`: any value with one row for each received row.
    pub like: Var,
    /// `[ranks]` u32: number of rows from each rank.
    pub recv_counts: Var,
    /// `[ranks]` u32: number of rows for each rank; `None` if all ranks get the same rows.
    pub send_counts: Option<Var>,
}

/// Positions of the inputs.
mod input {
    pub(in crate::ops) const LIKE: usize = 1;
    pub(in crate::ops) const RECV_COUNTS: usize = 2;
    pub(in crate::ops) const SEND_COUNTS: usize = 3;
}

impl Tape {
    /// Appends [`ExchangeRows`] for the picked rows of each table; `kind` says as what their
    /// bytes are counted. Returns the received rows of each table.
    ///
    /// # Errors
    /// `Shape` if types or rows differ. A run fails with `Comm` if counts do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{
    ///     autograd::Program,
    ///     ops::{exchange_rows::Parts, *},
    ///     runtime::{*, comm::{Channel, Ranks, TrafficKind}},
    /// };
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let link = Link::new(&mut store, &Ranks::alone(), Channel::Rows)?;
    /// let table = tape.input(&mut store, "table", Spec::real(Rows::fixed(3), 1), &[5.0f32, 6.0, 7.0])?;
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(2), 1), &[2u32, 0])?;
    /// let counts = tape.input(&mut store, "counts", Spec::ids(Rows::fixed(1), 1), &[2u32])?;
    /// let parts = Parts { like: index, recv_counts: counts, send_counts: Some(counts) };
    /// let picked = [(table, index).into()];
    /// let rows = tape.exchange_rows(&link, TrafficKind::Dispatch, parts, &picked)?;
    /// let mut program = Program::new(&tape, &rows, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(rows[0], &store)?, [7.0, 5.0]); // from a single rank, itself
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn exchange_rows(
        &mut self,
        link: &Link,
        kind: TrafficKind,
        parts: Parts,
        tables: &[RowsToSend],
    ) -> Result<Vec<Var>> {
        let rows = tables.iter().flat_map(|picked| [picked.table, picked.index]);
        let each = tables.iter().map(|picked| picked.each).collect();
        let sequence = link.sequence(self)?;
        self.push_exchange(ExchangeRows::new(link, kind, parts, each), sequence, parts, rows)
    }
    /// Appends [`ExchangeRows`] for all rows of the tables, in order.
    ///
    /// # Errors
    /// As [`exchange_rows`](Self::exchange_rows).
    ///
    /// # Examples
    /// As [`exchange_rows`](Self::exchange_rows), without indices.
    pub fn exchange_all_rows(
        &mut self,
        link: &Link,
        kind: TrafficKind,
        parts: Parts,
        tables: &[Var],
    ) -> Result<Vec<Var>> {
        let sequence = link.sequence(self)?;
        let op = ExchangeRows::new(link, kind, parts, Vec::new());
        self.push_exchange(op, sequence, parts, tables.iter().copied())
    }
    fn push_exchange(
        &mut self,
        op: ExchangeRows,
        sequence: Var,
        parts: Parts,
        tables: impl Iterator<Item = Var>,
    ) -> Result<Vec<Var>> {
        let Parts { like, recv_counts, send_counts } = parts;
        let first = [sequence, like, recv_counts].into_iter().chain(send_counts);
        self.push(op, &first.chain(tables).collect::<Vec<_>>())
    }
}

impl ExchangeRows {
    fn new(link: &Link, kind: TrafficKind, parts: Parts, each: Vec<usize>) -> Self {
        ExchangeRows {
            link: link.clone(),
            kind,
            to_each: parts.send_counts.is_some(),
            each,
            buffers: Mutex::default(),
        }
    }
    /// Returns the position of the first table.
    fn first_table(&self) -> usize {
        input::SEND_COUNTS + usize::from(self.to_each)
    }
    /// Whether there are indices.
    fn indexed(&self) -> bool {
        !self.each.is_empty()
    }
    /// Returns the positions of the tables, each with that of its index if there are indices.
    fn tables(&self, inputs: usize) -> impl Iterator<Item = (usize, Option<usize>)> + use<> {
        let (first, indexed) = (self.first_table(), self.indexed());
        let each = 1 + usize::from(indexed);
        (first..inputs).step_by(each).map(move |table| (table, indexed.then_some(table + 1)))
    }
    /// Returns the rows of an item of the table at position `table`.
    fn rows_of_item(&self, table: usize) -> usize {
        self.each.get((table - self.first_table()) / 2).copied().unwrap_or(1)
    }
    /// Returns the number of rows that this rank sends to each rank, or to all.
    fn sent_rows(&self, io: &Io<'_>) -> Vec<usize> {
        match self.to_each {
            true => io.input::<u32>(input::SEND_COUNTS).iter().map(|&n| n as usize).collect(),
            false => {
                let rows =
                    self.tables(io.inputs()).next().map(|(table, index)| io.rows(index.unwrap_or(table)));
                rows.into_iter().collect()
            }
        }
    }
    /// Returns the bytes of a table that are sent for each row.
    fn width(&self, io: &Io<'_>, (table, index): (usize, Option<usize>)) -> usize {
        io.row_bytes(&io.spec(table)) * self.rows_of_item(table) * index.map_or(1, |index| io.cols(index))
    }
    /// Packs the rows to send: part by part, and in a part table by table.
    fn pack(&self, io: &Io<'_>, parts: &[usize], packed: &mut Vec<u8>) {
        packed.clear();
        let mut begin = 0;
        for &rows in parts {
            for (at, index) in self.tables(io.inputs()) {
                let each = self.rows_of_item(at);
                let (table, width) = (io.input_bytes(at), io.row_bytes(&io.spec(at)) * each);
                let Some(index) = index else {
                    packed.extend_from_slice(&table[begin * width..][..rows * width]);
                    continue;
                };
                let (index, c) = (io.input::<u32>(index), io.cols(index));
                for (i, &row) in index[begin * c..(begin + rows) * c].iter().enumerate() {
                    match io.row_of(begin + i / c.max(1), row, io.rows(at) / each) {
                        Some(row) => packed.extend_from_slice(&table[row * width..][..width]),
                        None => packed.resize(packed.len() + width, 0),
                    }
                }
            }
            begin += rows;
        }
    }
    /// Unpacks what each rank has sent into the outputs.
    fn unpack<R: Real>(&self, io: &Io<'_>, received: &[u8], parts: &[usize]) {
        let mut at = 0;
        for (k, table) in self.tables(io.inputs()).enumerate() {
            let (spec, all, width) = (io.spec(table.0), self.row_bytes(io), self.width(io, table));
            // Where the table's rows begin in the parts.
            let (mut begin, mut pieces) = (0, Vec::with_capacity(parts.len()));
            for &rows in parts {
                pieces.push(&received[begin + at * rows..][..rows * width]);
                begin += rows * all;
            }
            match spec.dtype {
                DType::Bf16 => widen::<R, half::bf16>(&pieces, io.out::<R>(k)),
                DType::F16 => widen::<R, half::f16>(&pieces, io.out::<R>(k)),
                _ => {
                    let mut rest = io.out_bytes(k);
                    for piece in pieces {
                        split_off(&mut rest, piece.len()).copy_from_slice(piece);
                    }
                }
            }
            at += width;
        }
    }
    /// Returns the bytes of a row of all tables.
    fn row_bytes(&self, io: &Io<'_>) -> usize {
        self.tables(io.inputs()).map(|table| self.width(io, table)).sum()
    }
    fn exchange<R: Real>(&self, io: &Io<'_>, comm: &dyn Comm) -> Result<()> {
        let (sent, width, rank) = (self.sent_rows(io), self.row_bytes(io), comm.rank());
        let received: Vec<usize> = io.input::<u32>(input::RECV_COUNTS).iter().map(|&n| n as usize).collect();
        let to_send = self.tables(io.inputs()).map(|(table, index)| io.rows(index.unwrap_or(table)));
        let (sum, arriving) = (total(&sent), total(&received));
        if to_send.into_iter().any(|rows| rows != sum) || arriving != io.rows(input::LIKE) {
            let what = format!("{sum} rows to send and {arriving} to receive do not fit the lists of rows");
            return Err(Error::new(ErrorKind::Comm, what));
        }
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let [packed, unpacked] = &mut *buffers;
        self.pack(io, &sent, packed);
        unpacked.resize(unpacked.len().max(arriving * width), 0);
        let unpacked = &mut unpacked[..arriving * width];
        let bytes = |rows: &[usize]| rows.iter().map(|&rows| rows * width).collect::<Vec<_>>();
        let others = match self.to_each {
            true => {
                comm.all_to_all(packed, &bytes(&sent), unpacked, &bytes(&received))?;
                sum - sent[rank]
            }
            false => {
                comm.all_gather(packed, unpacked, &bytes(&received))?;
                sum * (comm.size() - 1)
            }
        };
        let traffic = self.link.ranks().traffic();
        traffic.add(self.kind, others, others * width);
        let rows_to = |to: usize| if self.to_each { sent[to] } else { sum };
        traffic.add_to_record(self.kind, (rank, comm.size()), 1, |to| rows_to(to) * width);
        self.unpack::<R>(io, unpacked, &received);
        Ok(())
    }
    /// Returns the regions of a window, one for each table.
    fn regions(&self, ins: &[Spec]) -> Vec<Region> {
        let tables = self.tables(ins.len()).count();
        let mut begin = WindowHead::bytes(self.link.ranks().size(), tables);
        let region = |(table, index): (usize, Option<usize>)| {
            let (columns, list) = index.map_or((1, table), |index| (ins[index].cols, index));
            let each = self.rows_of_item(table);
            let bytes = each * ins[table].cols * ins[table].dtype.size(Precision::F32);
            let region = Region { table, index, begin, rows: ins[list].rows.capacity, columns, each, bytes };
            begin = region.end().next_multiple_of(REGION_ALIGN);
            region
        };
        self.tables(ins.len()).map(region).collect()
    }
    /// Launches the kernels that write the window.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn write(&self, k: &Kernels, on: &Launch<'_>, window: &Window, regions: &[Region]) -> Result<()> {
        let counts = if self.to_each { on.input(input::SEND_COUNTS) } else { std::ptr::null() };
        let rows = regions.first().map_or(input::LIKE, |region| region.index.unwrap_or(region.table));
        let width = regions.iter().map(|region| region.columns * region.bytes).sum();
        let head = WindowHead { counts, rows: on.rows(rows), width, extra: 0, kind: self.kind };
        // SAFETY: the caller's promise.
        unsafe { head.write(k, on, window) }?;
        regions.iter().enumerate().try_for_each(|(table, region)| {
            let items = |rows: abi::Rows, by: usize| abi::Rows {
                times: rows.times * by as u32,
                capacity: rows.capacity * by as u32,
                ..rows
            };
            let of = on.rows(region.table).items(region.each as u32);
            let (index, rows) = match region.index {
                Some(index) => (on.input(index), items(on.rows(index), region.columns)),
                None => (std::ptr::null(), of),
            };
            let (from, units) = (on.address(region.table) as *const u16, region.bytes / UNIT);
            let rows = WindowRows { table, from, of, index, rows, begin: region.begin, units };
            // SAFETY: the caller's promise.
            unsafe { rows.write(k, on, window) }
        })
    }
    /// Launches the kernels that read the windows.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn read(&self, k: &Kernels, on: &Launch<'_>, window: &Window, regions: &[Region]) -> Result<()> {
        let nothing = std::ptr::null_mut();
        regions.iter().enumerate().try_for_each(|(out, region)| {
            let dtype = on.spec(region.table).dtype;
            let kind = if dtype.is_half() { 1 + u32::from(dtype == DType::Bf16) } else { 0 };
            let size = if dtype.is_half() { dtype.size(Precision::F32) } else { UNIT };
            let parts = WindowParts {
                table: out,
                to_all: !self.to_each,
                expected: on.input(input::RECV_COUNTS),
                counts: nothing,
                count: nothing,
                out: on.needed_words(out).cast(),
                capacity: on.capacity(input::LIKE),
                units: region.columns * region.bytes / size,
                kind,
                is_last: out + 1 == regions.len(),
            };
            // SAFETY: the caller's promise.
            unsafe { parts.read(k, on, window) }
        })
    }
    /// Launches the kernels of a single rank, which sends all rows to itself.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn copy(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        self.tables(on.inputs()).enumerate().try_for_each(|(out, (table, index))| {
            let (spec, each) = (on.spec(table), self.rows_of_item(table) as u32);
            // An item is one row of the kernels.
            let (from, cols) = (on.rows(table).items(each), spec.cols as u32 * each);
            // Not more rows than there are indices.
            let listed = index
                .map(|index| abi::Rows { times: on.rows(index).times * on.cols(index), ..on.rows(index) });
            let listed = listed
                .zip(index)
                .map(|(rows, index)| abi::Rows { capacity: rows.capacity * on.cols(index), ..rows });
            let rows = on.out_rows(out).items(each);
            let rows = listed.filter(|listed| listed.capacity < rows.capacity).unwrap_or(rows);
            let words = cols * (spec.dtype.size(Precision::F32) / size_of::<u32>()) as u32;
            let grid = Grid::warps(rows.capacity as usize);
            if on.out_words(out).is_null() {
                return Ok(()); // nobody reads these rows
            }
            match index {
                None => {
                    let (x, y) = (on.words(table).cast(), on.out_words(out).cast());
                    launch!(k, on, prefix_rows[grid]; x, std::ptr::null(), y, from, rows, words)
                }
                Some(index) => {
                    let addresses = [on.address(table), on.out_words(out) as u64];
                    let tables = abi::Tables::new([(spec.dtype, cols as usize, addresses)]);
                    launch!(k, on, gather_rows[grid]; tables, on.input(index), rows, from, on.status())
                }
            }
        })
    }
}

/// The part of a window that holds the rows of one table.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// Position of the table.
    table: usize,
    /// Position of its index.
    index: Option<usize>,
    /// First byte.
    begin: usize,
    /// Rows to send, at most.
    rows: usize,
    /// Items of a row.
    columns: usize,
    /// Rows of the table that make an item.
    each: usize,
    /// Bytes of an item.
    bytes: usize,
}

impl Region {
    fn end(&self) -> usize {
        self.begin + self.rows * self.columns * self.bytes
    }
}

/// Returns the sum of counts, saturating.
fn total(counts: &[usize]) -> usize {
    counts.iter().fold(0, |sum, &n| sum.saturating_add(n))
}

/// Converts rows stored as `T` into `out`.
fn widen<R: Real, T: Stored<R>>(pieces: &[&[u8]], mut out: &mut [R]) {
    for piece in pieces {
        // Pieces of a message are not aligned.
        let stored: Vec<T> = bytemuck::pod_collect_to_vec(piece);
        T::real(&stored, split_off(&mut out, stored.len()));
    }
}

impl Op for ExchangeRows {
    const NAME: &'static str = "exchange_rows";
    const KIND: OpKind = OpKind::Comm;
    const SIGNATURE: &'static str = "sequence [1] ids state, like, recv_counts [r] ids, \
        send_counts? [r] ids, {table, index? [n, k] ids} ->";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "send_counts" => self.to_each,
            _ => self.indexed(),
        })
    }
    fn sizes(&self) -> Sizes {
        vec![("r", Rows::fixed(self.link.ranks().size()))]
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let first = self.first_table();
        ensure!(Self::NAME, ins.len() > first, "{} inputs, want counts and tables", ins.len());
        signature::infer(self, ins)?;
        let like = ins[input::LIKE];
        let listed = !self.indexed() || ins.len() - first == 2 * self.each.len();
        ensure!(Self::NAME, listed, "{} tables and indices, want pairs", ins.len() - first);
        let items = |(table, _): (usize, _)| {
            let each = self.rows_of_item(table);
            each > 0 && ins[table].rows.capacity.is_multiple_of(each)
        };
        ensure!(Self::NAME, self.tables(ins.len()).all(items), "a table is not divided into items");
        for (table, index) in self.tables(ins.len()) {
            let (table, whole) = (ins[table], index.is_none());
            ensure!(Self::NAME, !(whole && table.dtype.is_half()), "{table} is sent whole, want no 16 bits");
        }
        countable(Self::NAME, "rows", like.rows.capacity)?;
        let out = |(table, index): (usize, Option<usize>)| {
            let each = self.rows_of_item(table).saturating_mul(index.map_or(1, |index| ins[index].cols));
            Spec { dtype: ins[table].dtype.widened(), rows: like.rows.times(each), cols: ins[table].cols }
        };
        Ok(self.tables(ins.len()).map(|table| out(table).into()).collect())
    }
    fn traffic(&self) -> Option<TrafficKind> {
        Some(self.kind)
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(outs, outs, 0)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        self.link.step(io, Self::NAME, |comm| self.exchange::<R>(io, comm));
    }
    fn window(&self, ins: &[Spec], _: &[Spec]) -> Option<WindowSize<'_>> {
        self.link.window(self.regions(ins).last().map_or(0, |region| region.end()))
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        if self.link.is_alone() {
            // SAFETY: the caller's promise.
            return unsafe { self.copy(k, on) };
        }
        let ins: Vec<Spec> = (0..on.inputs()).map(|i| on.spec(i)).collect();
        let regions = self.regions(&ins);
        on.exchange(
            self.link.channel(),
            // SAFETY: the caller's promise.
            |window| unsafe { self.write(k, on, window, &regions) },
            // SAFETY: the caller's promise.
            |window| unsafe { self.read(k, on, window, &regions) },
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        if self.indexed() {
            return Ok(dins);
        }
        ensure!(Self::NAME, self.to_each, "rows that all ranks get have no gradient");
        for ((table, _), dout) in self.tables(node.ins.len()).zip(douts) {
            let Some(dout) = *dout else { continue };
            let parts = Parts {
                // The gradients have the rows of the table.
                like: node.ins[table],
                recv_counts: node.ins[input::SEND_COUNTS],
                send_counts: Some(node.ins[input::RECV_COUNTS]),
            };
            let op = ExchangeRows::new(&self.link, TrafficKind::DispatchGradients, parts, Vec::new());
            dins[table] = Some(t.push_exchange(op, node.ins[0], parts, std::iter::once(dout))?[0]);
        }
        Ok(dins)
    }
}

/// `[rows of the tables, rows to send, columns, 1 if all ranks get the same rows]`, the index of the table's
/// storage type in [`StoredAs::ALL`], and the rows of an item of the second table
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 0, 1],
    &[7, 0, 3, 0, 0, 1],
    &[8, 30, 5, 0, 0, 2],
    &[7, 30, 5, 1, 0, 7],
    &[7, 30, 5, 0, 1, 1],
    &[7, 31, 0, 0, 0, 1],
    &[6, 30, 4, 1, 2, 3],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 1_500, 100, 0, 0, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let link = Link::new(&mut c.store, &Ranks::alone(), Channel::Rows)?;
    let table = c.stored(dims[0], dims[2], StoredAs::ALL[dims[4]]);
    let times = c.times(&(0..dims[0] as i64).collect::<Vec<_>>());
    let (index, each) = (c.ids_below(dims[1], dims[0]), dims[5]);
    // Two items for each row, if their number is even.
    let columns = 2 - dims[1] % 2;
    let items: Vec<u32> = (0..columns * dims[1]).map(|_| c.below(dims[0] / each) as u32).collect();
    let other = c.ids(&items, columns);
    let counts = c.ids(&[dims[1] as u32], 1);
    let parts = Parts { like: index, recv_counts: counts, send_counts: (dims[3] == 0).then_some(counts) };
    let tables = [(table, index).into(), RowsToSend { each, ..(times, other).into() }];
    let mut outs = c.tape.exchange_rows(&link, TrafficKind::Dispatch, parts, &tables)?;
    if dims[3] == 1 || dims[4] > 0 {
        return Ok(Built::new(&outs, &[]));
    }
    // Rows in order, with a gradient.
    let rows = c.real(dims[1], dims[2]);
    outs.extend(c.tape.exchange_all_rows(&link, TrafficKind::Dispatch, parts, &[rows])?);
    Ok(Built { wrt: vec![rows], ..Built::new(&outs, &[]) })
}
