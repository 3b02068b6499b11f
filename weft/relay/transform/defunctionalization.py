"""Defunctionalization: function values become values of data types, and what calls them functions that match on those.

Every function of the module is copied for the types that it is called with, so that each function value has one type.
Each type of functions then is a data type: a constructor for each function of that type in the program, whose fields
are what the function captures.

Source: Reynolds, *Definitional Interpreters for Higher-Order Programming Languages*, 1972; Cejtin, Jagannathan, Weeks,
*Flow-Directed Closure Conversion for Typed Languages*, 2000; TVM's ``Defunctionalization``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import force_setattr, replace

from weft import ir
from weft.error import InvalidArgument
from weft.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternVar, TypeData
from weft.relay.expr import Call, Function, GlobalVar, Let, Var, lets
from weft.relay.infer import infer_module
from weft.relay.transform.copying import renamed_pattern, typed
from weft.relay.transform.free import Captures
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.types import FuncType, GlobalTypeVar, TypeCall, TypeVar, type_parts
from weft.relay.walk import map_parts, pattern_vars
from weft.spelling import unused_name

Types = Mapping[TypeVar, Any]


def Defunctionalization(func: Function, mod: ir.IRModule) -> Function:
    """Return a function that computes the same without function values.

    Parameters
    ----------
    func : Function
        Neither it nor its parameters or result hold functions, and it has no type parameters.
    mod : IRModule
        What `func` refers to. The data types, the functions that match on them, and copies of functions that take or
        return functions, or are polymorphic, are added to it.

    Raises
    ------
    InvalidArgument
        When the type of `func` has functions or type parameters: what they are is not known.
    """
    if func.type_params or any(map(_has_function, (*(p.ty for p in func.params), func.ret_type))):
        raise InvalidArgument(
            "Defunctionalization: functions go in or out, or types do",
            where=func.span,
            help="call it from a function of data",
        )
    probe = mod.copy()
    own = next((v for v, f in mod.items() if f is func), GlobalVar(_fresh(probe, "defunctionalized")))
    probe[own] = func
    run = _Defunctionalizer(infer_module(probe), mod, own)
    return ir.with_deep_stack(run.whole)


def _has_function(ty: ir.Type | None) -> bool:
    return ty is not None and bool(ir.find(ty, FuncType))


def _fresh(mod: ir.IRModule, name: str) -> str:
    return unused_name(name, {v.name_hint for v in (*mod.functions, *mod.type_definitions)})


class _Closures:
    """What there is of one type of functions: a constructor for each, and the function that applies them."""

    def __init__(self, header: GlobalTypeVar, apply: GlobalVar, args: Sequence[Any], result: Any) -> None:
        self.header, self.apply, self.result = header, apply, result
        self.args = tuple(args)
        self.known: dict[Any, Constructor] = {}
        self.bodies: list[tuple[Constructor, list[Var], tuple[Var, ...], Any]] = []


class _Defunctionalizer:
    """Converts what one function reaches; ``mod`` has the types, ``out`` gets what is made."""

    def __init__(self, mod: ir.IRModule, out: ir.IRModule, own: ir.GlobalVar) -> None:
        self.mod, self.out, self.own = mod, out, own
        self.captures = Captures()
        self.by_type: dict[str, _Closures] = {}
        self.copies: dict[tuple[str, str], ir.GlobalVar] = {}
        self.made: dict[ir.GlobalVar, Function] = {}
        self.literals: dict[Var, Function] = {}  # of variables of polymorphic functions, written out at each use
        self.waiting: list[Any] = []

    def whole(self) -> Function:
        source: Any = self.mod[self.own.name_hint]
        self.copies[self.own.name_hint, ""] = self.own
        result = self.function(source, {})
        while self.waiting:
            self.waiting.pop()()
        for c in self.by_type.values():
            self.out[c.header] = TypeData(c.header, (), tuple(c.known.values()))
            f = Var("f", TypeCall(c.header))
            args = tuple(Var(f"a{i}", t) for i, t in enumerate(c.args))
            clauses = []
            for constructor, held, params, body in c.bodies:
                fields = tuple(PatternVar(v) for v in held)
                clauses.append(
                    Clause(PatternConstructor(constructor, fields), lets(list(zip(params, args, strict=True)), body))
                )
            self.out[c.apply] = Function((f, *args), Match(f, tuple(clauses)), c.result)
        for gvar, func in self.made.items():
            self.out[gvar] = func
        return result

    # --- types --------------------------------------------------------------------------------------------------------

    def type_of(self, ty: ir.Type | None, types: Types) -> Any:
        """Return a type without functions; None stays None."""
        if ty is None:
            return None

        def rule(t: ir.Type) -> Any:
            return TypeCall(self.closures(t).header) if isinstance(t, FuncType) else t

        return ir.rewrite(typed(ty, types), rule)

    def closures(self, ty: FuncType) -> _Closures:
        """Return what stands for a type of functions, in whose arguments and result no functions are left."""
        if ty.type_params:
            raise InvalidArgument(
                "Defunctionalization: a polymorphic function is passed on",
                found=str(ty),
                help="pass it where the type that it gets is known",
            )
        key = str(ty)
        if key not in self.by_type:
            number = len(self.by_type)
            header, apply = (_fresh(self.out, f"{n}{number}") for n in ("Closure", "apply"))
            self.by_type[key] = _Closures(GlobalTypeVar(header), GlobalVar(apply), ty.arg_types, ty.ret_type)
        return self.by_type[key]

    # --- functions ----------------------------------------------------------------------------------------------------

    def function(self, func: Function, types: Types) -> Function:
        env: dict[Var, Any] = {}
        params = tuple(self.renamed(p, types, env) for p in func.params)
        body = self.go(func.body, types, env)
        return Function(params, body, self.type_of(func.ret_type, types), (), func.attrs)

    def renamed(self, var: Var, types: Types, env: dict[Var, Any]) -> Var:
        env[var] = Var(var.name_hint, self.type_of(var.ty, types), span=var.span)
        return env[var]

    def copy_of(self, gvar: ir.GlobalVar, ty_args: Sequence[Any]) -> ir.GlobalVar:
        """Return the function of the module for some types, converted."""
        func: Any = self.mod[gvar.name_hint]
        if type(func) is not Function or is_primitive(func):
            return gvar
        key = gvar.name_hint, ", ".join(map(str, ty_args))
        if key not in self.copies:
            plain = not ty_args and not any(map(_has_function, (*(p.ty for p in func.params), func.ret_type)))
            name = gvar.name_hint if plain else _fresh(self.out, f"{gvar.name_hint}_{len(self.copies)}")
            made = self.copies[key] = gvar if plain else GlobalVar(name)
            types = dict(zip(func.type_params, ty_args, strict=True))

            def convert() -> None:
                self.made[made] = self.function(func, types)

            self.waiting.append(convert)
        return self.copies[key]

    def closure(self, func: Any, wanted: Any, types: Types, env: dict[Var, Any], own: Var | None = None) -> Any:
        """Return the value that stands for a function where its type is `wanted`."""
        of = self.closures(self._flat(wanted))
        is_global = type(func) is GlobalVar
        source: Any = self.mod[func.name_hint] if is_global else func
        if source.type_params:
            have = _signature(source)
            pairs = zip((*have.arg_types, have.ret_type), (*wanted.arg_types, wanted.ret_type), strict=True)
            types = {**types, **_unified(list(pairs), source.type_params)}
        free = () if is_global else tuple(v for v in self.captures.variables(func) if v is not own)
        held = [v for v in free if v not in self.literals]
        key = (func.name_hint if is_global else func, ", ".join(str(types.get(t)) for t in types))
        constructor = of.known.get(key)
        if constructor is None:
            fields = tuple(self.type_of(v.ty, types) for v in held)
            constructor = Constructor(f"{of.header.name_hint}_{len(of.known)}", fields, of.header)
            force_setattr(constructor, "ty", FuncType(fields, TypeCall(of.header)))
            of.known[key] = constructor
            inner: dict[Var, Any] = {}
            patterns = [self.renamed(v, types, inner) for v in held]
            params = tuple(self.renamed(p, types, inner) for p in source.params)
            again = Call(constructor, tuple(patterns))

            def convert() -> None:
                if is_global:
                    args = tuple(types.get(t) for t in source.type_params)
                    body: Any = Call(self.copy_of(func, args), params)
                elif own is None:
                    body = self.go(func.body, types, inner)
                else:
                    var = self.renamed(own, types, inner)
                    body = Let(var, again, self.go(func.body, types, inner))
                of.bodies.append((constructor, patterns, params, body))

            self.waiting.append(convert)
        return Call(constructor, tuple(env[v] for v in held))

    def _flat(self, ty: FuncType) -> FuncType:
        """Return a type of functions whose parts have no functions."""
        return FuncType(tuple(self.type_of(t, {}) for t in ty.arg_types), self.type_of(ty.ret_type, {}), ty.type_params)

    # --- expressions --------------------------------------------------------------------------------------------------

    def go(self, e: ir.Expr, types: Types, env: dict[Var, Any], wanted: Any = None) -> Any:
        """Convert an expression, which is used where a value of the type `wanted` is."""
        bindings: list[tuple[Var, Any]] = []
        while type(e) is Let:
            if type(e.value) is Function and e.value.type_params:
                self.literals[e.var] = e.value
            else:
                value = self.value(e.value, types, env, e.var.ty or e.value.ty, e.var)
                bindings.append((self.renamed(e.var, types, env), value))
            e = e.body
        return lets(bindings, self.value(e, types, env, wanted))

    def value(self, e: ir.Expr, types: Types, env: dict[Var, Any], wanted: Any = None, own: Var | None = None) -> Any:
        """Convert an expression that is no let."""
        if type(e) is Let:
            return self.go(e, types, env, wanted)
        if type(e) is Var and e in self.literals:
            e = self.literals[e]
        if type(e) is Var:
            return env[e]
        if type(e) is GlobalVar or (type(e) is Function and not is_primitive(e)):
            ty = typed(wanted if isinstance(wanted, FuncType) and not wanted.type_params else e.ty, types)
            return self.closure(e, ty, types, env, own)
        if type(e) is Call:
            return self.call(e, types, env, wanted)
        if type(e) is Match:
            clauses = []
            for c in e.clauses:
                inside = {v: self.renamed(v, types, env) for v in pattern_vars(c.lhs)}
                clauses.append(Clause(renamed_pattern(c.lhs, inside), self.go(c.rhs, types, env, wanted)))
            return Match(self.go(e.data, types, env), tuple(clauses), e.complete, span=e.span)
        made = map_parts(e, lambda p: self.go(p, types, env))
        return made if made is e or getattr(made, "ty", None) is None else replace(made, ty=None)

    def call(self, e: Call, types: Types, env: dict[Var, Any], wanted: Any) -> Any:
        op: Any = self.literals.get(e.op, e.op) if type(e.op) is Var else e.op
        given = tuple(typed(t, types) for t in e.ty_args)
        if isinstance(op, (ir.Op, Constructor)) or (type(op) is Function and is_primitive(op)):
            params: Any = [None] * len(e.args)
            if type(op) is Constructor:
                made = wanted if isinstance(wanted, TypeCall) else typed(e.ty, types)
                of = _unified([(op.ty.ret_type, made)], op.ty.type_params)  # type: ignore[attr-defined]
                params = [typed(t, of) for t in op.inputs]
            args = tuple(self.go(a, types, env, w) for a, w in zip(e.args, params, strict=True))
            return Call(op, args, e.attrs, span=e.span)
        if type(op) is GlobalVar:
            func: Any = self.mod[op.name_hint]
            params = _parameters(_signature(func), given)
            args = tuple(self.go(a, types, env, w) for a, w in zip(e.args, params, strict=True))
            return Call(self.copy_of(op, given), args, e.attrs, span=e.span)
        ty = _signature(op) if type(op) is Function else op.ty
        if isinstance(ty, FuncType) and ty.type_params:
            ty = FuncType(tuple(_parameters(ty, given)), typed(e.ty, types))
        ty = typed(ty, types)
        args = tuple(self.go(a, types, env, w) for a, w in zip(e.args, ty.arg_types, strict=True))
        return Call(self.closures(self._flat(ty)).apply, (self.go(op, types, env, ty), *args), span=e.span)


def _signature(func: Any) -> FuncType:
    found = func.ty if isinstance(func.ty, FuncType) else None
    return found or FuncType(tuple(p.ty for p in func.params), func.ret_type or func.body.ty, func.type_params)


def _parameters(ty: Any, ty_args: Sequence[Any]) -> list[Any]:
    """List the types of the parameters of a function for some types."""
    types = dict(zip(ty.type_params, ty_args, strict=True)) if len(ty.type_params) == len(ty_args) else {}
    return [typed(t, types) for t in ty.arg_types]


def _unified(waiting: list[tuple[Any, Any]], params: Sequence[TypeVar]) -> dict[TypeVar, Any]:
    """Find what type variables are where the first of each pair is the second."""
    found: dict[TypeVar, Any] = {}
    while waiting:
        a, b = waiting.pop()
        if isinstance(a, TypeVar) and a in params:
            found[a] = b
        else:
            waiting += zip(type_parts(a), type_parts(b), strict=False)
    return found
