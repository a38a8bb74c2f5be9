//! Kernels on tensors of a CUDA device: the ops and the devices. The package knows the operands, and torch
//! allocates.
use crate::{arrays::Array, error::Result, ops::Csr};
use pyo3::prelude::*;
use std::ffi::c_void;
use tgnn::{
    error::{Error, ErrorKind},
    ops::{
        DeviceCall, DynOp,
        group_slots::GroupSlots,
        gru_memory,
        memory_update::{FeatureRow, MemoryUpdate, MemoryUpdateGrad},
        sample_neighbors::{History, SampleNeighbors, Sampling, Strategy},
        temporal_attention::{TemporalAttention, TemporalAttentionGrad},
    },
    runtime::{DType, Device, Gaps, Rows, Spec, cuda},
};

/// A CUDA device with its kernels.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Gpu(cuda::Gpu);

#[pymethods]
impl Gpu {
    /// Opens `cuda:N`; or `emu`, an emulated device for tests, whose memory is the host's.
    #[new]
    fn new(py: Python<'_>, name: &str) -> Result<Self> {
        let device = py.detach(|| Device::open(name, 1))?;
        let none =
            || Error::new(ErrorKind::Device, format!("{name} is no CUDA device")).remedy("give cuda:N");
        Ok(Gpu(device.gpu().ok_or_else(none)?.clone()))
    }
    /// Runs an op on a CUDA stream of torch's and waits for it. Returns the outputs; `empty` makes a tensor
    /// of these rows, columns and type.
    fn run<'py>(
        &self,
        py: Python<'py>,
        op: &Op,
        inputs: Vec<Array>,
        stream: usize,
        empty: &Bound<'py, PyAny>,
    ) -> Result<Vec<Bound<'py, PyAny>>> {
        let mut call = DeviceCall::new(&*op.0);
        for input in &inputs {
            call = call.input(input.on(&self.0)?)?;
        }
        let mut outs = Vec::new();
        for Spec { dtype, rows, cols } in call.outputs()? {
            let out = empty.call1((rows.capacity, cols, name_of(dtype)))?;
            call = call.output(Array::from_object(&out)?.on(&self.0)?)?;
            outs.push(out);
        }
        let words = call.workspace_bytes()?.div_ceil(size_of::<i64>());
        let workspace = empty.call1((words, 1, name_of(DType::I64)))?.call_method0("zero_")?;
        let room = Array::from_object(&workspace)?.on(&self.0)?;
        let call = py.detach(|| {
            // SAFETY: the package passes the current stream of the device, which torch never destroys.
            let stream = unsafe { cuda::CudaStream::borrowed(&self.0, stream as *mut c_void) };
            // SAFETY: torch has allocated all operands on this device, in the order of this stream; outputs
            // and workspace are new. All live until the stream has done the work.
            unsafe { call.launch(&self.0, &stream, room.address, words * size_of::<i64>()) }?;
            stream.synchronize()?;
            Ok::<_, Error>(call)
        })?;
        let status: i64 = workspace.get_item((0, 0))?.call_method0("item")?.extract()?;
        call.check(status as u64)?;
        Ok(outs)
    }
}

/// Returns torch's name of a type; ids are 32 bits without a sign here.
fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::U32 => "int32",
        DType::I64 => "int64",
        _ => "float32",
    }
}

/// An op that runs on devices. The table at the top of its module in `src/ops` has its operands.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Op(Box<dyn DynOp>);

#[pymethods]
impl Op {
    #[staticmethod]
    fn spmm(a: &Csr, transpose: bool) -> Self {
        Op(Box::new(a.op(transpose)))
    }
    #[staticmethod]
    fn sample_recent(k: usize) -> Self {
        let (strategy, history) = (Strategy::Recent, History::Time);
        let how = Sampling { k, strategy, history, gaps: Gaps::unlimited(1.0) };
        Op(Box::new(SampleNeighbors::new(how, 0)))
    }
    #[staticmethod]
    fn temporal_attention(heads: usize, head_width: usize) -> Self {
        Op(Box::new(TemporalAttention::new(heads, head_width, None, true)))
    }
    /// The slots by the row of `rows` that they read; `temporal_attention_grad` sums in this order.
    #[staticmethod]
    fn group_slots(rows: usize) -> Self {
        Op(Box::new(GroupSlots::new(Rows::fixed(rows), true)))
    }
    #[staticmethod]
    fn temporal_attention_grad(heads: usize, head_width: usize) -> Self {
        Op(Box::new(TemporalAttentionGrad::new(TemporalAttention::new(heads, head_width, None, true))))
    }
    #[staticmethod]
    fn gru_memory(seconds_per_tick: f32) -> Self {
        let gaps = Gaps::unlimited(seconds_per_tick);
        Op(Box::new(MemoryUpdate::<gru_memory::Gru>::new(FeatureRow::Event, false, gaps)))
    }
    #[staticmethod]
    fn gru_memory_grad() -> Self {
        Op(Box::new(MemoryUpdateGrad::<gru_memory::Gru>::default()))
    }
}
