"""The default pipeline's LegalizeOps: every tensor operation, and every fused group, becomes a call of a TIR function.

A group is lowered in one go: its operations' tensor expressions are composed and made into one PrimFunc, so that what
TVM does in two passes (LegalizeOps and FuseTIR) needs no merging of loop nests here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from weft import error, ir, op, te
from weft.arith.context import structural_key
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS, call_tir, is_op
from weft.relax.effects import mutable_variables
from weft.relax.expr import Binding, SeqExpr
from weft.relax.rename import variables
from weft.relax.rewriter import replace_value, rewrite_bindings
from weft.relax.te_bridge import fresh_output, undefined_vars
from weft.relax.transform.alike_groups import Place, numbers_apart
from weft.relax.transform.call_sites import used_as_values
from weft.relax.transform.kernel_sizes import KernelSizes, SizePool
from weft.relax.transform.legalize_dynamic import lower_dynamic_strided_slice
from weft.target import Target
from weft.te import compute, kernel_of_stages, placeholder

_BUILTIN = ("relax.reshape",)


class KernelSource(NamedTuple):
    """What a kernel was made of: the tensors and variables that are its parameters, and its calls of operators.

    A call is the operator's name, what it got, its attributes and its fusion kind.
    """

    args: tuple[Any, ...]
    calls: tuple[tuple[str, list[Any], ir.Attrs, int], ...]

    def anchor(self) -> tuple[Any, ...] | None:
        """Name the one operator that the others go with, and what it gets: tensors of constant shapes, attributes."""
        found = [c for c in self.calls if c[3] == op.Fusion.ANCHOR]
        if len(found) != 1 or not all(isinstance(a, te.Tensor) for a in found[0][1]):
            return None
        name, args, attrs, _ = found[0]
        if not all(isinstance(d, ir.IntImm) for a in args for d in a.shape):
            return None
        return (name, *args, tuple(attrs.items))


KERNEL_SOURCES: ir.Ambient[dict[str, KernelSource]] = ir.Ambient("relax.kernel_sources")
"""Gets, where one is open, the source of each kernel that is made, under its :func:`kernel_key`."""


def kernel_key(func: ir.BaseFunc) -> str:
    """Tell what a kernel computes, whatever its name and attributes."""
    return ir.fingerprint(func.replace(attrs=ir.NO_ATTRS))  # type: ignore[attr-defined]


@ir.module_pass(name="LegalizeOps", ensures="relax.legalized")
def lower_ops(mod: ir.IRModule, *, target: Target | None = None) -> ir.IRModule:
    """Replace operator calls and calls of primitive functions by ``call_tir``.

    Requires: ``relax.normalized``; every lowered call has known output shapes and data types.
    Ensures: ``relax.legalized``: the operators left are Relax's own and ``relax.reshape``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y: R.Tensor((2, 3), "float32") = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2, 3), "float32"))
                R.output(y)
            return y

        @T.prim_func
        def exp(
            p0: T.Buffer((T.int64(2), T.int64(3)), "float32"),
            T_exp: T.Buffer((T.int64(2), T.int64(3)), "float32"),
        ):
            T.func_attr({"tir.noalias": False, "op_pattern": 0, "inplace_inputs": (0,)})
            for i0, i1 in T.grid(T.int64(2), T.int64(3)):
                with T.sblock("T_exp"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T_exp[v_i0, v_i1] = T.exp(p0[v_i0, v_i1])

    Options:
        ``target``: what written loops, such as those of ``topk``, are for; CPUs, if None.
    Cost: Linear; one PrimFunc for each distinct computation.
    Source: TVM's ``LegalizeOps`` and ``FuseTIR``.
    """
    with target or nullcontext():
        return _legalized(mod)


def legalize_groups(mod: ir.IRModule) -> ir.IRModule:
    """Turn groups of operators (functions with ``Primitive``) into one kernel each; other operators stay."""
    return _legalized(mod, groups_only=True)


@ir.module_pass
def legalize_mutable(mod: ir.IRModule) -> ir.IRModule:
    """Turn the operators that read or make memory that a call changes into kernels, which no pass moves or joins.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Variables that operators use are values: what they hold stays the same.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            y = R.exp(x)
            _ = R.call_packed("my.fill", x, ty_args=R.Tuple())
            z = R.exp(y)
            return z

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y: R.Tensor((2,), "float32") = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2,), "float32"))
            _ = R.call_packed("my.fill", x, ty_args=(R.Tuple(),))
            z: R.Tensor((2,), "float32") = R.exp(y)
            return z

        @T.prim_func
        def exp(p0: T.Buffer((T.int64(2),), "float32"), T_exp: T.Buffer((T.int64(2),), "float32")):
            T.func_attr({"tir.noalias": False, "op_pattern": 0, "inplace_inputs": (0,)})
            for i0 in range(T.int64(2)):
                with T.sblock("T_exp"):
                    v_i0 = T.axis.spatial(T.int64(2), i0)
                    T_exp[v_i0] = T.exp(p0[v_i0])
    Cost: Linear.
    Source: None.
    """
    return _legalized(mod, mutable_only=True)


def _legalized(mod: ir.IRModule, groups_only: bool = False, mutable_only: bool = False) -> ir.IRModule:
    changed = {v.name_hint: mutable_variables(f, mod) for v, f in mod.items() if isinstance(f, ir.Function)}
    if mutable_only and not any(changed.values()):
        return mod
    bb = BlockBuilder(mod)
    state = _Legalizer(bb, mod, groups_only)
    for gvar, func in mod.items():
        if isinstance(func, ir.Function) and gvar.name_hint not in state.kernels:
            state.mutable, state.mutable_only = changed[gvar.name_hint], mutable_only
            new = rewrite_bindings(func, mod, state.rule, bb)
            if new is not func:
                bb.update_func(gvar, new)
    out = bb.get()
    for gvar in mod if not mutable_only else ():
        if gvar.name_hint in state.kernels:
            del out[gvar]
    return mod.with_functions(out.functions)


def _is_kernel(func: ir.Expr) -> bool:
    """Whether a function is a group that becomes one kernel: all of it are operators that can be lowered."""
    if not isinstance(func, ir.Function) or not func.attrs.get("Primitive"):
        return False
    blocks = func.body.blocks if isinstance(func.body, SeqExpr) else ()
    values = [b.value for block in blocks for b in block.bindings]
    return len(blocks) == 1 and all(
        isinstance(v, ir.Call)
        and isinstance(v.op, ir.Op)
        and v.op.name.removeprefix("relax.") not in CORE_OPS
        and op.get_op_def(v.op).lower is not None
        and not isinstance(v.ty, ir.TupleType)
        for v in values
    )


class _Legalizer:
    def __init__(self, bb: BlockBuilder, mod: ir.IRModule, groups_only: bool) -> None:
        self.bb, self.mod, self.groups_only = bb, mod, groups_only
        self.mutable: set[ir.ExprVar] = set()
        self.mutable_only = False
        self.names: dict[str, ir.GlobalVar] = {}
        self.lowered: dict[Any, tuple[ir.GlobalVar, list[ir.Var]]] = {}  # by what decides about a kernel
        primitive = {v.name_hint for v, f in mod.items() if _is_kernel(f)}
        self.kernels = primitive - used_as_values(mod) if primitive else primitive
        self.apart = numbers_apart(mod, self.kernels)
        self.pool = SizePool()

    def rule(self, binding: Binding, value: ir.Expr, _bb: BlockBuilder) -> ir.Expr | None:
        if not isinstance(value, ir.Call):
            return None
        touched = binding.var in self.mutable or any(v in self.mutable for v in variables(binding.value))
        if self.mutable_only and not touched:
            return None
        if isinstance(value.op, ir.GlobalVar) and value.op in self.mod:
            func = self.mod[value.op]
            if value.op.name_hint in self.kernels:
                assert isinstance(func, ir.Function) and isinstance(func.body, SeqExpr)
                calls = [(b.var, b.value) for b in func.body.blocks[0].bindings]
                env: dict[ir.Expr, ir.Expr] = dict(zip(func.params, value.args, strict=True))
                return self.lower(calls, env, value, value.op.name_hint, self.apart[value.op.name_hint])
            return None
        if self.groups_only or not isinstance(value.op, ir.Op):
            return None
        chosen = ir.op_attr(value.op.name, "FLegalize")
        if chosen is not None:
            before = len(self.bb.bindings())
            new = self.bb.normalize(chosen(self.bb, value), atom=False)
            emitted = self.bb.bindings()[before:]
            self.bb.drop(before)
            for b in emitted:
                lowered = self.rule(b, b.value, _bb)
                self.bb.emit_normalized(b if lowered is None else replace_value(b, self.bb.normalize(lowered)))
            return new if new is value else self.rule(binding, new, _bb) or new
        if is_op(value, "shape_to_tensor"):
            return self.shape_to_tensor(value)
        if is_op(value, "dynamic_strided_slice"):
            return lower_dynamic_strided_slice(value, self.bb, self.add)
        viewed = value.op.name in _BUILTIN and not touched  # a view would show what is written later
        if viewed or value.op.name.removeprefix("relax.") in CORE_OPS:
            return None
        definition = op.get_op_def(value.op)
        if definition.lower is None:
            return None
        name = value.op.name.removeprefix("relax.").replace(".", "_")
        return self.lower([(binding.var, value)], {}, value, name, {})

    def lower(
        self,
        calls: list[tuple[Any, ir.Call]],
        env: dict[ir.Expr, ir.Expr],
        origin: ir.Call,
        name: str,
        given: dict[Place, ir.Constant],
    ) -> ir.Expr:
        """Lower calls, the last of which is the result, to one ``call_tir``, taking the numbers at `given` places."""
        produced: dict[ir.Expr, Any] = {}
        steps: list[_Step] = []
        definitions = [op.get_op_def(call.op) for _, call in calls]  # type: ignore[arg-type]
        kinds = [d.fusion(c) if callable(d.fusion) else d.fusion for d, (_, c) in zip(definitions, calls, strict=True)]
        inputs = _Inputs(env, self.sizes(calls, env, apart=max(kinds) <= op.Fusion.BROADCAST))
        for n, (var, call) in enumerate(calls):
            assert isinstance(call.op, ir.Op)
            definition, fusion = definitions[n], kinds[n]
            assert definition.lower is not None
            args = [inputs.to_te(given.get((n, i), a), produced, (n, i) in given) for i, a in enumerate(call.args)]
            produced[var] = _Result(len(steps))
            steps.append(_Step(definition.lower, args, call.attrs, int(fusion), call.op.name.removeprefix("relax.")))
        out_types = _tensor_types(origin)
        in_place = _inplace_inputs(inputs.exprs, out_types[0])
        key = (in_place, *((s.lower, s.pattern, inputs.key(s.args), structural_key(s.attrs.pairs)) for s in steps))
        made = self.lowered.get(key)
        if made is None:
            made = self.lowered[key] = self.kernel(steps, inputs.tensors, in_place, name)
        gvar, extra = made
        return call_tir(gvar, inputs.exprs, out_types, [inputs.sizes.values.get(v, v) for v in extra] or None)

    def sizes(
        self, calls: Sequence[tuple[ir.Expr, ir.Call]], env: dict[ir.Expr, ir.Expr], *, apart: bool
    ) -> KernelSizes:
        """Tell what the sizes of a kernel's operands are in it."""
        made = {var for var, _ in calls}
        operands = [env.get(a, a) for _, call in calls for a in call.args if a not in made]
        besides = ir.find(tuple(call.attrs for _, call in calls), ir.Var)
        shapes: list[Sequence[ir.PrimExpr]] = []
        while operands:
            arg = operands.pop(0)
            if isinstance(arg, ir.Tuple):
                operands[:0] = [env.get(a, a) for a in arg.fields if a not in made]
            elif isinstance(arg, ir.ShapeExpr):
                shapes.append(arg.values)
            elif isinstance(arg.ty, (ir.TensorType, ir.TupleType, ir.ShapeType)):
                shapes += _shapes(arg.ty)
            else:
                besides += ir.find((arg, arg.ty), ir.Var)
        return KernelSizes(self.pool, shapes, besides, apart=apart)

    def kernel(
        self, steps: Sequence[_Step], tensors: list[te.Tensor], in_place: tuple[int, ...], name: str
    ) -> tuple[ir.GlobalVar, list[ir.Var]]:
        """Make the kernel of operators, and list the variables that it takes besides the tensors."""
        results: list[Any] = []
        for step in steps:
            args = [_given(a, results) for a in step.args]
            results.append(step.lower(*args, **dict(step.attrs.items)))
        outs = list(results[-1]) if isinstance(results[-1], (list, tuple)) else [results[-1]]
        outs = [fresh_output(o, tensors) for o in outs]
        patterns = [s.pattern for s in steps]
        prim = kernel_of_stages([*tensors, *outs])
        extra = undefined_vars(prim)
        if extra:
            prim = prim.replace(params=(*prim.params, *extra))
        sources = KERNEL_SOURCES.current
        if sources is not None:
            calls = tuple((s.op, [_given(a, results) for a in s.args], s.attrs, s.pattern) for s in steps)
            sources[kernel_key(prim)] = KernelSource((*tensors, *outs, *extra), calls)
        attrs: dict[str, Any] = {"op_pattern": max(patterns)}
        if max(patterns) <= op.Fusion.BROADCAST and len(outs) == 1:
            attrs["inplace_inputs"] = in_place
            attrs["tir.noalias"] = not in_place
        return self.add(prim.with_attr(attrs), name), extra

    def shape_to_tensor(self, call: ir.Call) -> ir.Expr:
        """Write the dimensions of a shape into a tensor."""
        shape = call.args[0]
        dims = shape.values if isinstance(shape, ir.ShapeExpr) else shape.ty.values  # type: ignore[attr-defined]
        if dims is None:
            ndim = shape.ty.ndim  # type: ignore[attr-defined]
            if ndim < 0:  # a function of the runtime's does it
                return call
            dims = tuple(ir.Var(f"d{i}", "int64") for i in range(ndim))
            self.bb.match_cast(shape, ir.ShapeType(dims, ndim))

        def element(i: Any) -> Any:
            value: Any = ir.const(0, "int64")
            for n, d in reversed(list(enumerate(dims))):
                value = ir.select(i.equal(ir.const(n, "int64")), d, value)
            return value

        prim = kernel_of_stages([compute((ir.const(len(dims), "int64"),), element, name="shape")])
        extra = undefined_vars(prim)
        prim = prim.replace(params=(*prim.params, *extra))
        return call_tir(self.add(prim, "shape_to_tensor"), [], call.ty, extra or None)

    def add(self, prim: Any, name: str) -> ir.GlobalVar:
        """Add a PrimFunc, or find one of equal structure."""
        key = ir.fingerprint(prim.without_attr("global_symbol"))
        if key not in self.names:
            unique = self.bb.module.fresh_name(name if name not in self.mod else name + "_kernel")
            self.bb.module[unique] = prim.with_attr("global_symbol", unique)
            self.names[key] = self.bb.module.get_global_var(unique)
        return self.names[key]


