//! A memory update as two ops: its messages, which depend on no weights, and the cell.
use super::*;
use crate::runtime::cuda::DeviceView;

/// Number of the first inputs, which messages are made of.
pub(super) const READS: usize = input::W_X;
/// The outputs of [`Messages`].
pub(super) const MADE: [usize; 5] = [output::TIME, output::COUNT, output::ROW, output::MESSAGE, output::DT];
/// The outputs of [`Updated`].
const REST: [usize; 2] = [output::MEMORY, output::GATES];
/// Number of outputs of the whole op.
const OUTPUTS: usize = MADE.len() + REST.len();

/// The list of the mails, and their messages.
#[derive(Debug)]
pub(super) struct Messages<C>(pub MemoryUpdate<C>);

/// The new memory, computed from the messages.
#[derive(Debug)]
pub(super) struct Updated<C>(pub MemoryUpdate<C>);

/// Returns the outputs of the whole op, given those that a part has as outputs or inputs.
fn outputs(made: &[DeviceView], rest: &[DeviceView]) -> [DeviceView; OUTPUTS] {
    let mut all = [made[0]; OUTPUTS];
    MADE.into_iter().zip(made).chain(REST.into_iter().zip(rest)).for_each(|(k, &view)| all[k] = view);
    all
}

impl<C: Cell> Op for Messages<C> {
    const NAME: &'static str = "memory_messages";
    const KIND: OpKind = OpKind::Graph;
    fn scratch(&self, ins: &[Spec]) -> usize {
        2 * ins[input::UNIQUE].rows.capacity
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, w) = (ins[input::UNIQUE].rows.capacity, Widths::from_specs(|i| ins[i]));
        let written: usize = outs.iter().map(|out| out.bytes(Precision::F32)).sum();
        Cost { bytes: 4 * n * (w.message() - w.t + 6) + written, flops: 0 }
    }
    fn define<R: Real>(&self, _: &Io<'_>) {
        unreachable!("a host runs the whole op");
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // The kernels get addresses of weights and memory that they do not use.
        let real = DeviceView { address: 0, ..on.ins[input::MEMORY] };
        let ins: Vec<DeviceView> = on.ins.iter().copied().chain([real; input::COUNT - READS]).collect();
        let on = &Launch { ins: &ins, outs: &outputs(on.outs, &[real; 2]), ..*on };
        let node = on.scratch().cast::<u32>();
        let feature = node.wrapping_add(on.capacity(input::UNIQUE));
        let to = PreparedMessages { node, feature, weights: std::ptr::null_mut() };
        // SAFETY: the operands are those of the whole op, as far as its first kernels use them.
        unsafe {
            self.0.launch_list(k, on, &to)?;
            self.0.launch_prepared(k, on, &to, Prepares::Messages)
        }
    }
}

impl<C: Cell> Op for Updated<C> {
    const NAME: &'static str = C::NAME;
    const KIND: OpKind = OpKind::Nn;
    fn scratch(&self, ins: &[Spec]) -> usize {
        MemoryUpdate::<C>::weights(Widths::from_specs(|i| ins[i]))
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Op::cost(&self.0, ins, outs)
    }
    fn define<R: Real>(&self, _: &Io<'_>) {
        unreachable!("a host runs the whole op");
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (ins, made) = on.ins.split_at(input::COUNT);
        let on = &Launch { ins, outs: &outputs(made, on.outs), ..*on };
        let nowhere = std::ptr::null_mut();
        let to = PreparedMessages { node: nowhere, feature: nowhere, weights: on.scratch() };
        // SAFETY: the operands are those of the whole op, and its list and its messages are there.
        unsafe {
            self.0.launch_prepared(k, on, &to, Prepares::Weights)?;
            self.0.launch_cell(k, on, &to)
        }
    }
}
