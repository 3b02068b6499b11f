"""Building tensor expressions: placeholder, compute, reductions, scan, extern."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, cast

from weft import ir, tir
from weft.error import InvalidArgument
from weft.te.tensor import ComputeOp, ExternOp, PlaceholderOp, ScanOp, Tensor, TensorSlice

Shape = Sequence[ir.PrimExpr | int] | ir.PrimExpr | int
"""The extents of a tensor; one number is that of the only dimension."""

_TAG: ir.Ambient[str] = ir.Ambient("tag_scope")


def var(name: str = "tindex", dtype: str = "int32") -> ir.Var:
    """Make a scalar variable."""
    return ir.Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> ir.SizeVar:
    """Make a variable that is at least zero."""
    return ir.SizeVar(name, dtype)


@contextmanager
def tag_scope(tag: str) -> Generator[None, None, None]:
    """Tag the operations made inside the ``with``."""
    if _TAG.current is not None:
        raise InvalidArgument("tag scopes do not nest", found=f"'{tag}' inside '{_TAG.current}'")
    _TAG.enter(tag)
    try:
        yield
    finally:
        _TAG.leave(tag)


def _dims(shape: Shape) -> tuple[ir.PrimExpr, ...]:
    return tuple(_extent(d) for d in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def _extent(given: Any) -> ir.PrimExpr:
    if isinstance(given, float) and given.is_integer():  # programs divide with /
        given = int(given)
    dim = None if isinstance(given, (float, str, bool)) else ir.as_expr(given)
    if dim is None or not ir.DataType(dim.dtype).is_integer or (ir.as_int(dim) or 0) < 0:
        raise InvalidArgument("the extents of a shape are integers, none below zero", found=repr(given))
    return dim


def placeholder(shape: Shape, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """Make an input tensor."""
    return PlaceholderOp(name, shape=_dims(shape), dtype=ir.DataType(dtype)).output(0)


def compute(
    shape: Shape,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Make a tensor whose elements `fcompute` gives.

    Parameters
    ----------
    shape : int, PrimExpr or tuple of them
        The extents.
    fcompute : callable
        From one index per dimension (or ``*indices``) to a scalar expression, or to a tuple of them for several
        outputs.

    Returns
    -------
    Tensor or tuple of Tensor
        One tensor for each expression.
    """
    dims = _dims(shape)
    names, taken = _index_names(fcompute, len(dims), varargs_names)
    axis = tuple(ir.IterVar(ir.Range(d), ir.Var(n, d.dtype)) for n, d in zip(names, dims, strict=True))
    body = fcompute(*[iv.var for iv in axis[:taken]])
    called = isinstance(body, tuple) and body and isinstance(body[0], tir.IntrinCall)
    if called:
        body = tuple(ir.with_fields(call, own_axes=len(dims) - taken) for call in body)
    elif taken < len(dims):
        raise _other_rank(len(dims), taken)
    several = isinstance(body, (tuple, list)) and not (called and len(body) == 1)
    exprs = tuple(_element(name, b) for b in (body if isinstance(body, (tuple, list)) else (body,)))
    if len(exprs) != 1:
        _check_outputs(name, exprs)
    op = ComputeOp(name, _tagged(tag), ir.Attrs.of(attrs), axis=axis, body=exprs)
    outs = tuple(op.output(i) for i in range(len(exprs)))
    return outs if several else outs[0]


def _element(name: str, body: Any) -> ir.PrimExpr:
    """Return what an element is, of what a compute function gave."""
    if body is None or isinstance(body, (str, Tensor)):
        raise InvalidArgument(
            f"the function of compute '{name}' gives no scalar expression",
            found=repr(body),
            help="return what one element is, such as A[i, j] + 1",
        )
    return ir.as_expr(body)


def _check_outputs(name: str, exprs: tuple[ir.PrimExpr, ...]) -> None:
    """Refuse no outputs at all, and reductions that do not belong together."""
    if not exprs:
        raise InvalidArgument(f"compute '{name}' has no outputs", found="()")
    first = exprs[0]
    reductions = [e for e in exprs if isinstance(e, tir.Reduce)]
    if reductions and not (
        isinstance(first, tir.Reduce)
        and len(reductions) == len(exprs)
        and all(
            e.combiner is first.combiner and e.source == first.source and e.axis == first.axis and e.value_index == i
            for i, e in enumerate(reductions)
        )
    ):
        raise InvalidArgument(
            f"the outputs of compute '{name}' are not the components of one reduction",
            help="reduce a tuple by te.comm_reducer, or compute each by itself",
        )


