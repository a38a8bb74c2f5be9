//! One run of one op on device memory of the caller, on a CUDA stream of the caller.
use super::{DynOp, call::Shapes, fault_error};
use crate::{
    error::{Error, Result, ensure},
    runtime::{
        cuda::{CudaStream, DeviceTensor, DeviceView, Gpu, Launch, Windows, abi},
        *,
    },
};

/// Bytes that the parts of a workspace are aligned to.
const ALIGN: usize = 256;
/// Bytes that addresses must be aligned to: kernels read four reals at a time.
const LEAST_ALIGN: u64 = 16;
/// The number of the tape that live counts of a call belong to; no tape reaches it.
const CALLER: u32 = u32::MAX;

/// One launch of one op on the caller's device memory: no tape, no store, no program, no allocation.
///
/// Operands are [`DeviceTensor`]s: addresses on the device with type and shape, such as those of a
/// [`DeviceBuffer`](crate::runtime::cuda::DeviceBuffer) or of a
/// [DLPack tensor](crate::runtime::cuda::dlpack). Their order is that of [`Call`](super::Call). Rows may be
/// counted on the device ([`DeviceTensor::counted_by`]).
///
/// The op works in one block of device memory, of [`workspace_bytes`](Self::workspace_bytes) bytes, that is
/// zero before the first launch and may be used by later launches of the same call. Its first word receives
/// the first fault of the op: see [`check`](Self::check).
///
/// On the emulated device (feature `emu`); `cuda` opens a GPU:
#[cfg_attr(feature = "emu", doc = "```")]
#[cfg_attr(not(feature = "emu"), doc = "```no_run")]
/// use tgnn::{ops::{DeviceCall, pointwise::Add}, runtime::{DType, Device, cuda::*}};
/// let device = Device::open("emu", 1)?;
/// let gpu = device.gpu().expect("the device is not the CPU");
/// let stream = CudaStream::new(gpu)?;
/// let (a, sum) = (DeviceBuffer::new(gpu, 8)?, DeviceBuffer::new(gpu, 8)?);
/// a.upload(&[1.0f32, 2.0], &stream)?;
/// let tensor = |buffer| DeviceTensor::from_buffer(buffer, DType::F32, [1, 2]);
/// let (x, y) = (tensor(&a)?, tensor(&sum)?);
/// let call = DeviceCall::new(&Add).input(x)?.input(x)?.output(y)?;
/// let workspace = DeviceBuffer::new(gpu, call.workspace_bytes()?)?;
/// workspace.fill(0, &stream)?;
/// // SAFETY: all buffers live until the download below, which waits for the stream.
/// unsafe { call.launch(gpu, &stream, workspace.address(), workspace.bytes())? };
/// let mut found = [0.0f32; 2];
/// sum.download(&mut found, &stream)?;
/// assert_eq!(found, [2.0, 4.0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub struct DeviceCall<'a> {
    shapes: Shapes<'a>,
    ins: Vec<DeviceTensor>,
    /// Operands of the outputs; `None` for those that the caller does not read.
    outs: Vec<Option<DeviceTensor>>,
    /// Addresses of the counts of live rows, each once.
    counts: Vec<u64>,
}