class _Step(NamedTuple):
    """An operator of a kernel: arguments are what :meth:`_Inputs.to_te` returns."""

    lower: Callable[..., Any]
    args: list[Any]
    attrs: ir.Attrs
    pattern: int
    op: str


class _Result(NamedTuple):
    """The result of an earlier step."""

    step: int


def _given(arg: Any, results: list[Any]) -> Any:
    if isinstance(arg, _Result):
        return results[arg.step]
    return tuple(_given(a, results) for a in arg) if type(arg) is tuple else arg


class _Inputs:
    """The tensor arguments met so far, as te placeholders."""

    def __init__(self, env: dict[ir.Expr, ir.Expr], sizes: KernelSizes) -> None:
        self.env, self.sizes = env, sizes
        self.about: dict[te.Tensor, Any] = {}  # what a kernel may depend on
        self.exprs: list[ir.Expr] = []
        self.tensors: list[te.Tensor] = []

    def to_te(self, arg: ir.Expr, produced: dict[ir.Expr, Any], given: bool = False) -> Any:
        """Convert an argument to what an operator's ``lower`` takes; a number is in the kernel, or given to it."""
        if arg in produced:
            return produced[arg]
        arg = self.env.get(arg, arg)
        if isinstance(arg, ir.ShapeExpr):
            return self.sizes.within(arg.values)
        if isinstance(arg, ir.PrimValue):
            return arg.value
        if isinstance(arg, ir.Tuple):
            return tuple(self.to_te(f, produced) for f in arg.fields)
        if isinstance(arg.ty, ir.TupleType):
            return tuple(self.to_te(ir.TupleGetItem(arg, i, ty=t), produced) for i, t in enumerate(arg.ty.fields))
        if isinstance(arg, ir.Constant) and not given and all(d == 1 for d in arg.data.shape):
            tensor = _scalar_constant(arg)
            self.about[tensor] = (arg.data.numpy().tobytes(), str(arg.data.dtype), len(arg.data.shape))
            return tensor
        ty = arg.ty
        if isinstance(ty, ir.ShapeType) and ty.values is not None:
            return self.sizes.within(ty.values)
        if isinstance(ty, ir.PrimType) and ty.value is not None:
            return ty.value
        if isinstance(ty, ir.TensorType):
            return self.placeholder(arg, ty)
        return getattr(arg, "value", arg)

    def placeholder(self, arg: ir.Expr, ty: ir.TensorType) -> te.Tensor:
        """Return the placeholder of a tensor, one for each distinct expression."""
        for e, t in zip(self.exprs, self.tensors, strict=True):
            if e is arg:
                return t
        if ty.shape is None or not ty.dtype:
            raise error.LoweringError(
                f"cannot generate code for '{getattr(arg, 'name_hint', arg)}': its type is not fully known",
                where=arg.span,
                expected="a tensor of known rank, dimensions (symbolic ones included) and data type",
                found=str(ty),
                help="name the unknown dimensions with match_cast",
            )
        shape = self.sizes.within(ty.shape)
        tensor = placeholder(shape, ty.dtype, name=f"p{len(self.tensors)}")
        self.about[tensor] = (len(self.tensors), isinstance(arg, ir.Constant), ty.dtype, structural_key(shape))
        self.exprs.append(arg)
        self.tensors.append(tensor)
        return tensor

    def key(self, arg: Any) -> Any:
        """What is equal for arguments of :meth:`to_te` that are lowered alike."""
        if type(arg) in (tuple, list):
            return tuple(self.key(a) for a in arg)
        return self.about[arg] if isinstance(arg, te.Tensor) else structural_key(arg)