def _tagged(tag: str) -> str:
    if tag and _TAG.current is not None:
        raise InvalidArgument("an operation has one tag", found=f"tag='{tag}' inside tag_scope('{_TAG.current}')")
    return tag or _TAG.current or ""


def _index_names(fcompute: Callable[..., Any], ndim: int, varargs_names: Any) -> tuple[list[str], int]:
    """Return the names of the axes, and how many of them the function takes: an intrinsic's own have no index."""
    code = getattr(fcompute, "__code__", None)
    if code is None or inspect.ismethod(fcompute):
        return [f"i{i}" for i in range(ndim)], ndim
    positional = list(code.co_varnames[: code.co_argcount])
    if code.co_flags & inspect.CO_VARARGS:
        rest = list(varargs_names or [f"i{i}" for i in range(ndim - len(positional))])
        return positional[:ndim] + rest, ndim
    required = len(positional) - len(fcompute.__defaults__ or ())  # type: ignore[attr-defined]
    if required > ndim:
        raise _other_rank(ndim, len(positional))
    names = positional[:ndim]
    return names + [f"ax{i}" for i in range(len(names), ndim)], len(names)


def _other_rank(ndim: int, found: int) -> InvalidArgument:
    return InvalidArgument(
        "the compute function takes another number of indices", expected=f"{ndim} (the rank)", found=str(found)
    )


def reduce_axis(
    dom: ir.Range | Sequence[ir.ExprLike], name: str = "rv", thread_tag: str = "", span: ir.Span | None = None
) -> ir.IterVar:
    """Make a reduction variable over ``(begin, end)`` or a Range."""
    if not isinstance(dom, ir.Range):
        if not isinstance(dom, (tuple, list)) or len(dom) != 2:
            raise InvalidArgument("a reduction runs over (begin, end)", found=repr(dom), help="te.reduce_axis((0, n))")
        begin, end = (ir.as_expr(d) for d in dom)
        if end.dtype != begin.dtype:
            begin = ir.cast(end.dtype, begin)
        dom = ir.Range.from_min_extent(begin, ir.sub(end, begin))
    return ir.IterVar(dom, ir.Var(name, dom.extent.dtype), "reduce", thread_tag)


def thread_axis(
    dom: ir.Range | ir.ExprLike | Sequence[ir.ExprLike] | str | None = None,
    tag: str = "",
    name: str = "",
    span: ir.Span | None = None,
) -> ir.IterVar:
    """Make a variable that is bound to a hardware thread index such as ``"threadIdx.x"``."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise InvalidArgument("thread_axis needs a tag", expected="'blockIdx.x', 'threadIdx.x', 'vthread', ...")
    if dom is not None and not isinstance(dom, ir.Range):
        extent = ir.as_expr(dom[1] if isinstance(dom, (tuple, list)) else dom)
        dom = ir.Range.from_min_extent(0, extent)
    return ir.IterVar(dom, ir.Var(name or tag, "int32"), "thread", tag)


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a reduction from a commutative, associative function and its identity.

    Parameters
    ----------
    fcombine : callable
        From two values (or two tuples of values) to their combination.
    fidentity : callable
        From the data types of the values to the identity element(s).

    Returns
    -------
    callable
        ``reducer(expr, axis, where=None, init=None)``; with tuples it returns one expression for each component. Of
        values alone, ``reducer(a, b, ...)``, it is their combination.
    """

    def reducer(expr: Any, *rest: Any, **named: Any) -> Any:
        if rest and _is_operand(rest[0]):  # values, and no axes
            return reduce(fcombine, map(ir.as_expr, (expr, *rest)))
        return reduction(expr, *rest, **named)

    def reduction(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Any:
        several = isinstance(expr, (tuple, list))
        source = tuple(map(ir.as_expr, _listed(expr)))
        dtypes = [e.dtype for e in source]
        lhs = tuple(ir.Var(f"x{i}", d) for i, d in enumerate(dtypes))
        rhs = tuple(ir.Var(f"y{i}", d) for i, d in enumerate(dtypes))
        result = _listed(fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0]))
        identity = _listed(_called(fidentity, f"the identity of {name}", *dtypes))
        for what, got in (("combination", result), ("identity", identity)):
            if len(got) != len(source):
                raise InvalidArgument(
                    f"the {what} of {name} has another number of components than what it reduces",
                    expected=str(len(source)),
                    found=str(len(got)),
                )
        combiner = tir.CommReducer(lhs, rhs, tuple(map(ir.as_expr, result)), tuple(map(ir.as_expr, identity)))
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        wrong = next((a for a in axes if not isinstance(a, ir.IterVar) or a.iter_type != "reduce"), None)
        if wrong is not None or not axes:
            raise InvalidArgument(f"{name} runs over axes of te.reduce_axis", found=repr(wrong) if axes else "none")
        inits = () if init is None else tuple(ir.as_expr(i) for i in _listed(init))
        parts = tuple(
            tir.Reduce(combiner, source, axes, ir.TRUE if where is None else ir.as_expr(where), i, inits)
            for i in range(len(source))
        )
        return parts if several else parts[0]

    reducer.__name__ = reduction.__name__ = name
    return reducer


