"""VMShapeLower for pipelines of one's own: the checks of ``vm_shape_lower``, as calls of packed functions.

What TVM's pass of this name makes: the heap is there in every function, its slots are numbered by where expressions
first stand, elements of tuples are taken by Relax, and a cast stays beside its checks.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.relax.core_ops import call_builtin, call_packed, null_value
from weft.relax.expr import MatchCast, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.transform.vm_shape_lower import ASSERT_IMM, ASSERT_LOAD, Lowerer, type_dims, typed


def VMShapeLower(*, emit_err_ctx: bool = True) -> ir.Pass:
    """Make the pass that checks parameter types at entry and computes symbolic shapes in a heap.

    Parameters
    ----------
    emit_err_ctx : bool
        Whether checks know what they check, for the message.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Lower each function."""
        out = mod.copy()
        for gvar, func in mod.items():
            if isinstance(func, ir.Function):
                out[gvar] = _Packed(gvar.name_hint, func, out, emit_err_ctx).run()
        return out

    return ir.Pass("VMShapeLower", run, 0, VMShapeLower.__doc__)


class _Packed(Lowerer):
    """Lowers one function to calls of packed functions."""

    def __init__(self, name: str, func: ir.Function, mod: ir.IRModule, named: bool) -> None:
        super().__init__(name, func, mod)
        self.named = named
        self.entry = self.weights = False
        for expr in self.needed():
            self.slot(expr)
        heap = ir.TensorType(None, "int64", 1) if self.slots else ir.AnyType()
        self.heap = RelaxVar("shape_heap", heap)

    def needed(self) -> list[ir.PrimExpr]:
        """The symbolic expressions of types and values, in order."""
        declared = [d for d in type_dims(self.func.ret_ty) if isinstance(d, ir.PrimExpr)]
        return [*super().needed(), *(d for d in declared if not isinstance(d, ir.IntImm))]

    def allocation(self) -> list[Any]:
        """The binding of the heap; of nothing, where there are no symbolic sizes."""
        if not self.slots:
            return [VarBinding(self.heap, typed(null_value(), ir.AnyType()))]
        alloc = call_builtin("vm.builtin.alloc_shape_heap", [len(self.slots)], self.heap.ty, with_ctx=True)
        return [VarBinding(self.heap, typed(alloc, self.heap.ty))]  # type: ignore[arg-type]

    def call(self, name: str, args: list[Any], ty: ir.Type) -> ir.Call:
        """Make the call of a packed function; of a shape its type says the rank."""
        known = ir.ShapeType(None, ty.ndim) if isinstance(ty, ir.ShapeType) else ty
        return typed(call_packed(name, *args, ty_args=(known,)), known)

    def bind(self, name: str, args: list[Any], ty: ir.Type) -> RelaxVar:
        """Emit a call and return its variable."""
        made = self.call(name, args, ty)
        return self.bind_value(made, made.ty)  # type: ignore[arg-type]

    def check_params(self, late: list[Any]) -> None:
        """Emit the checks of the parameters; of weights, only where their sizes vary."""
        inputs = self.func.attrs.get("num_input", len(self.func.params))
        self.entry = True
        for i, p in enumerate(self.func.params):
            self.weights = i >= inputs
            self.check_param(p, p.ty or ir.AnyType(), f"{self.name}: parameter {i} '{p.name_hint}'", late)
        self.entry = self.weights = False

    def check_param(self, value: ir.Expr, ty: ir.Type, context: str, late: list[Any]) -> None:
        """Emit the check that `value` has type `ty`, where it is a parameter or its own type does not imply that."""
        if not self.needs_check(ty):
            return
        if isinstance(ty, ir.TensorType) and not self.entry and _is_implied(ty, value.ty):
            late += [(value, ty.shape, context)] if ty.shape is not None else []
        else:
            super().check_param(value, ty, context, late)

    def needs_check(self, ty: ir.Type) -> bool:
        """Whether a type is checked: all but those of weights whose sizes are known."""
        shape = ty.shape if isinstance(ty, ir.TensorType) and self.weights else None
        return shape is None or not all(isinstance(d, ir.IntImm) for d in shape)

    def null_heap(self) -> ir.Expr:
        """The heap, which stands for nothing in functions without symbolic dimensions."""
        return self.heap

    def field(self, value: ir.Expr, index: int, ty: ir.Type) -> ir.Expr:
        """Emit the access to an element, which a check found where the type of the value does not say it."""
        if isinstance(value.ty, ir.TupleType):
            return self.bind_value(ir.TupleGetItem(value, index, ty=ty), ty)
        return self.bind("vm.builtin.tuple_getitem", [value, index], ir.AnyType())

    def dtype_operand(self, dtype: str) -> list[ir.Expr]:
        """The operand for a data type of tensors; nothing for any."""
        return super().dtype_operand(dtype) or [self.bind_value(typed(null_value(), ir.AnyType()), ir.AnyType())]

    def context(self, text: str) -> ir.Expr:
        """Return what the runtime says of a check that fails."""
        return super().context(text if self.named else "")

    def assert_compound(self, value: ir.Expr, dims: tuple[ir.PrimExpr, ...], context: str) -> None:
        """Check all dimensions again where some are expressions of variables."""
        if all(isinstance(d, (ir.IntImm, ir.Var)) for d in dims):
            return
        codes: list[int] = []
        for d in dims:
            codes += [ASSERT_IMM, d.value] if isinstance(d, ir.IntImm) else [ASSERT_LOAD, self.slot(d)]
        self.emit_match(value, dims, codes, context)

    def cast(self, b: MatchCast, value: ir.Expr) -> None:
        """Keep the cast."""
        self.out.append(MatchCast(b.var, value, b.ty, span=b.span))

    def heap_size(self) -> Any:
        """The number of slots."""
        return ir.int64(len(self.slots))

    def kernel_attrs(self, name: str) -> ir.Attrs:
        """The attributes of a kernel that computes sizes, which is private."""
        return ir.Attrs.of({"tir.is_host_func": True})


def _is_implied(wanted: ir.TensorType, found: Any) -> bool:
    """Whether what a type says but for sizes follows from another."""
    same_type = isinstance(found, ir.TensorType) and wanted.dtype in ("", found.dtype)
    return same_type and wanted.ndim in (-1, found.ndim)
