"""RealizeVDevice and UpdateVDevice: on which device each value lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import as_vdevice, is_op, to_vdevice
from weft.relax.expr_functor import PyExprMutator
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings, rewrite_bindings


@ir.function_pass(kind=ir.Function)
def realize_vdevice(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Give every tensor that follows from one on a virtual device, or leads to one, such as the result, its device.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized`` without ``hint_on_device``: a hint on a value that lives elsewhere is a copy.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.hint_on_device(x, "llvm:1")
            b = R.exp(a)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:1")) -> R.Tensor((2,), "float32", "llvm:1"):
            a: R.Tensor((2,), "float32", "llvm:1") = x
            b: R.Tensor((2,), "float32", "llvm:1") = R.exp(a)
            return b
    Cost: Linear.
    Source: TVM's ``RealizeVDevice``.
    """
    places = _places(func)
    if not places:
        return func
    types = {v: d for v, d in places.items() if _vdevice(v) is None}
    hints = any(is_op(b.value, "hint_on_device") for b in all_bindings(func))
    if not types and not hints:
        return func
    placed: Any = _Place(mod, types).visit_expr(func) if types else func
    if not hints:
        return placed

    def rule(binding: Any, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        if not is_op(value, "hint_on_device"):
            return None
        source = value.args[0]  # type: ignore[attr-defined]
        wanted = as_vdevice(value.attrs["dst_vdevice"])  # type: ignore[attr-defined]
        here = getattr(source.ty, "vdevice", None)
        stays = here is not None and ir.structural_equal(here, wanted)
        return bb.emit(source, binding.var.name_hint) if stays else to_vdevice(source, wanted)

    return rewrite_bindings(placed, mod, rule)


def _vdevice(expr: ir.Expr) -> ir.VDevice | None:
    return expr.ty.vdevice if isinstance(expr.ty, ir.TensorType) else None


def _is_tensor(expr: ir.Expr) -> bool:
    return isinstance(getattr(expr, "ty", None), ir.TensorType)


def _copied(value: Any) -> ir.VDevice | None:
    """Return the device that a copy or hint names."""
    if is_op(value, "to_vdevice") or is_op(value, "hint_on_device"):
        return as_vdevice(value.attrs["dst_vdevice"])
    return None


def _places(func: ir.Function) -> dict[ir.ExprVar, ir.VDevice]:
    """Find the device of each tensor variable: from what it is made of, else from what is made of it."""
    bindings = [b for b in all_bindings(func) if _is_tensor(b.var)]
    place: dict[Any, ir.VDevice] = {}

    def put(var: Any, where: ir.VDevice | None) -> None:
        if where is not None and _is_tensor(var) and var not in place:
            place[var] = where

    def operands(value: ir.Expr) -> list[Any]:
        return [v for v in variables(value) if _is_tensor(v)]

    for var in (*func.params, *(b.var for b in bindings)):
        put(var, _vdevice(var))
    for var, where in _declared(func):
        put(var, where)
    forward_first = [b for b in bindings if isinstance(b.value, ir.ExprVar) or _moves_nothing(b.value)]
    for b in bindings:
        put(b.var, _copied(b.value))
        if b in forward_first:
            put(b.var, next((place[v] for v in operands(b.value) if v in place), None))
    for b in reversed(bindings):
        if is_op(b.value, "hint_on_device") or b in forward_first:
            for v in operands(b.value) if b.var in place else ():
                put(v, place[b.var])
    for b in forward_first:
        put(b.var, next((place[v] for v in operands(b.value) if v in place), None))
    return place


def _declared(func: ir.Function) -> Iterator[tuple[Any, ir.VDevice | None]]:
    """Yield what a function returns with the devices that its result is declared on."""
    values: dict[Any, Any] = {b.var: b.value for b in all_bindings(func)}
    pairs: list[tuple[Any, Any]] = [(getattr(func.body, "body", None), func.ret_ty)]
    for value, ty in pairs:
        value = values[value] if isinstance(values.get(value), ir.Tuple) else value
        if isinstance(value, ir.Tuple) and isinstance(ty, ir.TupleType):
            pairs += zip(value.fields, ty.fields, strict=True)
        yield value, getattr(ty, "vdevice", None)


def _moves_nothing(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and _copied(value) is None


class _Place(PyExprMutator):
    """Gives variables the types with their devices."""

    def __init__(self, mod: ir.IRModule, places: dict[ir.ExprVar, ir.VDevice]) -> None:
        super().__init__(mod)
        self.places = places

    def visit_var_def(self, var: Any) -> Any:
        """Return the variable on its device."""
        where = self.places.get(var)
        return var if where is None else _on(var, where)

    def visit_var_binding_(self, binding: Any) -> None:
        """Keep the device that inference does not know of."""
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self.visit_var_def(binding.var)
        self.set_var_remap(binding.var, var)
        if isinstance(value, ir.Call) and value.ty is not var.ty and _is_tensor(value) and _vdevice(value) is None:
            value = ir.Call(value.op, value.args, value.attrs, value.ty_args, span=value.span, ty=var.ty)
        unchanged = value is binding.value and var is binding.var
        self._emit(binding if unchanged else type(binding)(var, value, span=binding.span))


def _on(var: Any, where: ir.VDevice) -> Any:
    ty = var.ty
    return type(var)(var.name_hint, ir.TensorType(ty.shape, ty.dtype, ty.ndim, where), span=var.span)


def UpdateVDevice(new_vdevice: ir.VDevice, index: int) -> ir.Pass:
    """Make the pass that replaces virtual device `index` of a module by another, in all types and copies.

    Of a module that has no such device it raises an InvalidArgument.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Replace the device."""
        devices: tuple[Any, ...] = tuple(mod.global_infos.get("vdevice", ()))
        if not 0 <= index < len(devices):
            raise InvalidArgument(f"the module has no virtual device {index}", found=f"{len(devices)} virtual devices")
        old = devices[index]
        if ir.structural_equal(old, new_vdevice):
            return mod
        named = [n for _, f in mod.items() for n in ir.find(f, ir.VDevice)]
        change = {n: new_vdevice for n in named if ir.structural_equal(n, old)}
        return ir.IRModule(
            {v: ir.substitute(f, change) for v, f in mod.items()},
            mod.attrs,
            {**mod.global_infos, "vdevice": (*devices[:index], new_vdevice, *devices[index + 1 :])},
        )

    return ir.Pass("UpdateVDevice", run, 0, UpdateVDevice.__doc__)
