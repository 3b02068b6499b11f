"""VMShapeLower: symbolic dimensions live in a heap of int64 at run time.

At entry, the types of the parameters are checked and their variables stored to the heap; where an expression of
variables is needed,
a generated TIR function computes it there, once for all expressions whose variables became known at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import ir, tir
from weft.arith.context import structural_key
from weft.error import InvalidArgument
from weft.ir import cast, int64
from weft.op.relations import size_relation
from weft.relax.core_ops import call_builtin, is_op
from weft.relax.expr import Binding, BindingBlock, MatchCast, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings
from weft.runtime.opcodes import MakeShapeCode, MatchShapeCode
from weft.tir.exact import checked

ASSERT_IMM, _STORE, _NO_OP, ASSERT_LOAD, _AT_LEAST_IMM, _, _AT_MOST_IMM, _ = map(int, MatchShapeCode)
_USE_IMM, _LOAD = map(int, MakeShapeCode)


@ir.module_pass(name="VMShapeLower", opt_level=0, ensures="relax.vm_ready")
def vm_shape_lower(mod: ir.IRModule, *, emit_err_ctx: bool = True) -> ir.IRModule:
    """Check parameter types at entry and compute symbolic shapes in a heap.

    Requires: Plain blocks, operators lowered to builtin calls.
    Ensures: ``relax.vm_ready``: no symbolic ShapeExpr or PrimValue, no MatchCast. Functions that check their parameters
        already, and have none of these, stay as they are.
    Before::

        @R.function
        def main(x: R.Tensor(("n", 3), "float32")):
            return x

    After::

        @R.function
        def main(x: R.Tensor(("n", 3), dtype="float32")) -> R.Tensor(("n", 3), dtype="float32"):
            n = T.int64()
            shape_heap: R.Any = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (R.prim_value(1),), ty_args=(R.Any,)
            )
            _: R.Tuple() = R.call_builtin(
                "vm.builtin.check_tensor_info",
                (x, R.prim_value(2), R.dtype("float32"), R.str("main: parameter 0 'x'")),
            )
            __1: R.Tuple() = R.call_builtin(
                "vm.builtin.match_shape",
                (
                    x,
                    shape_heap,
                    R.prim_value(2),
                    R.prim_value(1),
                    R.prim_value(0),
                    R.prim_value(0),
                    R.prim_value(3),
                    R.str("main: parameter 0 'x'"),
                ),
            )
            return x

    Options:
        ``emit_err_ctx``: taken for TVM's sake: errors always name the parameter.
    Cost: Linear; one TIR function for each place where new expressions can be computed.
    Source: TVM's ``VMShapeLower``.
    """
    out = mod.copy()
    for gvar, func in mod.items():
        if isinstance(func, ir.Function) and not _is_lowered(func):
            out[gvar] = Lowerer(gvar.name_hint, func, out).run()
    return out


def _is_lowered(func: ir.Function) -> bool:
    """Whether a function checks its parameters by calls, and holds no symbolic value."""
    bindings = all_bindings(func)
    params = set(func.params)
    values = [n for b in bindings for n in _value_dims(b, set())]
    checks = any(
        is_op(b.value, "call_builtin")
        and b.value.args[0].global_symbol.startswith(("vm.builtin.check_", "vm.builtin.match_"))
        and b.value.args[1].fields[0] in params
        for b in bindings
    )
    return (
        checks
        and not any(isinstance(b, MatchCast) for b in bindings)
        and not any(isinstance(v, ir.PrimExpr) and bool(ir.find(v, ir.Var)) for v in values)
    )


class Lowerer:
    """Lowers one function."""

    def __init__(self, name: str, func: ir.Function, mod: ir.IRModule) -> None:
        self.name, self.func, self.mod = name, func, mod
        self.slots: dict[Any, int] = {}
        self.keys: dict[Any, Any] = {}
        self.known: set[ir.Var] = set()
        self.computed: set[int] = set()
        self.heap = RelaxVar("shape_heap", ir.AnyType())
        self.out: list[Any] = []
        self.shape_vars: list[dict[Any, Any]] = [{}]
        self.shapes: set[ir.Expr] = set()
        """Variables that builtins give shapes to."""
        self.read = set(variables(func.body))
        self.indices = _index_bounds(func)
        self.places = {
            self.key(d): f"{name}: {b.span}"
            for b in reversed(all_bindings(func))
            if b.span is not None
            for d in _value_dims(b, self.indices)
        }
        """Where expressions are needed first, for messages."""
        storages = (b for b in all_bindings(func) if _is_storage(b.value))
        self.bytes = {self.key(d) for b in storages for d in _value_dims(b, self.indices)}

    # --- slots

    def key(self, expr: ir.PrimExpr) -> Any:
        """A hashable key, equal for structurally equal expressions over the same variables."""
        if expr not in self.keys:
            self.keys[expr] = structural_key(expr)
        return self.keys[expr]

    def slot(self, expr: ir.PrimExpr) -> int:
        """The heap slot of a symbolic expression."""
        key = self.key(expr)
        if key not in self.slots:
            self.slots[key] = len(self.slots)
        return self.slots[key]

    def stored(self, expr: ir.PrimExpr) -> int:
        """The heap slot of an expression whose variables have values here."""
        unknown = [v for v in ir.find(expr, ir.Var) if v not in self.known]
        if unknown:
            raise InvalidArgument(
                f"{self.name}: the symbolic variable '{unknown[0].name}' has no value where it is used",
                expected="a variable in the type of a parameter or of a match_cast before it",
                where=self.out[-1].span if self.out else None,
            )
        return self.slot(expr)

    def run(self) -> ir.Function:
        """Lower the function."""
        assert isinstance(self.func.body, SeqExpr)
        needed = self.needed()
        late: list[tuple[ir.Expr, tuple[ir.PrimExpr, ...], str]] = []
        self.check_params(late)
        for value, dims, context in late:
            self.match(value, dims, context)
        self.compute(needed)
        # dimensions that are expressions are asserted once their variables are known
        for value, dims, context in late:
            self.assert_compound(value, dims, context)
        body = self.sequence(self.func.body, needed)
        body = self.checked_result(body)
        bindings = (*self.allocation(), *self.out, *(b for block in body.blocks for b in block.bindings))
        new_body = SeqExpr((BindingBlock(tuple(bindings)),) if bindings else (), body.body, span=body.span, ty=body.ty)
        return self.func.replace(body=new_body)

    def needed(self) -> list[ir.PrimExpr]:
        """The symbolic expressions that run-time values, parameter checks and casts need, in order."""
        dims = [d for p in self.func.params for d in type_dims(p.ty)]
        dims.extend(_value_dims(self.func.body, self.indices))
        if _needs_check(self.func.ret_ty, self.func.body.ty):
            dims.extend(type_dims(self.func.ret_ty))
        return [d for d in dims if isinstance(d, ir.PrimExpr) and not isinstance(d, ir.IntImm)]

    def allocation(self) -> list[Any]:
        """The binding of the heap, where there is one."""
        if not self.slots:
            return []
        alloc = call_builtin("vm.builtin.alloc_shape_heap", [len(self.slots)], ir.AnyType(), with_ctx=True)
        return [VarBinding(self.heap, typed(alloc, ir.AnyType()))]

    def checked_result(self, body: SeqExpr) -> SeqExpr:
        """Check the result against the type that the function declares, where its own does not imply that."""
        declared = self.func.ret_ty
        if not _needs_check(declared, self.func.body.ty):
            return body
        outer, self.out = self.out, []
        late: list[Any] = []
        self.check_param(body.body, declared or ir.AnyType(), f"{self.name}: the return value", late)
        for value, dims, context in late:
            self.match(value, dims, context)
        for value, dims, context in late:
            self.assert_compound(value, dims, context)
        bindings = (*(b for block in body.blocks for b in block.bindings), *self.out)
        self.out = outer
        return SeqExpr((BindingBlock(bindings),), body.body, span=body.span, ty=body.ty)

    # --- checks

    def check_params(self, late: list[Any]) -> None:
        """Emit the checks of the parameters."""
        for i, p in enumerate(self.func.params):
            self.check_param(p, p.ty or ir.AnyType(), f"{self.name}: parameter {i} '{p.name_hint}'", late)

    def check_param(self, value: ir.Expr, ty: ir.Type, context: str, late: list[Any]) -> None:
        """Emit the check that `value` has type `ty`; shapes to match are put off to `late`."""
        ctx = self.context(context)
        if isinstance(ty, ir.TensorType):
            self.effect("vm.builtin.check_tensor_info", [value, ty.ndim, *self.dtype_operand(ty.dtype), ctx])
            if ty.shape is not None:
                late.append((value, ty.shape, context))
        elif isinstance(ty, ir.ShapeType):
            if ty.values is None or value not in self.shapes:  # matching counts dimensions, too
                self.effect("vm.builtin.check_shape_info", [value, ty.ndim, ctx])
            if ty.values is not None:
                late.append((value, ty.values, context))
        elif isinstance(ty, ir.PrimType):
            dtype_value = ir.DataTypeImm(ty.dtype, ty=ir.AnyType())
            self.effect("vm.builtin.check_prim_value_info", [value, dtype_value, ctx])
            if ty.value is not None:
                self.match_prim(value, ty.value, ctx)
        elif isinstance(ty, ir.TupleType):
            self.effect("vm.builtin.check_tuple_info", [value, len(ty.fields), ctx])
            for i, field in enumerate(ty.fields):
                if self.needs_check(field):
                    item = self.field(value, i, field)
                    self.check_param(item, field, f"{context}, field {i}", late)
        elif isinstance(ty, (ir.FuncType, ir.PackedFuncType)):
            self.effect("vm.builtin.check_func_info", [value, ctx])

    def needs_check(self, ty: ir.Type) -> bool:
        """Whether values of a type are checked."""
        return True

    def dtype_operand(self, dtype: str) -> list[ir.Expr]:
        """The operand for a data type of tensors; there is none for any."""
        return [ir.DataTypeImm(dtype, ty=ir.AnyType())] if dtype else []

    def match_prim(self, value: ir.Expr, dim: ir.PrimExpr, ctx: ir.Expr) -> None:
        """Check a scalar against its symbolic value, or store it."""
        if isinstance(dim, ir.IntImm):
            code, arg = ASSERT_IMM, dim.value
        elif isinstance(dim, ir.Var) and dim not in self.known:
            self.known.add(dim)
            code, arg = _STORE, self.slot(dim)
        else:
            code, arg = ASSERT_LOAD, self.slot(dim)
        self.effect("vm.builtin.match_prim_value", [value, self.heap, code, arg, ctx])

    def match(self, value: ir.Expr, dims: tuple[ir.PrimExpr, ...], context: str) -> None:
        """Check constant dimensions and known variables, store new variables."""
        codes: list[int] = []
        for d in dims:
            if isinstance(d, ir.IntImm):
                codes += [ASSERT_IMM, d.value]
            elif isinstance(d, ir.Var):
                codes += [ASSERT_LOAD if d in self.known else _STORE, self.slot(d)]
                self.known.add(d)
            else:
                codes += [_NO_OP, 0]
        self.emit_match(value, dims, codes, context)

    def assert_compound(self, value: ir.Expr, dims: tuple[ir.PrimExpr, ...], context: str) -> None:
        """Check dimensions that are expressions of variables."""
        if all(isinstance(d, (ir.IntImm, ir.Var)) for d in dims):
            return
        codes: list[int] = []
        for d in dims:
            codes += [_NO_OP, 0] if isinstance(d, (ir.IntImm, ir.Var)) else [ASSERT_LOAD, self.slot(d)]
        self.emit_match(value, dims, codes, context)

    def emit_match(self, value: ir.Expr, dims: tuple[ir.PrimExpr, ...], codes: list[int], context: str) -> None:
        """Emit the comparison of a shape, by codes; nothing where none compares."""
        if any(c != _NO_OP for c in codes[::2]):
            ctx = self.context(context)
            uses_heap = any(c in (_STORE, ASSERT_LOAD) for c in codes[::2])
            heap: Any = self.heap if uses_heap or self.slots else self.null_heap()
            self.effect("vm.builtin.match_shape", [value, heap, len(dims), *codes, ctx])

    def null_heap(self) -> ir.Expr:
        """A stand-in for the heap in functions without symbolic dimensions."""
        return self.bind("vm.builtin.null_value", [], ir.AnyType())

    # --- computing

    def compute(self, needed: list[ir.PrimExpr]) -> None:
        """Compute the needed expressions whose variables are all known and that are not computed yet."""
        todo = []
        for expr in needed:
            if isinstance(expr, ir.Var) or self.slot(expr) in self.computed:
                continue
            if all(v in self.known for v in ir.walk(expr) if isinstance(v, ir.Var)):
                self.computed.add(self.slot(expr))
                todo.append(expr)
        if not todo:
            return
        heap = tir.decl_buffer((self.heap_size(),), "int64", "heap")
        stores = [tir.BufferStore(heap, cast("int64", e), (int64(self.slot(e)),)) for e in todo]
        keys = [self.key(e) for e in todo]
        values = ((e, self.places.get(k, self.name), k in self.bytes) for e, k in zip(todo, keys, strict=True))
        # each is read once, so that equal terms are one value; of no variable that is known not to be negative
        read = {v: ir.Var(v.name, v.dtype) for v in dict.fromkeys(ir.find(tuple(todo), ir.Var))}
        body = ir.substitute(checked(values, tir.seq(*stores)), read)
        for v, number in read.items():
            body = tir.LetStmt(number, heap[int64(self.slot(v))], body)
        handle = ir.Var("heap_handle", "handle")
        name = self.mod.fresh_name("shape_func")
        self.mod[name] = tir.PrimFunc((handle,), body, None, ((handle, heap),), self.kernel_attrs(name))
        call = ir.Call(self.mod.get_global_var(name), (self.heap,), ty=ir.TupleType(()))
        self.out.append(VarBinding(RelaxVar("_", ir.TupleType(())), call))

    def heap_size(self) -> Any:
        """The number of elements that kernels of sizes see."""
        return ir.Var("n", "int64")

    def kernel_attrs(self, name: str) -> ir.Attrs:
        """The attributes of a kernel that computes sizes."""
        return ir.Attrs.of({"global_symbol": name, "tir.is_scheduled": True, "tir.is_host_func": True})

    def shape(self, dims: tuple[ir.PrimExpr, ...]) -> ir.Expr:
        """Return a value for a shape: a constant, or a variable made from the heap."""
        if all(isinstance(d, ir.IntImm) for d in dims):
            return ir.ShapeExpr(dims, ty=ir.ShapeType(dims, len(dims)))
        key = tuple(self.key(d) for d in dims)
        for scope in self.shape_vars:
            if key in scope:
                return scope[key]
        codes: list[int] = []
        for d in dims:
            codes += [_USE_IMM, d.value] if isinstance(d, ir.IntImm) else [_LOAD, self.stored(d)]
        var = self.bind("vm.builtin.make_shape", [self.heap, len(dims), *codes], ir.ShapeType(dims, len(dims)))
        self.shape_vars[-1][key] = var
        return var

    def prim(self, value: ir.PrimExpr) -> ir.Expr:
        """Return a value for a scalar: an immediate, or a variable made from the heap."""
        if not ir.find(value, ir.Var):
            return ir.prim_value(value)
        key = ("prim", self.key(value))
        for scope in self.shape_vars:
            if key in scope:
                return scope[key]
        args = [self.heap, _LOAD, self.stored(value)]
        var = self.bind("vm.builtin.make_prim_value", args, ir.PrimType(value.dtype, value))
        self.shape_vars[-1][key] = var
        return var

    # --- rewriting

    def sequence(self, body: SeqExpr, needed: list[ir.PrimExpr]) -> SeqExpr:
        """Lower the bindings of a sequence; collects into a fresh list when nested."""
        outer, self.out = self.out, []
        checks: list[Any] = []
        for b in (b for block in body.blocks for b in block.bindings):
            if _is_relation(b):
                checks.append(b)
                continue
            self.relations(checks)
            self.binding(b, needed)
        self.relations(checks)
        result = self.value(body.body)
        bindings, self.out = self.out, outer
        return SeqExpr((BindingBlock(tuple(bindings)),) if bindings else (), result, span=body.span, ty=body.ty)

    def relations(self, checks: list[MatchCast]) -> None:
        """Lower neighbouring checks of relations together: all that was found against all that was expected."""
        found: list[ir.PrimExpr] = []
        codes: list[int] = []
        lines = ["check"]
        for b in checks:
            code, f, e = _comparison(b, self.indices)
            found.append(f)
            codes += [code, e.value] if isinstance(e, ir.IntImm) else [code + 1 if code else ASSERT_LOAD, self.slot(e)]
            lines.append("\t".join((*b.span.check, b.span.origin)))  # type: ignore[union-attr]
        checks.clear()
        if found:
            self.slot(found[0])  # the functions that compare take a heap
            ctx = ir.ExprStringImm("\n".join(lines), ty=ir.AnyType())
            shape = self.shape(tuple(found))
            self.effect("vm.builtin.match_shape", [shape, self.heap, len(found), *codes, ctx])

    def in_range(self, size: ir.SizeVar, place: str) -> None:
        """Check that a size that is data is one; what the compiler knows of sizes would not hold for it."""
        r = size_relation(size, place)
        ctx = ir.ExprStringImm(f"check\n{r.kind}\t{r.what}\t{place}", ty=ir.AnyType())
        expected = self.slot(r.expected)
        self.effect("vm.builtin.match_shape", [self.shape((size,)), self.heap, 1, ASSERT_LOAD, expected, ctx])

    def binding(self, b: Binding, needed: list[ir.PrimExpr]) -> None:
        """Lower one binding."""
        if isinstance(b, MatchCast):
            value = self.value(b.value)
            late: list[Any] = []
            sizes = [d for d in _new_sizes(b) if d not in self.known]
            origin = b.span.origin if b.span is not None else None
            self.check_param(value, b.ty, origin or f"{self.name}: match_cast of '{b.var.name_hint}'", late)
            for v, dims, context in late:
                self.match(v, dims, context)
            self.compute([size_relation(d).expected for d in sizes])
            for d in sizes:
                self.in_range(d, origin or self.name)
            self.compute(needed)
            for v, dims, context in late:
                self.assert_compound(v, dims, context)
            if isinstance(b.ty, ir.ShapeType) and b.ty.values is not None and value in self.shapes:
                self.shape_vars[-1][tuple(self.key(d) for d in b.ty.values)] = value
            self.cast(b, value)
            return
        if isinstance(b.value, ir.If):
            branches = []
            branch: Any
            for branch in (b.value.true_branch, b.value.false_branch):
                self.shape_vars.append({})
                known, computed = set(self.known), set(self.computed)
                branches.append(self.sequence(branch, needed))
                self.known, self.computed = known, computed
                self.shape_vars.pop()
            chosen = ir.If(self.value(b.value.cond), *branches, span=b.value.span, ty=b.value.ty)
            self.out.append(VarBinding(b.var, chosen, span=b.span))
            return
        value = self.value(b.value)
        if is_op(value, "call_builtin") and isinstance(b.var.ty, ir.ShapeType):
            self.shapes.add(b.var)
        self.out.append(VarBinding(b.var, value, span=b.span))

    def cast(self, b: MatchCast, value: ir.Expr) -> None:
        """Bind the variable of a cast that has been checked."""
        if b.var in self.read:
            self.out.append(VarBinding(b.var, value, span=b.span))

    def value(self, value: ir.Expr) -> Any:
        """Replace symbolic shapes and scalars in a value."""
        if isinstance(value, ir.ShapeExpr):
            return self.shape(value.values)
        if isinstance(value, ir.PrimValue):
            return self.prim(value.value)
        if isinstance(value, ir.Tuple):
            return ir.with_fields(value, fields=tuple(map(self.value, value.fields)))
        if isinstance(value, ir.Call):
            return ir.with_fields(value, args=tuple(map(self.value, value.args)))
        return value

    def call(self, name: str, args: list[Any], ty: ir.Type) -> ir.Call:
        """Make the call of a function of the runtime."""
        return typed(call_builtin(name, args), ty)

    def effect(self, name: str, args: list[Any]) -> None:
        """Emit a call for its effect."""
        ty = ir.TupleType(())
        self.out.append(VarBinding(RelaxVar("_", ty), self.call(name, args, ty)))

    def bind(self, name: str, args: list[Any], ty: ir.Type) -> RelaxVar:
        """Emit a call and return its variable."""
        return self.bind_value(self.call(name, args, ty), ty)

    def bind_value(self, value: ir.Expr, ty: ir.Type) -> RelaxVar:
        """Emit a value and return its variable."""
        var = RelaxVar("s", ty)
        self.out.append(VarBinding(var, value))
        return var

    def field(self, value: ir.Expr, index: int, ty: ir.Type) -> ir.Expr:
        """Emit the access to an element of a tuple."""
        return self.bind("vm.builtin.tuple_getitem", [value, index], ty)

    def context(self, text: str) -> ir.Expr:
        """Return what the runtime says of a check that fails."""
        return ir.ExprStringImm(text, ty=ir.AnyType())


def typed(call: ir.Call, ty: ir.Type) -> ir.Call:
    """Return a call with its type."""
    return ir.Call(call.op, call.args, call.attrs, call.ty_args, span=call.span, ty=ty)


def _is_storage(value: ir.Expr) -> bool:
    """Whether a value is memory of so many bytes."""
    if isinstance(value, ir.Call) and is_op(value, "call_builtin_with_ctx"):
        return getattr(value.args[0], "global_symbol", "") == "vm.builtin.alloc_storage"
    return is_op(value, "memory.alloc_storage") or is_op(value, "vm.alloc_storage")


def _needs_check(declared: Any, found: Any) -> bool:
    """Whether a declared type says more of a value than its own, which may be any object or tensor."""
    if found is None or declared is None or isinstance(declared, ir.AnyType):
        return False
    if isinstance(found, ir.AnyType):
        if isinstance(declared, ir.TensorType):
            return declared.ndim >= 0 or bool(declared.dtype)
        return isinstance(declared, (ir.ShapeType, ir.TupleType))
    if isinstance(declared, ir.TensorType) and isinstance(found, ir.TensorType):
        return (
            (declared.ndim >= 0 > found.ndim)
            or bool(declared.dtype and not found.dtype)
            or (declared.shape is not None and found.shape is None)
        )
    if isinstance(declared, ir.ShapeType) and isinstance(found, ir.ShapeType):
        return (declared.ndim >= 0 > found.ndim) or (declared.values is not None and found.values is None)
    return False


def _new_sizes(cast: MatchCast) -> list[ir.SizeVar]:
    """List the variables for sizes among the elements of a shape value, which may be any integers."""
    return [d for d in cast.ty.values or () if isinstance(d, ir.SizeVar)] if isinstance(cast.ty, ir.ShapeType) else []


def _index_bounds(func: ir.Function) -> set[ir.Var]:
    """Collect the variables for the least and the greatest index of tensors."""
    casts: list[Any] = [b for b in all_bindings(func) if isinstance(b, MatchCast) and isinstance(b.ty, ir.ShapeType)]
    calls = [b for b in all_bindings(func) if casts and is_op(b.value, "call_builtin")]
    bounds = {b.var for b in calls if b.value.args[0].global_symbol == "vm.builtin.index_bounds"}
    return {d for b in casts if b.value in bounds for d in b.ty.values if isinstance(d, ir.Var)}


def _comparison(check: MatchCast, indices: set[ir.Var]) -> tuple[int, ir.PrimExpr, ir.PrimExpr]:
    """Return the code that compares the scalar which a relation found, the scalar, and what it is compared with.

    An index is compared with its limit. Where the scalar is a dimension, it is compared with the nearest number that
    is allowed, which TVM's machine can do, too; it has no bounds of indices.
    """
    (found,), (expected,) = check.value.values, check.ty.values  # type: ignore[attr-defined]
    for bound, code in ((ir.Max, _AT_LEAST_IMM), (ir.Min, _AT_MOST_IMM)):
        if found in indices and isinstance(expected, bound):
            for limit, other in ((expected.a, expected.b), (expected.b, expected.a)):
                if other is found:
                    return code, found, limit
    return ASSERT_IMM, found, expected


def _is_relation(b: ir.Node) -> bool:
    return isinstance(b, MatchCast) and b.span is not None and bool(b.span.check) and isinstance(b.value, ir.ShapeExpr)


def type_dims(ty: ir.Type | None) -> list[Any]:
    """List the dimensions of a type, in order."""
    if isinstance(ty, ir.TensorType):
        return list(ty.shape or ())
    if isinstance(ty, ir.ShapeType):
        return list(ty.values or ())
    if isinstance(ty, ir.PrimType):
        return [ty.value]
    return [d for f in ty.fields for d in type_dims(f)] if isinstance(ty, ir.TupleType) else []


def _value_dims(root: ir.Node, indices: set[ir.Var]) -> Iterator[Any]:
    """Iterate over the numbers that a value is made of and the dimensions of its casts, in order."""
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, ir.ShapeExpr):
            yield from value.values
        elif isinstance(value, ir.PrimValue):
            yield value.value
        elif _is_relation(value):
            yield from _comparison(value, indices)[1:]
        elif isinstance(value, MatchCast):
            yield from type_dims(value.ty)
            yield from (size_relation(d).expected for d in _new_sizes(value))
            stack.append(value.value)
        else:
            stack.extend(reversed(_inner_values(value)))


def _inner_values(value: ir.Node) -> list[Any]:
    """List the values right inside a value or a binding, in order."""
    if isinstance(value, ir.Tuple):
        return list(value.fields)
    if isinstance(value, ir.Call):
        return list(value.args)
    if isinstance(value, ir.If):
        return [value.cond, value.true_branch, value.false_branch]
    if isinstance(value, VarBinding):
        return [value.value]
    if isinstance(value, SeqExpr):
        return [*(b for block in value.blocks for b in block.bindings), value.body]
    return []
