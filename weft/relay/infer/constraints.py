"""What each expression says about types: a rule a class, which returns the expression's type."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.ir import Dispatch, Op, Type
from weft.relay import expr as nodes
from weft.relay.adt import Constructor, Match
from weft.relay.infer.data_types import bind_pattern, check_annotation, constructor_type
from weft.relay.infer.operators import infer_operator
from weft.relay.infer.pending import Instantiation, OperatorCall, Projection, element
from weft.relay.infer.state import Inference
from weft.relay.infer.unify import FAILED
from weft.relay.op.registry import has as has_op
from weft.relay.types import FuncType, IncompleteType, RefType, TensorType, TupleType, TypeVar, scalar_type, unit_type

TYPE = Dispatch("type of a Relay expression", (nodes.Operators,), leaves_out=(nodes.Operators,))


def type_of(e: nodes.Expr, s: Inference) -> Type:
    """Return the type of an expression; parts of it may be unknown yet."""
    found = s.types.get(e)
    if found is None:
        if isinstance(e, Op):
            return s.fail(
                f"operator '{e.name}' is used as a value",
                e,
                expected="a call of it",
                help="wrap it into a function: `fn (%x) { ..(%x) }`",
            )
        found = s.types[e] = TYPE(e, s)
    return found


@TYPE.on(nodes.Var)
def _var(e: nodes.Var, s: Inference) -> Type:
    found = s.vars.get(e)
    if found is not None:
        return found
    if not s.allow_free:
        what = f"variable '%{e.name_hint}' is not bound"
        return s.fail(what, e, help="lets, parameters and patterns bind variables, for what is inside them")
    return bind(e, s)


def bind(v: nodes.Var, s: Inference) -> Type:
    """Introduce a variable, of its annotated type or one to be found."""
    known = s.vars.get(v)
    if known is None:
        if v.ty is not None:
            check_annotation(v.ty, v, s)
        known = s.vars[v] = v.ty if v.ty is not None else IncompleteType()
    return known


@TYPE.on(nodes.Constant)
def _constant(e: nodes.Constant, s: Inference) -> Type:
    ty: Any = e.ty
    if type(ty) is TensorType:
        return ty
    return TensorType(tuple(e.data.shape), str(e.data.dtype))


@TYPE.on(nodes.GlobalVar)
def _global(e: nodes.GlobalVar, s: Inference) -> Type:
    found = s.globals.get(e.name_hint)
    if found is not None:
        return found
    if s.mod is None or e.name_hint not in s.mod:
        known = ", ".join(f"@{v.name_hint}" for v in (s.mod if s.mod is not None else ())) or "no functions"
        return s.fail(f"there is no function '@{e.name_hint}'", e, expected="a function of the module", found=known)
    return global_type(e.name_hint, s)


def global_type(name: str, s: Inference) -> Type:
    """Return the type of a function of the module; where it is not annotated, its body is looked at."""
    assert s.mod is not None
    func = s.mod[name]
    if not isinstance(func, nodes.Function):  # a kernel, whose calls the compiler's operators describe
        s.globals[name] = ir.PackedFuncType()
        return s.globals[name]
    ty = s.globals[name] = signature(func, s)
    if s.unifier.unknown(ty) is not None:
        outer, s.function = s.function, name
        type_of(func, s)
        s.function = outer
    return ty


def signature(f: nodes.Function, s: Inference) -> FuncType:
    """Return a function's type as annotated, with types to be found where it is not; parameters are bound."""
    found = s.signatures.get(f)
    if found is None:
        for i, p in enumerate(f.params):
            if any(p is q for q in f.params[:i]):
                s.fail(f"parameter '%{p.name_hint}' stands twice", f, help="make a variable for each parameter")
        args = tuple([bind(p, s) for p in f.params])
        if f.ret_type is not None:
            check_annotation(f.ret_type, f, s)
        found = FuncType(args, f.ret_type if f.ret_type is not None else IncompleteType(), f.type_params)
        s.signatures[f] = found
    return found


@TYPE.on(nodes.Function)
def _function(f: nodes.Function, s: Inference) -> Type:
    ty = s.types[f] = signature(f, s)
    if f.ret_type is not None:
        ask(f.body, ty.ret_type, s)
    body = type_of(f.body, s)
    tail: Any = f.body
    while type(tail) is nodes.Let:
        tail = tail.body
    at = f if tail.span is None or isinstance(tail, nodes.Var) else tail
    s.flow(body, ty.ret_type, at, "the body has another type than the function returns")
    return ty


