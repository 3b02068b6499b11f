"""ManifestAlloc: results of kernels are allocated in the program, their shapes computed where they are not constant."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.ir import Attrs, DataType, Expr, IRModule, Op, Pass, Type, as_int
from weft.ir import TupleType as IRTupleType
from weft.ir.deep import with_deep_stack
from weft.relax.transform import schedule_tir
from weft.relay.expr import Call, Constant, Function, GlobalVar, Tuple, Var, const, let_chain, lets
from weft.relay.op.memory import ALIGNMENT
from weft.relay.op.registry import get, infer_call
from weft.relay.transform.kernels import KernelTable
from weft.relay.transform.nested import with_bodies
from weft.relay.transform.shape_func import ShapeFunction, with_scalar_buffers
from weft.relay.types import TupleType, unit_type
from weft.relay.walk import operator_name
from weft.target import Target
from weft.tir.custom_datatype import stored_as


def ManifestAlloc(target: Target | str | None = None) -> Pass:
    """Make the pass that allocates the results of ``vm.call_kernel`` and computes shapes that are not constant.

    It needs the output of ``LowerRegions``. Afterwards kernels are called by ``vm.invoke_tvm_op`` on tensors from
    ``memory.alloc_tensor``; shapes and sizes that are not constant come from one shape function a region.

    Parameters
    ----------
    target : Target, optional
        For which kernels that take numbers are scheduled.
    """
    return Pass("ManifestAlloc", lambda mod: _manifest_alloc(mod, target), 0, ManifestAlloc.__doc__)


def _manifest_alloc(mod: IRModule, target: Target | str | None) -> IRModule:
    out = mod.copy()
    state = _Manifest(KernelTable(out), target)
    for gvar, func in mod.items():
        if isinstance(func, Function):
            out[gvar] = with_deep_stack(lambda f=func: with_bodies(f, state.body))
    for name in state.taking_tensors:
        del out[name]  # nothing calls the form that takes numbers
    return out


class _Manifest:
    """What is the same for all functions: kernels and constants."""

    def __init__(self, kernels: KernelTable, target: Target | str | None) -> None:
        self.kernels, self.target = kernels, target
        self.taking_tensors: dict[str, GlobalVar] = {}
        self.numbers: dict[Any, Constant] = {}

    def body(self, expr: Expr) -> Any:
        """Rewrite a chain of lets, and those inside its values; the chain itself if nothing changed."""
        bindings, tail = let_chain(expr)
        new = [(v, with_bodies(value, self.body)) for v, value in bindings]
        if not any(_is_lowered(value) for _, value in new):
            same = all(a[1] is b[1] for a, b in zip(new, bindings, strict=True))
            return expr if same else lets(new, tail)
        block = _Block(self)
        group: list[Any] = []
        for v, value in new:
            if operator_name(value) == "vm.bind_dims" and group:
                block.emit_group(group)
                group = []
            group.append((v, value))
        block.emit_group(group)
        return lets(block.bindings, tail)

    def number(self, value: Any) -> Constant:
        """Return an int64 constant, a scalar or vector, one object for each value."""
        known = self.numbers.get(value)
        if known is None:
            known = self.numbers[value] = const(np.asarray(value, np.int64), "int64")
        return known

    def with_tensors(self, gvar: GlobalVar, n_scalars: int, n_outputs: int) -> GlobalVar:
        """Return the kernel that takes tensors for the last `n_scalars` arguments of another."""
        known = self.taking_tensors.get(gvar.name_hint)
        if known is None:
            func: Any = schedule_tir(target=self.target)(IRModule({gvar.name_hint: self.kernels.mod[gvar]}))
            func = with_scalar_buffers(func[gvar.name_hint], n_scalars, n_outputs)
            known = self.taking_tensors[gvar.name_hint] = self.kernels.add(func, gvar.name_hint + "_n")
        return known


def _is_lowered(value: Expr) -> bool:
    return operator_name(value) in ("vm.bind_dims", "vm.call_kernel", "vm.view")


class _Block:
    """The bindings of one chain of lets as they are rewritten."""

    def __init__(self, state: _Manifest) -> None:
        self.state = state
        self.bindings: list[Any] = []
        self.shape_of: dict[Expr, Var] = {}
        self.shapes: ShapeFunction | None = None
        self.results: list[Var] = []

    def let(self, hint: str, op: str, *args: Expr, **attrs: Any) -> Var:
        """Bind a call of an operator to a new variable."""
        value = _typed(op, args, attrs)
        var = Var(hint, value.ty)
        self.bindings.append((var, value))
        return var

    def emit_group(self, group: list[Any]) -> None:
        """Rewrite bindings whose symbolic dimensions the first of them names, if it names any."""
        head = group[0][1]
        if operator_name(head) == "vm.bind_dims":
            self._name_shapes(head, [value for _, value in group[1:]])
            group = group[1:]
        for var, value in group:
            kind = operator_name(value)
            if kind == "vm.call_kernel":
                self._call(var, value)
            elif kind == "vm.view":
                shape, known = self._shape(value.attrs["ret_type"], value.attrs["shapes"], 0)
                self.bindings.append((var, _typed("vm.reshape_tensor", (value.args[0], shape), {"newshape": known})))
                self._remember(var, shape, known)
            else:
                self.bindings.append((var, value))
        self.shapes = None

    def _name_shapes(self, head: Call, values: list[Any]) -> None:
        """Call the shape function that computes what is asked for in the calls behind ``vm.bind_dims``."""
        tensors, vectors = head.args
        assert isinstance(tensors, Tuple) and isinstance(vectors, Tuple)
        types: Any = [f.ty for f in vectors.fields]  # type: ignore[attr-defined]
        attrs = head.attrs
        made = self.shapes = ShapeFunction(
            attrs["shapes"],
            attrs["elements"],
            [(t.dtype, t.ndim) for t in types],
            attrs["derived"],
            attrs.get("checks") or (),
        )
        for value in values:
            for ty, shape in zip(_tensor_types(value), _attr(value, "shapes"), strict=False):
                if not all(as_int(d) is not None for d in shape):
                    made.output(tuple(shape))
                    if operator_name(value) == "vm.call_kernel":
                        made.output(prod(shape, start=_itemsize(ty.dtype)))
            for number in _attr(value, "scalars"):
                if as_int(number) is None:
                    made.output(number)
        if not made.outputs and not made.checks:
            return
        inputs = [self._shape_of(t) for t in tensors.fields] + list(vectors.fields)
        places, total = [], 0
        for out in made.outputs:
            places.append(total)
            total += _padded(8 * len(out) if isinstance(out, tuple) else 8)
        storage = self._storage(self.state.number(total))
        self.results = []
        for out, at in zip(made.outputs, places, strict=True):
            dims = (len(out),) if isinstance(out, tuple) else ()
            self.results.append(
                self._tensor("shape" if dims else "size", storage, at, self.state.number(dims), dims, "int64")
            )
        kernel = self.state.kernels.add(made.build(), "shape_func")
        self.let("_", "vm.invoke_tvm_op", kernel, _tuple(inputs), _tuple(self.results))

    def _shape_of(self, tensor: Expr) -> Any:
        known = self.shape_of.get(tensor)
        return known if known is not None else self.let("shape", "vm.shape_of", tensor)

    def _scalar(self, value: Any) -> Any:
        n = as_int(value)
        assert n is not None or self.shapes is not None
        return self.state.number(n) if n is not None else self.results[self.shapes.output(value)]  # type: ignore[union-attr]

    def _shape(self, ty: Type, shapes: Any, i: int) -> tuple[Any, tuple[int, ...]]:
        """The shape of an output, as a vector and as far as it is known."""
        known = tuple(-1 if as_int(d) is None else int(as_int(d)) for d in ty.shape)  # type: ignore[arg-type]
        if -1 not in known:
            return self.state.number(known), known
        assert self.shapes is not None
        return self.results[self.shapes.output(tuple(shapes[i]))], known

    def _call(self, var: Var, value: Call) -> None:
        """Allocate the outputs, then call the kernel."""
        attrs, kernel = value.attrs, value.args[0]
        inputs = list(value.args[1].fields)  # type: ignore[attr-defined]
        types = _tensor_types(value)
        outs: list[Var] = []
        for i, ty in enumerate(types):
            shape, known = self._shape(ty, attrs["shapes"], i)
            size = self._scalar(
                prod(known, start=_itemsize(ty.dtype))
                if -1 not in known
                else prod(attrs["shapes"][i], start=_itemsize(ty.dtype))
            )
            storage = self._storage(size, attrs.get("device_index") or 0)
            single = None if isinstance(attrs["ret_type"], IRTupleType) else var
            outs.append(self._tensor(var.name_hint, storage, 0, shape, known, ty.dtype, single))
            self._remember(outs[-1], shape, known)
        if attrs["scalars"]:
            assert isinstance(kernel, GlobalVar)
            kernel = self.state.with_tensors(kernel, len(attrs["scalars"]), len(outs))
            inputs += [self._scalar(s) for s in attrs["scalars"]]
        self.let("_", "vm.invoke_tvm_op", kernel, _tuple(inputs), _tuple(outs))
        if isinstance(attrs["ret_type"], IRTupleType):
            self.bindings.append((var, _tuple(outs)))

    def _storage(self, size: Expr, device: int = 0) -> Var:
        return self.let("storage", "memory.alloc_storage", size, alignment=ALIGNMENT, device_index=device)

    def _tensor(
        self, hint: str, held: Var, offset: int, shape: Expr, known: tuple[int, ...], dtype: str, var: Var | None = None
    ) -> Var:
        fixed = None if -1 in known else known
        attrs = {"offset": offset, "dtype": stored_as(dtype), "const_shape": fixed, "assert_shape": known}
        value = _typed("memory.alloc_tensor", (held, shape), attrs)
        bound: Var = var if var is not None else Var(hint, value.ty)
        self.bindings.append((bound, value))
        return bound

    def _remember(self, var: Var, shape: Any, known: tuple[int, ...]) -> None:
        if -1 in known:
            self.shape_of[var] = shape


def _typed(op: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
    call = Call(Op.get(op), args, Attrs.of({**get(op).attrs, **attrs}))
    return Call(call.op, call.args, call.attrs, ty=infer_call(call))


def _tuple(fields: list[Any]) -> Tuple:
    return Tuple(tuple(fields), ty=TupleType(tuple(f.ty for f in fields)))


def _attr(value: Any, name: str) -> Any:
    """An attribute of a call in the lowered form; () where it is not there or not set."""
    return (value.attrs.get(name) if isinstance(value, Call) and _is_lowered(value) else None) or ()


def _tensor_types(value: Call) -> list[Any]:
    """The types of an operation's results, as it states them."""
    ty = value.attrs["ret_type"] if _is_lowered(value) and "ret_type" in value.attrs else unit_type()
    return list(ty.fields) if isinstance(ty, IRTupleType) else [ty]


def _itemsize(dtype: str) -> int:
    return DataType(dtype).itemsize


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
