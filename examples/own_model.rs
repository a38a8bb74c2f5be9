//! A small model with a loss of one's own: tape, parameters, program. It learns XOR.
use tgnn::{
    autograd::{Parameters, Program, ScaledInit},
    error::Result,
    ops::{Backend, Tape, epilogue::Activation::*},
    runtime::*,
};

fn main() -> Result<()> {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let inputs = [0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
    let x = t.input(&mut store, "x", Spec::real(Rows::fixed(4), 2), &inputs)?;
    let y = t.input(&mut store, "y", Spec::real(Rows::fixed(4), 1), &[0.0f32, 1.0, 1.0, 0.0])?;
    let mut parameters = Parameters::new(&mut store, 3, 0.05)?;
    let mut weights = |name, rows, cols| parameters.add(&mut store, name, rows, cols, ScaledInit::FanIn(2));
    let ids = [weights("w", 8, 2)?, weights("b", 1, 8)?, weights("out", 1, 8)?];

    // The model: a tape is a program as data. `linear(x, w, ..)` is x W^T.
    let [w, b, w_out] = t.stored_all(ids)?;
    let hidden = t.linear(x, w, Some(b), None, Tanh)?;
    let out = t.linear(hidden, w_out, None, None, Identity)?;
    // The loss: the mean of the squared differences.
    let off = t.sub(out, y)?;
    let squares = t.mul(off, off)?;
    let loss = t.mean(squares)?;
    // Its backward pass and the optimiser's update are more nodes of the same tape.
    parameters.minimize(&mut t, loss)?;
    print!("{t}");

    let mut program = Program::new(&t, &[loss, out], Precision::F32, Backend::Cpu)?;
    (0..400).try_for_each(|_| program.run(&mut store))?;
    let loss = program.read::<f32>(loss, &store)?[0];
    println!("0^0, 0^1, 1^0, 1^1 = {:.2?}, loss {loss:.1e}", program.read::<f32>(out, &store)?);
    assert!(loss < 1e-2);
    Ok(())
}