@TYPE.on(nodes.Let)
def _let(e: nodes.Let, s: Inference) -> Type:
    chain: list[nodes.Let] = []
    while type(e) is nodes.Let and e not in s.types:
        chain.append(e)
        _binding(e, s)
        e = e.body  # type: ignore[assignment]
    ty = type_of(e, s)
    for let in chain:
        s.types[let] = ty
    return ty


def _binding(e: nodes.Let, s: Inference) -> None:
    if isinstance(e.value, nodes.Function) and e.var.ty is None:  # which may call itself
        s.vars[e.var] = signature(e.value, s)
        type_of(e.value, s)
        return
    annotated = e.var.ty is not None or isinstance(e.value, nodes.Function)
    if annotated:
        ty = bind(e.var, s)
        ask(e.value, ty, s)
        value = type_of(e.value, s)
        what = f"variable '%{e.var.name_hint}' is annotated with another type than its value has"
        s.flow(value, ty, e if e.span is not None else e.value, what)
    else:
        s.vars[e.var] = type_of(e.value, s)


@TYPE.on(nodes.Tuple)
def _tuple(e: nodes.Tuple, s: Inference) -> Type:
    fields = tuple([type_of(f, s) for f in e.fields])
    known: Any = e.ty
    if (
        type(known) is TupleType
        and len(known.fields) == len(fields)
        and all(a is b for a, b in zip(known.fields, fields, strict=True))
    ):
        return known
    return TupleType(fields)


@TYPE.on(nodes.TupleGetItem)
def _projection(e: nodes.TupleGetItem, s: Inference) -> Type:
    of = type_of(e.tuple_value, s)
    known = s.unifier.head(of)
    if type(known) is not IncompleteType:
        return element(e, known, s)
    result = IncompleteType()
    s.wait(Projection(e, of, result))
    return result


@TYPE.on(nodes.If)
def _if(e: nodes.If, s: Inference) -> Type:
    cond = type_of(e.cond, s)
    s.flow(
        cond,
        scalar_type("bool"),
        e.cond if e.cond.span is not None and not isinstance(e.cond, nodes.Var) else e,
        "the condition of an if is no scalar bool",
    )
    branches = [(e.true_branch, e), (e.false_branch, e)]
    return joined(e, branches, s, "the branches of an if have different types")


def ask(e: ir.Expr, ty: Type, s: Inference) -> None:
    """Note which type is annotated where a value goes: branches may differ in what the annotation leaves open."""
    while type(e) is nodes.Let:
        e = e.body
    if isinstance(e, (nodes.If, Match)):
        s.asked[e] = ty


def joined(e: ir.Expr, results: list[tuple[Any, Any]], s: Inference, what: str) -> Type:
    """Return the type of what one of several expressions gives, each with where to tell of it."""
    asked = s.asked.get(e)
    if asked is not None:
        for r, _ in results:
            ask(r, asked, s)
    types = [(type_of(r, s), node) for r, node in results]
    if all(t is types[0][0] for t, _ in types) and asked is None:
        return types[0][0]
    result = asked if asked is not None else IncompleteType()
    # a polymorphic one fits the others
    for ty, node in sorted(types, key=lambda t: len(getattr(s.head(t[0]), "type_params", ()))):
        s.flow(ty, result, node, what)
    found = s.resolve(result)
    return found if s.unifier.unknown(found) is None else result


@TYPE.on(nodes.RefCreate)
def _ref_create(e: nodes.RefCreate, s: Inference) -> Type:
    content = IncompleteType()
    s.flow(type_of(e.value, s), content, e, "the reference needs a type")
    return RefType(content)


@TYPE.on(nodes.RefRead)
def _ref_read(e: nodes.RefRead, s: Inference) -> Type:
    return _content(e.ref, e, s)


@TYPE.on(nodes.RefWrite)
def _ref_write(e: nodes.RefWrite, s: Inference) -> Type:
    content = _content(e.ref, e, s)
    s.flow(type_of(e.value, s), content, e, "the reference holds values of another type")
    return unit_type()


