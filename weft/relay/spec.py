"""Forms of Relay along the pipeline: with types, in A-normal form, and lowered to what code is generated from."""

from collections.abc import Iterator
from typing import Any

from weft.ir import IRModule, Node, Op, Type
from weft.ir.spec import Spec
from weft.relay.adt import Constructor, Match
from weft.relay.analysis import excerpt, unbound
from weft.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple
from weft.relay.scalars import scalar_operation
from weft.relay.types import IncompleteType, type_parts
from weft.relay.walk import ATOMS, bound_by, parts, subexpressions

WELL_FORMED = Spec("relay.well_formed", Function, doc="variables are used where they are bound")
TYPED = Spec("relay.typed", Function, [WELL_FORMED], "every expression has its type")
A_NORMAL = Spec("relay.anf", Function, [WELL_FORMED], "values of lets are single operations on atoms")
LOWERED = Spec("relay.lowered", Function, [A_NORMAL], "tensors are allocated, and kernels write into them")

_BEFORE_ALLOCATION = ("vm.bind_dims", "vm.call_kernel", "vm.view")
_OF_THE_MACHINE = ("vm.", "memory.", "device_copy", "on_device")
_Found = Iterator[tuple[Any, str]]


@WELL_FORMED.on_function
def _scopes(func: Function, mod: IRModule) -> _Found:
    yield from unbound(func)


@TYPED.on_function
def _types(func: Function, mod: IRModule) -> _Found:
    if func.ret_type is None:
        yield func, "the type of the result is not known"
    for e in subexpressions(func):
        kernel = isinstance(e, GlobalVar) and e in mod and not isinstance(mod[e], Function)
        for v in (*bound_by(e), *(() if kernel or isinstance(e, (Op, Constructor)) else (e,))):
            if v.ty is None or _incomplete(v.ty):
                yield v, f"`{excerpt(v)}` has no type" if v.ty is None else f"the type of `{excerpt(v)}` is incomplete"


def _incomplete(ty: Type) -> bool:
    return isinstance(ty, IncompleteType) or any(_incomplete(p) for p in type_parts(ty))


@A_NORMAL.on_function
def _operations(func: Function, mod: IRModule) -> _Found:
    """Look at each chain of lets: of functions, branches and clauses. The body of a lifted closure is a function."""
    chains: list[Any] = [] if _is_opaque(func) else [func.body]
    while chains:
        e = chains.pop()
        while isinstance(e, Let):
            yield from _operands(e.value)
            chains += _bodies(e.value)
            e = e.body
        if isinstance(e, Function) and e is func.body and func.attrs.get("Closure"):
            chains += _bodies(e)
        elif not isinstance(e, ATOMS):
            yield e, f"the result `{excerpt(e)}` is no atom"


def _is_opaque(func: Function) -> bool:
    """Whether a function stands for one kernel or belongs to an external compiler."""
    return bool(func.attrs.get("Primitive") or func.attrs.get("Compiler"))


def _operands(value: Any) -> _Found:
    if isinstance(value, Let):
        yield value, "a let is the value of a let"
    bodies = set(_bodies(value))
    for p in parts(value):
        nested = isinstance(value, Call) and isinstance(p, Tuple) and all(map(_is_atom, p.fields))
        if p not in bodies and not _is_atom(p) and not nested and not isinstance(value, Function):
            yield value, f"the operand `{excerpt(p)}` is no atom"


def _is_atom(e: Node) -> bool:
    """Whether an expression is computed without an operation; constants may say on which device they lie."""
    placed = isinstance(e, Call) and e.op is Op.get("on_device") and isinstance(e.args[0], Constant)
    return placed or isinstance(e, ATOMS)


def _bodies(value: Expr) -> list[Any]:
    if isinstance(value, Function):
        return [] if _is_opaque(value) else [value.body]
    if isinstance(value, If):
        return [value.true_branch, value.false_branch]
    return [c.rhs for c in value.clauses] if isinstance(value, Match) else []


@LOWERED.on_function
def _kernels(func: Function, mod: IRModule) -> _Found:
    for e in subexpressions(func.body):
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            continue
        name = e.op.name
        if name in _BEFORE_ALLOCATION:
            yield e, f"'{name}' is left, whose result has no memory yet"
        elif not name.startswith(_OF_THE_MACHINE) and scalar_operation(e) is None:
            yield e, f"operator '{name}' is left, which no kernel computes"
