"""Layers that write themselves into the function under construction, for examples and tests of passes.

Each is a call of a TIR function made by ``emit_te``. Models for use are written with ``weft.relax.frontend.nn``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import error, ir, op, topi
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Var
from weft.runtime import Tensor, tensor

_add: Callable[..., Any] = vars(topi)["add"]


def _builder() -> BlockBuilder:
    current = BlockBuilder.current()
    if current is None:
        raise error.InvalidArgument("there is no function under construction", help="use `with bb.function(name):`")
    return current


def emit(expr: ir.Expr, name_hint: str = "lv") -> Var:
    """Bind an expression in the function under construction."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: ir.Expr, **kwargs: Any) -> Var:
    """Bind a call of a te function in the function under construction."""
    return _builder().emit_te(func, *args, **kwargs)


def _marked(mark: str, value: Any) -> Any:
    """A value with a mark for Gradient, which it is told apart by; what is no expression stays."""
    return op.make_call(f"grad.{mark}_checkpoint")(value) if isinstance(value, ir.Expr) else value


def checkpoint(func: Callable[..., Any], *args: ir.Expr, **kwargs: Any) -> Any:
    """Call a function whose values the gradient computes again from the arguments, in place of keeping them.

    Parameters
    ----------
    func : callable
        Of expressions; returns one, or a sequence.

    Returns
    -------
    Expr or list
        The function's results, marked.
    """
    result = func(*(_marked("start", a) for a in args), **{k: _marked("start", v) for k, v in kwargs.items()})
    return [_marked("end", r) for r in result] if isinstance(result, (list, tuple)) else _marked("end", result)


def _emitted(mark: str, value: Any) -> Any:
    if not isinstance(value, ir.Expr):
        return value
    var: Any = value if isinstance(value, ir.ExprVar) else emit(value)
    return emit(_marked(mark, var), f"{var.name_hint}_{mark[0]}cp")


def emit_checkpoint(func: Callable[..., Any], *args: ir.Expr, **kwargs: Any) -> Any:
    """Do what :func:`checkpoint` does and bind marked values, under names that end in ``_scp`` and ``_ecp``."""
    result = func(*(_emitted("start", a) for a in args), **{k: _emitted("start", v) for k, v in kwargs.items()})
    return [_emitted("end", r) for r in result] if isinstance(result, (list, tuple)) else _emitted("end", result)


def emit_checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]],
    segments: int | Sequence[int],
    input: ir.Expr,
    checkpoint_last: bool = False,
) -> Var:
    """Call functions one after another, in segments of which the gradient keeps the arguments alone.

    Parameters
    ----------
    segments : int or sequence of int
        How many, of equal length but the last; or where each begins.
    checkpoint_last : bool
        Whether the values of the last segment are computed again too.

    Raises
    ------
    InvalidArgument
        When there are more segments than functions, or they do not begin one after another.
    """
    n = len(functions)
    if isinstance(segments, int):
        if not 0 < segments <= n:
            raise error.InvalidArgument(
                "emit_checkpoint_sequential: the number of segments",
                found=str(segments),
                expected=f"at least 1, at most {n}",
            )
        segments = range(0, n, n // segments)
    ends = [s for s in segments if s != n] + [n]
    if ends[0] != 0 or any(a >= b for a, b in itertools.pairwise(ends)):
        raise error.InvalidArgument(
            "emit_checkpoint_sequential: where segments begin",
            found=str(list(segments)),
            expected=f"0 first, then growing, below {n}",
        )
    value: Any = input
    for first, end in itertools.pairwise(ends):
        part = Sequential(*functions[first:end])  # type: ignore[arg-type]
        value = part(value) if end == n and not checkpoint_last else emit_checkpoint(part, value)
    return value if isinstance(value, ir.ExprVar) else emit(value)  # type: ignore[return-value]


def Placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> Var:
    """Make an input of a function."""
    return Var(name if BlockBuilder.current() is None else _builder().fresh_name(name), ir.tensor_type(shape, dtype))


def Parameter(shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> Var:
    """Make a parameter: an attribute of a module that is such a variable is one of its parameters."""
    return Placeholder(shape, dtype, name)


class Module:
    """A layer, or several; ``forward`` emits what it computes."""

    forward: Callable[..., Any]

    def __call__(self, *args: ir.Expr) -> Any:
        """Emit the layer."""
        return self.forward(*args)

    def parameters(self) -> list[Var]:
        """List the parameters, those of inner modules too."""
        return list(_parameters(list(vars(self).values())))


def _parameters(value: Any) -> Iterator[Var]:
    if isinstance(value, Var):
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _parameters(element)


class Sequential(Module):
    """Modules one after another."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, x: ir.Expr) -> ir.Expr:
        """Emit them."""
        for module in self.modules:
            x = module(x)
        return x


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, input: ir.Expr) -> Var:
        """Emit it."""
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """The logarithm of softmax."""

    def forward(self, input: ir.Expr) -> Var:
        """Emit it."""
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """``x @ weight + bias``, with a weight of (in_features, out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: ir.Expr) -> Var:
        """Emit it."""
        y = emit_te(topi.matmul, input, self.weight)
        return y if self.bias is None else emit_te(_add, y, self.bias)


def init_params(mod: ir.IRModule) -> list[Tensor]:
    """Draw values for all parameters of ``main`` after the first, from [0, 1).

    Raises
    ------
    InvalidArgument
        When there is no ``main``, or the shape of a parameter is not known.
    """
    main = mod["main"] if "main" in mod else None
    if not isinstance(main, ir.Function):
        raise error.InvalidArgument("init_params needs a Relax function 'main'")
    rng, out = np.random.default_rng(), []
    for param in main.params[1:]:
        ty = param.ty
        sizes = [ir.as_int(d) for d in ty.shape] if isinstance(ty, ir.TensorType) and ty.shape is not None else [None]
        if None in sizes:
            raise error.InvalidArgument(f"the shape of parameter '{param.name_hint}' is not known", found=str(ty))
        out.append(tensor(rng.random(sizes).astype(ir.numpy_dtype(ty.dtype))))  # type: ignore[union-attr]
    return out