def _is_operand(value: Any) -> bool:
    """Whether a reducer's second argument is a value to combine, and no axis."""
    return isinstance(value, (ir.PrimExpr, int, float, TensorSlice)) and not isinstance(value, ir.IterVar)


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _called(function: Callable[..., Any], what: str, *args: Any) -> Any:
    """Call a function of the user's own that may take another number of arguments."""
    try:
        inspect.signature(function).bind(*args)
    except TypeError as e:
        raise InvalidArgument(f"{what} takes another number of arguments", expected=str(len(args)), found=str(e)) from e
    except ValueError:  # of functions that have no signature
        pass
    return function(*args)


def lowest(dtype: str) -> ir.PrimExpr:
    """The identity of max: minus infinity, the least integer, or what ``register_min_func`` says of a type."""
    dt = ir.DataType(dtype)
    if dt.is_custom:
        return tir.min_value(dt)
    if dt.is_float:
        return ir.FloatImm(dt, float("-inf"))
    return ir.const(0 if dt.code in ("uint", "bool") else -(1 << (dt.bits - 1)), dt)


def highest(dtype: str) -> ir.PrimExpr:
    """The identity of min: infinity, or the greatest integer."""
    dt = ir.DataType(dtype)
    if dt.is_custom:
        raise InvalidArgument(f"the greatest value of '{dt}' is not known", help="reduce negated values by max")
    if dt.is_float:
        return ir.FloatImm(dt, float("inf"))
    return ir.const(1 if dt == "bool" else (1 << dt.bits) - 1 if dt.code == "uint" else (1 << (dt.bits - 1)) - 1, dt)