def _scalar_constant(arg: ir.Constant) -> te.Tensor:
    value = ir.const(arg.data.numpy().reshape(()).item(), str(arg.data.dtype))
    return compute(arg.ty.shape, lambda *_: value, name="scalar")  # type: ignore[union-attr]


def _shapes(ty: ir.Type) -> list[Sequence[ir.PrimExpr]]:
    """List the shapes in a type, as far as they are known."""
    if isinstance(ty, ir.TupleType):
        return [s for f in ty.fields for s in _shapes(f)]
    return [(ty.shape if isinstance(ty, ir.TensorType) else getattr(ty, "values", None)) or ()]


def _tensor_types(call: ir.Call) -> list[ir.TensorType]:
    ty = call.ty
    types = list(ty.fields) if isinstance(ty, ir.TupleType) else [ty]
    for t in types:
        if not isinstance(t, ir.TensorType) or t.shape is None or not t.dtype:
            name = call.op.name if isinstance(call.op, ir.Op) else getattr(call.op, "name_hint", str(call.op))
            help = "scalars are computed by R.prim_value(a + b)" if isinstance(t, ir.PrimType) else "use match_cast"
            raise error.LoweringError(
                f"{name}: the result is no tensor of known shape", where=call.span, found=str(t), help=help
            )
    return types  # type: ignore[return-value]


def _inplace_inputs(inputs: list[ir.Expr], out: ir.TensorType) -> tuple[int, ...]:
    """List the inputs whose memory the output may take over: same shape and element size, each element read once."""
    tensors = [(i, e.ty) for i, e in enumerate(inputs) if isinstance(e, ir.ExprVar)]
    alike = [(i, ty) for i, ty in tensors if isinstance(ty, ir.TensorType) and ty.dtype == out.dtype]
    return tuple(i for i, ty in alike if _identical(ty.shape, out.shape))


def _identical(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(
        x is y or getattr(x, "value", None) == getattr(y, "value", x) for x, y in zip(a, b, strict=True)
    )
