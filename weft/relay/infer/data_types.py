"""Data types in inference: constructors, patterns, and whether annotations are well formed."""

from typing import Any

from weft import ir
from weft.ir import Dispatch, Type
from weft.relay.adt import Constructor, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, TypeData
from weft.relay.infer.state import Inference
from weft.relay.infer.unify import FAILED
from weft.relay.op.memory import STORAGE
from weft.relay.types import FuncType, GlobalTypeVar, IncompleteType, TensorType, TupleType, TypeCall, type_parts

_STORAGE: Any = STORAGE.func  # what allocation makes, in lowered programs
PATTERN = Dispatch("pattern of a Relay match", (Pattern,))


def definition(c: Constructor, s: Inference) -> tuple[TypeData, Constructor] | None:
    """Find a constructor in its data type's definition, by names; None where there is no such."""
    data = s.data.get(c.belong_to.name_hint)
    own = next((k for k in data.constructors if k.name_hint == c.name_hint), None) if data is not None else None
    return None if data is None or own is None else (data, own)


def constructor_type(c: Constructor, node: ir.Node, s: Inference) -> Type:
    """Return the type of a constructor: a function from its fields to its data type."""
    found = definition(c, s)
    if found is not None:
        data, own = found
        if own.ty is not None:
            return own.ty
        return FuncType(own.inputs, TypeCall(data.header, data.type_vars), data.type_vars)
    if s.mod is None and c.ty is not None:
        return c.ty
    of = s.data.get(c.belong_to.name_hint)
    if of is None:
        return _no_data_type(c.belong_to, node, s)
    return s.fail(
        f"data type '{c.belong_to.name_hint}' has no constructor '{c.name_hint}'",
        node,
        expected=", ".join(k.name_hint for k in of.constructors) or "none",
        found=c.name_hint,
    )


def _no_data_type(header: GlobalTypeVar, node: ir.Node, s: Inference) -> Type:
    known = ", ".join(s.data) or "no data types"
    return s.fail(
        f"there is no data type '{header.name_hint}'",
        node,
        expected="a data type of the module",
        found=known,
        help="set its definition, a TypeData, in the module",
    )


def bind_pattern(p: Pattern, ty: Type, node: ir.Node, s: Inference) -> None:
    """Say that values of type `ty` are compared with a pattern; its variables are bound."""
    PATTERN(p, ty, p if p.span is not None else node, s)


@PATTERN.on(PatternWildcard)
def _wildcard(p: PatternWildcard, ty: Type, node: ir.Node, s: Inference) -> None:
    """Every value fits."""


@PATTERN.on(PatternVar)
def _variable(p: PatternVar, ty: Type, node: ir.Node, s: Inference) -> None:
    if p.var.ty is None:
        s.vars[p.var] = ty
        return
    check_annotation(p.var.ty, node, s)
    s.vars[p.var] = p.var.ty
    s.flow(ty, p.var.ty, node, f"variable '%{p.var.name_hint}' is annotated with another type than it is matched with")


@PATTERN.on(PatternTuple)
def _tuple(p: PatternTuple, ty: Type, node: ir.Node, s: Inference) -> None:
    known = s.head(ty)
    if isinstance(known, TupleType) and len(known.fields) == len(p.patterns):
        fields = known.fields
    elif isinstance(known, TupleType):
        s.fail(
            "the pattern has another number of fields than the tuple",
            node,
            expected=f"{len(known.fields)}",
            found=f"{len(p.patterns)}",
            help=f"the tuple is `{s.resolve(known)}`",
        )
        fields = (FAILED,) * len(p.patterns)
    else:
        fields = tuple(IncompleteType() for _ in p.patterns)
        s.flow(ty, TupleType(fields), node, "a tuple pattern is matched with another type")
    for q, t in zip(p.patterns, fields, strict=True):
        bind_pattern(q, t, node, s)


@PATTERN.on(PatternConstructor)
def _constructor(p: PatternConstructor, ty: Type, node: ir.Node, s: Inference) -> None:
    c = constructor_type(p.constructor, node, s)
    name = p.constructor.name_hint
    fields: tuple[Type, ...] = (FAILED,) * len(p.patterns)
    if isinstance(c, FuncType):
        made, _ = s.unifier.instantiate(c)
        s.flow(ty, made.ret_type, node, f"a pattern of constructor '{name}' is matched with another type")
        if len(made.arg_types) == len(p.patterns):
            fields = made.arg_types
        else:
            s.fail(
                f"the pattern of constructor '{name}' has another number of fields",
                node,
                expected=f"{len(made.arg_types)}",
                found=f"{len(p.patterns)}",
                help=f"the constructor's type is `{c}`",
            )
    for q, t in zip(p.patterns, fields, strict=True):
        bind_pattern(q, t, node, s)


def check_annotation(ty: Type, node: ir.Node, s: Inference) -> None:
    """Note an error where a type names a data type that is not there, or gives it a wrong number of arguments."""
    if type(ty) is TensorType or id(ty) in s.checked:
        return
    s.checked.add(id(ty))
    if isinstance(ty, GlobalTypeVar):
        _check_data_type(ty, (), node, s)
        return
    if isinstance(ty, TypeCall):
        if not isinstance(ty.func, GlobalTypeVar):
            s.fail("what is applied to types is no data type", node, expected="a data type", found=ty.func)
            return
        _check_data_type(ty.func, ty.args, node, s)
    for part in ty.args if isinstance(ty, TypeCall) else type_parts(ty):
        check_annotation(part, node, s)


def check_definitions(s: Inference) -> None:
    """Note errors in the data types of the module: names that are defined twice, fields of unknown types."""
    types: set[str] = set()
    owners: dict[str, Any] = {}
    for header, data in s.mod.type_definitions.items() if s.mod is not None else ():
        name = header.name_hint
        if name in types:
            s.fail(f"data type '{name}' is defined twice", data, help="rename one of them")
        types.add(name)
        for c in data.constructors:
            first = owners.setdefault(c.name_hint, c)
            if first is not c:
                both = f"'{first.belong_to.name_hint}' and '{name}' have it"
                what = f"constructor '{c.name_hint}' is defined twice"
                s.fail(what, c if c.span is not None else data, found=both, help="rename one of them")
            for field in c.inputs:
                check_annotation(field, c if c.span is not None else data, s)


def _check_data_type(header: GlobalTypeVar, args: tuple[Type, ...], node: ir.Node, s: Inference) -> None:
    data = s.data.get(header.name_hint)
    if data is None:
        if s.mod is not None and header.name_hint != _STORAGE.name_hint:
            _no_data_type(header, node, s)
    elif len(data.type_vars) != len(args):
        s.fail(
            f"data type '{header.name_hint}' has another number of type parameters",
            node,
            expected=f"{len(data.type_vars)}",
            found=f"{len(args)}",
        )