brief_debug!(DeviceCall<'_>, c => { op: c.shapes.op.name(), ins: c.ins });

/// Offsets of the parts of a workspace, in bytes.
struct Workspace {
    tickets: usize,
    scratch: usize,
    /// For each output, the offset of its memory if nobody reads it.
    ignored: Vec<Option<usize>>,
    bytes: usize,
}

impl<'a> DeviceCall<'a> {
    /// Creates a call of `op` without operands.
    pub fn new(op: &'a dyn DynOp) -> Self {
        DeviceCall { shapes: Shapes::new(op), ins: Vec::new(), outs: Vec::new(), counts: Vec::new() }
    }
    /// Adds the next input.
    ///
    /// # Errors
    /// `Shape` if the address is not aligned to 16 bytes, or an output was given before.
    pub fn input(mut self, tensor: DeviceTensor) -> Result<Self> {
        self.add_input(tensor, false)?;
        Ok(self)
    }
    /// Adds the next input, which is state that the op changes in place.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn state(mut self, tensor: DeviceTensor) -> Result<Self> {
        self.add_input(tensor, true)?;
        Ok(self)
    }
    fn add_input(&mut self, tensor: DeviceTensor, state: bool) -> Result<()> {
        let mut spec = tensor.spec();
        if let Some((count, times)) = tensor.live {
            let at = self.counts.iter().position(|&known| known == count).unwrap_or_else(|| {
                self.counts.push(count);
                self.counts.len() - 1
            });
            spec.rows.live = Some(Live { var: Var::new(CALLER, at), times });
        }
        let (op, at) = (self.shapes.op, self.ins.len());
        aligned(op.name(), || op.input_name(at), &tensor)?;
        self.shapes.input(spec, state)?;
        self.ins.push(tensor);
        Ok(())
    }
    /// Adds the next output.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or has no such output, or if the output has another capacity,
    /// width or type, or is not aligned to 16 bytes.
    pub fn output(mut self, tensor: DeviceTensor) -> Result<Self> {
        let (op, (at, spec)) = (self.shapes.op, self.shapes.next_output()?);
        let (has, wants) = (tensor.spec(), Spec { rows: Rows::fixed(spec.rows.capacity), ..spec });
        ensure!(op.name(), has == wants, "{} is {has}, want {wants}", op.output_name(at));
        aligned(op.name(), || op.output_name(at), &tensor)?;
        self.outs.push(Some(tensor));
        Ok(self)
    }
    /// Skips the next output: nobody reads it. If the op needs memory for it, that is part of the workspace.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or has no such output.
    pub fn ignore(mut self) -> Result<Self> {
        self.shapes.next_output()?;
        self.outs.push(None);
        Ok(self)
    }
    /// Returns the shapes of all outputs, after all inputs were given. Rows that are counted on the device
    /// have their whole capacity.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or changes other inputs than those given as state.
    pub fn outputs(&self) -> Result<Vec<Spec>> {
        let fixed = |s: &Spec| Spec { rows: Rows::fixed(s.rows.capacity), ..*s };
        Ok(self.shapes.checked()?.outs.iter().map(fixed).collect())
    }
    /// Returns the size of the workspace, in bytes: status, tickets, scratch, and outputs that nobody reads.
    ///
    /// # Errors
    /// `Shape` if outputs are missing, or as [`outputs`](Self::outputs).
    pub fn workspace_bytes(&self) -> Result<usize> {
        Ok(self.workspace()?.bytes)
    }
    fn workspace(&self) -> Result<Workspace> {
        let checked = self.shapes.complete()?;
        let mut bytes = size_of::<u64>();
        let mut take = |more: usize| {
            let start = bytes.next_multiple_of(ALIGN);
            bytes = start + more;
            start
        };
        let (tickets, scratch) = (take(4 * checked.tickets), take(4 * checked.scratch));
        let ignored = self.outs.iter().zip(&checked.outs);
        let ignored = ignored.map(|(given, spec)| match given {
            Some(_) => None,
            None => Some(take(spec.bytes(Precision::F32))),
        });
        let ignored = ignored.collect();
        Ok(Workspace { tickets, scratch, ignored, bytes })
    }
    /// Launches the op's kernels on `stream` and does not wait for them. `workspace` has `bytes` bytes.
    ///
    /// # Errors
    /// `Shape` if outputs are missing, or the workspace is too small or not aligned to 16 bytes; `Device` if
    /// the op has no kernel or the driver refuses.
    ///
    /// # Safety
    /// Until the work is done, all addresses must be of memory that `gpu` can access, of the sizes of their
    /// shapes; nobody else may write them, nor read outputs, state and workspace. Outputs, state and
    /// workspace must overlap no other operand. The workspace must be zero, or be as the last launch of this
    /// call left it. `stream` must be of `gpu`.
    pub unsafe fn launch(&self, gpu: &Gpu, stream: &CudaStream, workspace: u64, bytes: usize) -> Result<()> {
        let (op, layout, checked) = (self.shapes.op.name(), self.workspace()?, self.shapes.complete()?);
        ensure!(op, bytes >= layout.bytes, "{bytes} bytes of workspace, want {}", layout.bytes);
        let at_workspace = workspace.is_multiple_of(LEAST_ALIGN);
        ensure!(op, at_workspace, "the workspace is not aligned to {LEAST_ALIGN} bytes");
        let view = |address: u64, spec: Spec, wanted: bool| {
            let live = spec.rows.live.and_then(|l| Some((*self.counts.get(l.var.at())?, l.times as u32)));
            let (count, times) = live.unwrap_or((0, 1));
            let rows = abi::Rows { count: count as *const u32, times, capacity: spec.rows.capacity as u32 };
            DeviceView { address, spec, rows, wanted }
        };
        let ins = self.ins.iter().zip(&self.shapes.ins).map(|(x, &spec)| view(x.address, spec, true));
        let outs = self.outs.iter().zip(&layout.ignored).zip(&checked.outs);
        let outs = outs.map(|((given, ignored), &spec)| match given {
            Some(given) => view(given.address, spec, true),
            None => view(workspace + ignored.unwrap_or(0) as u64, spec, false),
        });
        let (ins, outs): (Vec<DeviceView>, Vec<DeviceView>) = (ins.collect(), outs.collect());
        gpu.enter()?;
        let launch = Launch {
            ins: &ins,
            outs: &outs,
            writes: &checked.writes,
            scratch: workspace + layout.scratch as u64,
            tickets: workspace + layout.tickets as u64,
            status: workspace,
            precision: gpu.precision(),
            changes: gpu.changes(),
            stream,
            windows: &Windows::default(),
        };
        // SAFETY: `infer` accepted the shapes, and the caller guarantees the memory.
        unsafe { self.shapes.op.launch(gpu.kernels(), &launch) }
    }
    /// Returns the fault that the op recorded in the first word of its workspace, copied to the host after
    /// the work was done.
    ///
    /// # Errors
    /// `Data` or `Diverged` if the op met an index outside of its table or a number that is not finite, as a
    /// program reports it.
    pub fn check(&self, status: u64) -> Result<()> {
        match Status::read(status) {
            Some((row, fault)) => Err(fault_error(self.shapes.op, row, fault, None)),
            None => Ok(()),
        }
    }
}

/// Checks that the address of an operand with elements is aligned as kernels need it.
fn aligned(op: &str, name: impl Fn() -> String, tensor: &DeviceTensor) -> Result<()> {
    let fits = tensor.spec().is_empty() || tensor.address.is_multiple_of(LEAST_ALIGN) && tensor.address > 0;
    if !fits {
        let (what, address) = (name(), tensor.address);
        let text = format!("the address of {what} is {address:#x}, want a multiple of {LEAST_ALIGN}");
        return Err(Error::shape(op, text));
    }
    Ok(())
}
