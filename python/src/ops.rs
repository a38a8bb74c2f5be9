//! Kernels on arrays of Python.
use crate::{
    arrays::{Array, Buffer},
    error::Result,
};
use pyo3::prelude::*;
use std::sync::Arc;
use tgnn::{
    error::Error,
    ops::{
        functions::{
            self, AttentionRows, CsrTable, GruWeights, MemoryTables, RecentSlots, UpdatedMemory, on_threads,
            recent_neighbors,
        },
        spmm::Spmm,
    },
    runtime::NONE,
};

/// Runs `work` without Python's lock, on every core.
fn on_cores<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T> {
    Ok(py.detach(|| on_threads(0, work)?)?)
}

/// Returns ids as the crate has them; -1 is no id.
fn ids(op: &str, array: &Array) -> Result<Vec<u32>, Error> {
    let id = |&id: &i64| match id {
        -1 => Ok(NONE),
        _ => u32::try_from(id).map_err(|_| Error::shape(op, format!("{id} is not an index"))),
    };
    array.values::<i64>()?.iter().map(id).collect()
}

/// A square sparse matrix.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Csr(Arc<functions::Csr>);

impl Csr {
    /// Returns the op that multiplies the matrix, or its transpose.
    pub fn op(&self, transpose: bool) -> Spmm {
        self.0.op(transpose)
    }
}

#[pymethods]
impl Csr {
    #[new]
    fn new(py: Python<'_>, indptr: Array, indices: Array, values: Option<Array>) -> Result<Self> {
        on_cores(py, || {
            let values = values.as_ref().map(Array::values).transpose()?;
            let (indptr, indices) = (ids("csr", &indptr)?, ids("csr", &indices)?);
            Ok(Csr(Arc::new(functions::Csr::from_csr(&indptr, &indices, values)?)))
        })
    }
    fn __len__(&self) -> usize {
        self.0.len()
    }
    /// Returns the same with the symmetric normalisation of graph convolutions.
    fn normalized(&self) -> Self {
        Csr(Arc::new((*self.0).clone().normalized()))
    }
    /// Fills `y` with the product of the matrix, or its transpose, and `x`.
    fn multiply(&self, py: Python<'_>, x: Array, mut y: Array, transpose: bool) -> Result<()> {
        on_cores(py, || {
            let [rows, d] = x.shape()?;
            tgnn::ensure!("spmm", rows == self.0.len(), "x has {rows} rows, and the matrix {}", self.0.len());
            let product = if transpose { functions::spmm_grad } else { functions::spmm };
            product(&self.0, x.values()?, d, y.values_mut()?)
        })
    }
    /// Returns the inputs after `x` of the product on a device.
    fn tables(&self, transpose: bool) -> Vec<Buffer> {
        let of_table = |table| match table {
            CsrTable::Ids(ids, cols) => Buffer::borrowed(self.0.clone(), ids, vec![ids.len() / cols, cols]),
            CsrTable::Reals(reals) => Buffer::borrowed(self.0.clone(), reals, vec![reals.len(), 1]),
        };
        self.0.tables(transpose).into_iter().map(of_table).collect()
    }
}

/// The events of each node in time order.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct EventLists(Arc<functions::EventLists>);

#[pymethods]
impl EventLists {
    #[new]
    fn new(py: Python<'_>, src: Array, dst: Array, time: Array, nodes: usize) -> Result<Self> {
        on_cores(py, || {
            let (src, dst) = (ids("events", &src)?, ids("events", &dst)?);
            Ok(EventLists(Arc::new(functions::EventLists::new(&src, &dst, time.values()?, nodes)?)))
        })
    }
    fn __len__(&self) -> usize {
        self.0.len()
    }
    /// Returns the lists as sampling on a device reads them: offsets, and entries as two i64 each.
    fn tables(&self) -> [Buffer; 2] {
        let of = |values: &[i64], cols: usize| {
            Buffer::borrowed(self.0.clone(), values, vec![values.len() / cols, cols])
        };
        [of(self.0.offsets(), 1), of(bytemuck::cast_slice(self.0.entries()), 2)]
    }
    /// Fills the slots of queries: `[n, k]` u32, u32 and f32, and `[n]` u32.
    #[allow(clippy::too_many_arguments)] // one for each array
    fn recent(
        &self,
        py: Python<'_>,
        nodes: Array,
        times: Array,
        k: usize,
        mut node: Array,
        mut event: Array,
        mut dt: Array,
        mut count: Array,
    ) -> Result<()> {
        on_cores(py, || {
            let slots = RecentSlots {
                node: node.values_mut()?,
                event: event.values_mut()?,
                dt: dt.values_mut()?,
                count: count.values_mut()?,
            };
            recent_neighbors(&self.0, &ids("sample_recent", &nodes)?, times.values()?, k, slots)
        })
    }
}

/// The operands of attention.
#[derive(FromPyObject)]
pub struct Attention {
    #[pyo3(item)]
    heads: usize,
    #[pyo3(item)]
    head_width: usize,
    #[pyo3(item)]
    query: Array,
    #[pyo3(item)]
    h: Array,
    #[pyo3(item)]
    row: Array,
    #[pyo3(item)]
    event: Array,
    #[pyo3(item)]
    dt: Array,
    #[pyo3(item)]
    count: Array,
    #[pyo3(item)]
    edge: Array,
    #[pyo3(item)]
    time_w: Array,
    #[pyo3(item)]
    time_b: Array,
}

