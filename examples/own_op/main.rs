//! A new op outside of the crate: CPU code and a CUDA kernel of its own, tested as the crate's own ops are.
mod silu;

use silu::{KERNEL, Silu, build};
use std::path::Path;
use tgnn::{
    error::Result,
    ops::{Backend, Call, Case},
    runtime::{Device, MatmulPrecision, cuda::CudaModule},
    testing,
};

fn main() -> Result<()> {
    // Its gradient by finite differences, and its fast path against its definition, on sizes of all kinds.
    const SIZES: [&[usize]; 4] = [&[0, 3], &[1, 1], &[7, 5], &[300, 17]];
    let cases = SIZES.map(|dims| Case { op: "silu", dims, build, inputs: MatmulPrecision::F32 });
    for case in &cases {
        println!("{case}: the gradient is off by {:.0e}", testing::gradient_error(case)?);
        assert!(testing::gradient_error(case)? < 1e-6);
        assert!(testing::worst(case, Backend::Cpu)?.within());
    }
    // The kernel: on a GPU if there is one, else on the emulated device if this build has it.
    let device = Device::open("cuda", 1).or_else(|_| Device::open("emu", 1));
    if let Some(gpu) = device.as_ref().ok().and_then(Device::gpu) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/own_op/silu.cu");
        // SAFETY: the file is trusted, and has this kernel.
        let module = unsafe { CudaModule::compile(gpu, &file, &["silu"]) }?;
        KERNEL.get_or_init(|| module.kernel("silu").expect("the kernel is in the file"));
        for case in &cases {
            let worst = testing::worst(case, Backend::Cuda(gpu.clone()))?;
            println!("{case} on {}: {worst}", gpu.name());
            assert!(worst.within());
        }
    }
    // It is called like any other op.
    let mut y = [0.0f32; 2];
    Call::new(&Silu { grad: false }).input(&[0.0f32, 30.0], [2, 1])?.output(&mut y)?.run()?;
    assert_eq!(y, [0.0, 30.0]);
    Ok(())
}