def _content(ref: nodes.Expr, e: nodes.Expr, s: Inference) -> Type:
    ty = s.head(type_of(ref, s))
    if type(ty) is IncompleteType:
        content = IncompleteType()
        s.flow(ty, RefType(content), e, "the reference needs a type")
        return content
    if ty is FAILED or isinstance(ty, RefType):
        return ty.value if isinstance(ty, RefType) else FAILED
    verb = "read" if isinstance(e, nodes.RefRead) else "written"
    return s.fail(f"what is {verb} is no reference", e, expected="a reference", found=ty, help="`ref(value)` makes one")


@TYPE.on(Constructor)
def _constructor(e: Constructor, s: Inference) -> Type:
    return constructor_type(e, e, s)


@TYPE.on(Match)
def _match(e: Match, s: Inference) -> Type:
    data = type_of(e.data, s)
    results: list[tuple[Any, Any]] = []
    for clause in e.clauses:
        bind_pattern(clause.lhs, data, e, s)
        results.append((clause.rhs, clause if clause.span is not None else e))
    s.matches.append(e)
    if not results:
        return IncompleteType()
    return joined(e, results, s, "the clauses of a match have different types")


@TYPE.on(nodes.Call)
def _call(e: nodes.Call, s: Inference) -> Type:
    if isinstance(e.op, Op):
        return _operator(e, s)
    callee = e.op
    args = tuple([type_of(a, s) for a in e.args])
    ty = s.head(type_of(callee, s))
    if type(ty) is IncompleteType:
        result = IncompleteType()
        s.flow(ty, FuncType(args, result), e, f"{callee_name(callee)} needs a type to be called here")
        return result
    if isinstance(ty, ir.PackedFuncType) and e.ty_args:
        return e.ty_args[0]
    if not isinstance(ty, FuncType):
        if ty is FAILED:
            return FAILED
        return s.fail(
            f"{callee_name(callee)} is called and is no function",
            e,
            expected="a function",
            found=ty,
            help="parentheses call; elements of a tuple are `.0`, `.1`",
        )
    return _apply(e, ty, args, s)


def _operator(e: nodes.Call, s: Inference) -> Type:
    args = tuple([type_of(a, s) for a in e.args])
    resolved = tuple([s.resolve(a) for a in args])
    if not has_op(e.op.name):  # type: ignore[union-attr]
        return infer_operator(e, resolved, s)
    if all(a is b for a, b in zip(args, resolved, strict=True)) and not any(s.unifier.unknown(a) for a in args):
        return infer_operator(e, args, s)
    result = IncompleteType()
    s.wait(OperatorCall(e, args, result))
    return result


def _apply(e: nodes.Call, ty: FuncType, args: tuple[Type, ...], s: Inference) -> Type:
    """Call a function of known type."""
    name = callee_name(e.op)
    if len(args) != len(ty.arg_types):
        return s.fail(
            f"{name} is called with {_count(len(args), 'argument')}",
            e,
            expected=f"{len(ty.arg_types)}",
            found=f"{len(args)}",
            help=f"its type is `{s.resolve(ty)}`",
        )
    if e.ty_args and len(e.ty_args) != len(ty.type_params):
        return s.fail(
            f"{name} is called with {_count(len(e.ty_args), 'type argument')}",
            e,
            expected=f"{len(ty.type_params)}",
            found=f"{len(e.ty_args)}",
            help=f"its type is `{s.resolve(ty)}`",
        )
    for t in e.ty_args:
        check_annotation(t, e, s)
    types: dict[TypeVar, Type] = {}
    if ty.type_params:
        given = e.ty_args or tuple([IncompleteType() for _ in ty.type_params])
        types = dict(zip(ty.type_params, given, strict=True))
        s.type_args[e] = given
    for i, (src, dst) in enumerate(zip(args, ty.arg_types, strict=True)):
        s.flow(src, s.unifier.substitute(dst, types), e, f"argument {i + 1} of {name} has another type")
    if types and s.unifier.unknown(ty.ret_type) is not None:
        result = IncompleteType()
        s.wait(Instantiation(e, ty.ret_type, types, result))
        return result
    return s.unifier.substitute(ty.ret_type, types)


def callee_name(op: ir.Node) -> str:
    """Name what is called, for messages."""
    if isinstance(op, nodes.GlobalVar):
        return f"'@{op.name_hint}'"
    if isinstance(op, nodes.Var):
        return f"'%{op.name_hint}'"
    return f"constructor '{op.name_hint}'" if isinstance(op, Constructor) else "the function"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