impl Attention {
    /// Runs `work` on the rows.
    fn with<T>(&self, work: impl FnOnce(&AttentionRows<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let op = "temporal_attention";
        let (row, event, count) = (ids(op, &self.row)?, ids(op, &self.event)?, ids(op, &self.count)?);
        work(&AttentionRows {
            heads: self.heads,
            head_width: self.head_width,
            width: self.h.shape()?[1],
            edge_width: self.edge.shape()?[1],
            query: self.query.values()?,
            h: self.h.values()?,
            row: &row,
            event: &event,
            dt: self.dt.values()?,
            count: &count,
            edge: self.edge.values()?,
            time_w: self.time_w.values()?,
            time_b: self.time_b.values()?,
        })
    }
}

/// Copies a result to where the caller wants it.
fn fill(mut to: Array, from: &[f32]) -> Result<(), Error> {
    let to = to.values_mut::<f32>()?;
    tgnn::ensure!("ops", to.len() == from.len(), "{} numbers for an array of {}", from.len(), to.len());
    to.copy_from_slice(from);
    Ok(())
}

/// Attends; fills `mix`, `sum` and `weight`.
#[pyfunction]
pub fn temporal_attention(
    py: Python<'_>,
    rows: Attention,
    mix: Array,
    sum: Array,
    weight: Array,
) -> Result<()> {
    on_cores(py, || {
        let out = rows.with(functions::temporal_attention)?;
        [(mix, out.mix), (sum, out.sum), (weight, out.weight)]
            .into_iter()
            .try_for_each(|(to, from)| fill(to, &from))
    })
}

/// Fills the gradients of query, h, time_w and time_b.
#[pyfunction]
pub fn temporal_attention_grad(
    py: Python<'_>,
    rows: Attention,
    weight: Array,
    dmix: Array,
    dsum: Array,
    grads: [Array; 4],
) -> Result<()> {
    on_cores(py, || {
        let g = rows.with(|rows| {
            functions::temporal_attention_grad(rows, weight.values()?, dmix.values()?, dsum.values()?)
        })?;
        grads.into_iter().zip([g.query, g.h, g.time_w, g.time_b]).try_for_each(|(to, from)| fill(to, &from))
    })
}

/// The weights of the memory update.
#[derive(FromPyObject)]
pub struct Weights {
    #[pyo3(item)]
    time_w: Array,
    #[pyo3(item)]
    time_b: Array,
    #[pyo3(item)]
    w_x: Array,
    #[pyo3(item)]
    w_h: Array,
    #[pyo3(item)]
    b_x: Array,
    #[pyo3(item)]
    b_h: Array,
}

impl Weights {
    fn borrowed(&self) -> Result<GruWeights<'_>, Error> {
        Ok(GruWeights {
            time_w: self.time_w.values()?,
            time_b: self.time_b.values()?,
            w_x: self.w_x.values()?,
            w_h: self.w_h.values()?,
            b_x: self.b_x.values()?,
            b_h: self.b_h.values()?,
        })
    }
}

/// The tables of the memory update.
#[derive(FromPyObject)]
pub struct Tables {
    #[pyo3(item)]
    memory: Array,
    #[pyo3(item)]
    memory_time: Array,
    #[pyo3(item)]
    mail: Array,
    #[pyo3(item)]
    mail_event: Array,
    #[pyo3(item)]
    mail_time: Array,
    #[pyo3(item)]
    edge: Array,
}

/// What the backward pass of the memory update reads.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Updated(UpdatedMemory);

/// Updates the memory of nodes; fills `new` and `new_time`.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // as the crate's
pub fn gru_memory(
    py: Python<'_>,
    nodes: Array,
    tables: Tables,
    weights: Weights,
    seconds_per_tick: f32,
    new: Array,
    mut new_time: Array,
) -> Result<Updated> {
    on_cores(py, || {
        let mail_event = ids("gru_memory", &tables.mail_event)?;
        let borrowed = MemoryTables {
            memory: tables.memory.values()?,
            memory_time: tables.memory_time.values()?,
            mail: tables.mail.values()?,
            mail_event: &mail_event,
            mail_time: tables.mail_time.values()?,
            edge: tables.edge.values()?,
            edge_width: tables.edge.shape()?[1],
        };
        let nodes = ids("gru_memory", &nodes)?;
        let updated = functions::gru_memory(&nodes, borrowed, weights.borrowed()?, seconds_per_tick)?;
        fill(new, &updated.memory)?;
        new_time.values_mut::<i64>()?.copy_from_slice(&updated.time);
        Ok(Updated(updated))
    })
}

/// Fills the gradients of time_w, time_b, w_x, w_h, b_x and b_h.
#[pyfunction]
pub fn gru_memory_grad(
    py: Python<'_>,
    updated: &Updated,
    weights: Weights,
    dmemory: Array,
    grads: [Array; 6],
) -> Result<()> {
    on_cores(py, || {
        let g = functions::gru_memory_grad(&updated.0, weights.borrowed()?, dmemory.values()?)?;
        let all = [g.time_w, g.time_b, g.w_x, g.w_h, g.b_x, g.b_h];
        grads.into_iter().zip(all).try_for_each(|(to, from)| fill(to, &from))
    })
}
