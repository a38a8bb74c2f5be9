"""The kernels as autograd functions of torch."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._arrays import array, is_tensor
from ._errors import DataError, UsageError

Compute = Callable[..., Any]


class Spmm(torch.autograd.Function):
    """A product with a sparse matrix, which is linear: its gradient is a product, too."""

    @staticmethod
    def forward(on: Any, a: Any, x: Any, transpose: bool) -> Any:
        return on.multiply(a, x, transpose).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.on, ctx.a, _, ctx.transpose = inputs

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return None, None, Spmm.apply(ctx.on, ctx.a, dy, not ctx.transpose), None

    @staticmethod
    def jvp(ctx: Any, on: None, a: None, dx: Any, transpose: None) -> Any:
        return Spmm.apply(ctx.on, ctx.a, dx, ctx.transpose)

    @staticmethod
    def vmap(info: Any, in_dims: Any, on: Any, a: Any, x: Any, transpose: bool) -> Any:
        x = x.movedim(in_dims[2], -1)
        y = Spmm.apply(on, a, x.reshape(len(x), -1), transpose)
        return y.reshape(len(y), *x.shape[1:]), x.dim() - 1


class Kernel(torch.autograd.Function):
    """A kernel, differentiable once: `compute(learned)` gives its outputs, some state, and the tensors from which
    `gradients(state, tensors, *grads)` computes."""

    @staticmethod
    def forward(ctx: Any, op: str, compute: Compute, gradients: Compute, *learned: Any) -> Any:
        outputs, state, saved = compute(learned)
        ctx.op, ctx.count = op, len(learned)
        ctx.gradients = lambda saved, *grads: gradients(state, saved, *grads)
        # torch refuses the backward pass if one of them has been changed in place since.
        ctx.save_for_backward(*learned, *saved)
        ctx.mark_non_differentiable(*(y for y in outputs if not y.is_floating_point()))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        learned, saved = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        return None, None, None, *Gradients.apply(ctx.op, ctx.gradients, saved, len(grads), *grads, *learned)


class Gradients(torch.autograd.Function):
    """The gradients of a kernel, which depend on those of its outputs and on what is learned, and are the last ones.

    `once_differentiable` of torch would lose the dependence on what is learned, and give a gradient of zero.
    """

    @staticmethod
    def forward(ctx: Any, op: str, gradients: Compute, saved: Any, outputs: int, *tensors: Any) -> Any:
        ctx.op = op
        found = gradients(saved, *tensors[:outputs])
        return tuple(g.reshape(x.shape).to(x.dtype) for g, x in zip(found, tensors[outputs:]))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UsageError(f"{ctx.op} can be differentiated once; leave out create_graph=True, or detach its gradient")


def apply(op: str, compute: Compute, gradients: Compute, learned: Any) -> Any:
    """The outputs of a kernel, differentiable in `learned`."""
    try:
        return Kernel.apply(op, compute, gradients, *learned)
    except RuntimeError as e:
        if "setup_context" not in str(e):
            raise
    raise UsageError(f"{op} has no rules for torch.func and vmap; use torch.autograd.grad, or a loop")


def tensors(op: str, operands: dict[str, Any]) -> dict[str, Any]:
    """Operands with copies of arrays as tensors."""
    return {name: x if x is None or is_tensor(x) else _tensor(x, f"{op}: {name}") for name, x in operands.items()}


def _tensor(x: Any, what: str) -> torch.Tensor:
    x = array(x, what)
    if x.dtype.kind not in "fiub":
        raise DataError(f"{what} is of type {x.dtype}; give numbers")
    return torch.tensor(x)