sum = comm_reducer(lambda x, y: x + y, lambda t: ir.const(0, t), name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda t: ir.const(1, t), name="prod")
max = comm_reducer(ir.max_, lowest, name="max")
min = comm_reducer(ir.min_, highest, name="min")


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] = (),
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Make a recurrence over the first axis.

    Parameters
    ----------
    init, update, state_placeholder : Tensor or list of Tensor
        ``update`` computes row t from row t - 1 of ``state_placeholder``; ``init`` gives the first rows.
    """
    inits, updates, states = (_listed(v) for v in (init, update, state_placeholder))
    _check_scan(name, inits, updates, states)
    first = inits[0].shape[0]
    axis = ir.IterVar(
        ir.Range.from_min_extent(first, ir.sub(updates[0].shape[0], first)),
        ir.Var(f"{name}.idx", first.dtype),
        "ordered",
    )
    op = ScanOp(
        name,
        _tagged(tag),
        ir.Attrs.of(attrs),
        scan_axis=axis,
        init=inits,
        update=updates,
        state_placeholder=states,
        inputs=(inputs,) if isinstance(inputs, Tensor) else tuple(inputs or ()),
    )
    outs = [op.output(i) for i in range(len(updates))]
    return outs[0] if len(outs) == 1 else outs


def _check_scan(name: str, inits: Sequence[Any], updates: Sequence[Any], states: Sequence[Any]) -> None:
    """Refuse states whose first rows or updates are of another shape or type."""
    if not len(inits) == len(updates) == len(states) or not states:
        raise InvalidArgument(
            f"scan '{name}' needs first rows and an update for each state",
            found=f"{len(inits)} init, {len(updates)} update, {len(states)} states",
        )
    for init, update, state in zip(inits, updates, states, strict=True):
        if not isinstance(state.op, PlaceholderOp):
            raise InvalidArgument(f"scan '{name}': the state '{state.name}' is no placeholder")
        for t in (init, update):
            if (
                t.dtype != state.dtype
                or not ir.structural_equal(t.shape[1:], state.shape[1:])
                or (t is update and not ir.structural_equal(t.shape, state.shape))
            ):
                raise InvalidArgument(
                    f"scan '{name}': '{t.name}' does not fit the state '{state.name}'",
                    expected=f"{state.dtype}, {_shown(state.shape)}",
                    found=f"{t.dtype}, {_shown(t.shape)}",
                )


def _shown(shape: Sequence[ir.PrimExpr]) -> str:
    return f"({', '.join(map(str, shape))})"


def extern(
    shape: Shape | Sequence[Shape],
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: tir.Buffer | Sequence[tir.Buffer] | None = None,
    out_buffers: tir.Buffer | Sequence[tir.Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Make tensors that a statement fills.

    Parameters
    ----------
    shape : tuple, or list of tuples
        The shape of each output.
    fcompute : callable
        ``fcompute(inputs, outputs)`` from lists of buffers to a statement (or an expression, evaluated for its effect).
    """
    several = isinstance(shape, (tuple, list)) and shape and isinstance(shape[0], (tuple, list))
    shapes = [_dims(x) for x in cast("Sequence[Shape]", shape if several else [shape])]
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype or [])
    if not dtypes:
        if len({t.dtype for t in inputs}) != 1:
            raise InvalidArgument("extern cannot tell the data type of its outputs", help="give dtype=")
        dtypes = [inputs[0].dtype] * len(shapes)
    ins = list(_listed(in_buffers)) if in_buffers else [tir.decl_buffer(t.shape, t.dtype, t.name) for t in inputs]
    outs = (
        list(_listed(out_buffers))
        if out_buffers
        else [
            tir.decl_buffer(x, d, name if len(shapes) == 1 else f"{name}_{i}")
            for i, (x, d) in enumerate(zip(shapes, dtypes, strict=True))
        ]
    )
    body = fcompute(ins, outs)
    if not isinstance(body, (tir.Stmt, ir.PrimExpr)):
        raise InvalidArgument(
            f"the function of extern '{name}' gives no statement",
            found=repr(body),
            help="return ib.get(), or a call such as tir.call_packed(...)",
        )
    if not isinstance(body, tir.Stmt):
        body = tir.Evaluate(body)
    op = ExternOp(
        name,
        _tagged(tag),
        ir.Attrs.of(attrs),
        inputs=tuple(inputs),
        input_placeholders=tuple(ins),
        output_placeholders=tuple(outs),
        body=body,
    )
    tensors = [op.output(i) for i in range(len(outs))]
    return tensors[0] if len(tensors) == 1 else tensors


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: tir.PrimFunc, **kwargs: Any) -> Any:
    """Make tensors of what a TIR function writes.

    Parameters
    ----------
    input_tensors : list of Tensor
        One for each parameter that the function reads, in order. A parameter that it writes as well stays an input,
        written in place; where it writes no other, the last such parameter is the output.
    primfunc : PrimFunc
        Its parameters are buffers of constant or symbolic shapes.
    **kwargs
        Those of :func:`extern`, such as ``name``.
    """
    buffers = [b for _, b in primfunc.buffer_map]
    read = {n.buffer for n in ir.find(primfunc.body, tir.BufferLoad)}
    written = {n.buffer for n in ir.find(primfunc.body, tir.BufferStore)}
    outs = [b for b in buffers if b in written and b not in read] or [b for b in buffers if b in written][-1:]
    ins = [b for b in buffers if b in read and b not in outs]
    if not outs or len(ins) != len(input_tensors):
        raise InvalidArgument(
            "extern_primfunc: the tensors are not those that the function reads",
            expected=f"{[b.name for b in ins]}, and a buffer that it writes",
            found=f"{len(input_tensors)} tensors, {[b.name for b in outs]} written",
        )
    for tensor, buffer in zip(input_tensors, ins, strict=True):
        if len(tensor.shape) != len(buffer.shape) or tensor.dtype != buffer.dtype:
            raise InvalidArgument(
                f"extern_primfunc: '{tensor.name}' is no '{buffer.name}'",
                expected=f"{buffer.shape} {buffer.dtype}",
                found=f"{tensor.shape} {tensor.dtype}",
            )
    body = primfunc.body
    if isinstance(body, tir.BlockRealize) and body.block.name_hint == "root":
        inner = body.block
        body = inner.body
        for buffer in reversed(inner.alloc_buffers):
            body = tir.AllocBuffer(buffer, body)
    return extern(
        [b.shape for b in outs],
        input_tensors,
        lambda *_: body,
        in_buffers=ins,
        out_buffers=outs,
        dtype=[b.dtype for b in outs],
        **kwargs,
    )
