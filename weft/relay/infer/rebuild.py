"""The program with the types that were found put in. What has them already keeps its identity."""

from typing import Any

from msgspec.structs import force_setattr, replace

from weft import ir
from weft.relay.adt import Clause, Constructor, Pattern
from weft.relay.expr import Call, Constant, Function, GlobalVar, Let, Var
from weft.relay.infer.operators import remember
from weft.relay.infer.state import Inference
from weft.relay.types import FuncType, types_equal


class Rebuild:
    """Rewrites expressions of an inference that is done."""

    def __init__(self, s: Inference) -> None:
        self.s = s
        self.memo: dict[Any, Any] = {}
        self.globals: dict[str, ir.GlobalVar] = {}

    def __call__(self, e: ir.Node) -> Any:
        """Return an expression or pattern with types."""
        done = self.memo.get(e)
        if done is None:
            done = self.memo[e] = self._make(e)
        return done

    def _make(self, e: Any) -> Any:
        cls = type(e)
        if cls is Call:
            return self._call(e)
        if cls is Let:
            return self._lets(e)
        if cls is Var:
            return self._typed(e, self.type(self.s.vars[e], e)) if e in self.s.vars else e
        if cls is GlobalVar:
            return self.global_var(e)
        if cls is Function:
            return self._function(e)
        if cls is Constructor:
            return self._constructor(e)
        if cls is Constant:
            return self._typed(e, self.s.types[e])
        if isinstance(e, (Pattern, Clause)):
            return ir.rebuild(e, self)
        if not isinstance(e, ir.Expr):
            return e
        return self._typed(self._children(e), self.type(self.s.types[e], e))

    def type(self, ty: ir.Type, node: ir.Node) -> ir.Type:
        """Return a type with all that was found put in, or note that a part of it was not found."""
        found = self.s.resolve(ty)
        if self.s.unifier.unknown(found) is not None and not self.s.errors:
            name = f"of variable '%{node.name_hint}' " if isinstance(node, Var) else ""
            self.s.fail(
                f"the type {name}cannot be inferred", node, found=found, help="annotate it, or give type arguments"
            )
        return found

    def _children(self, e: ir.Expr) -> Any:
        """Rebuild the expressions and patterns in an expression; its own type is put in afterwards."""
        changed: dict[str, Any] = {}
        for name in e.__struct_fields__:
            old = getattr(e, name)
            if name in ("ty", "span", "attrs") or old is None:
                continue
            if type(old) is tuple:
                parts = tuple([self(x) for x in old])
                if any(a is not b for a, b in zip(parts, old, strict=True)):
                    changed[name] = parts
            elif isinstance(old, ir.Node) and (part := self(old)) is not old:
                changed[name] = part
        return replace(e, **changed) if changed else e

    @staticmethod
    def _typed(e: ir.Expr, ty: ir.Type) -> Any:
        if e.ty is ty or (e.ty is not None and type(e.ty) is type(ty) and types_equal(e.ty, ty)):
            return e
        return replace(e, ty=ty)

    def _call(self, e: Call) -> Call:
        op = e.op if isinstance(e.op, ir.Op) else self(e.op)
        args = tuple([self(a) for a in e.args])
        type_args = tuple([self.type(t, e) for t in self.s.type_args.get(e, e.ty_args)])
        ty = self.type(self.s.types[e], e)
        if e.ty is not None and types_equal(e.ty, ty):
            ty = e.ty
        if len(type_args) == len(e.ty_args) and all(map(types_equal, type_args, e.ty_args)):
            type_args = e.ty_args
        e = ir.with_fields(e, op=op, args=args, ty_args=type_args, ty=ty)
        if isinstance(op, ir.Op):
            remember(e)
        return e

    def _lets(self, e: Let) -> Any:
        chain: list[tuple[Let, Var, Any]] = []
        inner: Any = e
        while type(inner) is Let and inner not in self.memo:
            chain.append((inner, self(inner.var), self(inner.value)))
            inner = inner.body
        body = self(inner)
        for let, var, value in reversed(chain):
            ty = self.type(self.s.types[let], let)
            same = var is let.var and value is let.value and body is let.body
            body = self._typed(let, ty) if same else Let(var, value, body, ty=ty, span=let.span)
            self.memo[let] = body
        return body

    def _function(self, f: Function) -> Function:
        ty: Any = self.type(self.s.types[f], f)
        params = tuple([self(p) for p in f.params])
        body = self(f.body)
        ret = f.ret_type if f.ret_type is not None and types_equal(f.ret_type, ty.ret_type) else ty.ret_type
        return self._typed(ir.with_fields(f, params=params, body=body, ret_type=ret), ty)

    def _constructor(self, c: Constructor) -> Constructor:
        data = self.s.data.get(c.belong_to.name_hint)
        own = next((k for k in data.constructors if k.name_hint == c.name_hint), c) if data is not None else c
        return own if own.ty is not None or c not in self.s.types else self._typed(own, self.s.types[c])

    def global_var(self, v: ir.GlobalVar) -> ir.GlobalVar:
        """Return the variable of a function of the module, with its type: one for all its uses.

        The module's own gets its type in place if it had none, since programs compare such variables by identity.
        """
        known = self.globals.get(v.name_hint)
        if known is None:
            mod = self.s.mod
            known = mod.get_global_var(v.name_hint) if mod is not None and v.name_hint in mod else v
            ty = self.s.globals.get(v.name_hint)
            if isinstance(ty, FuncType):
                found = self.type(ty, known)
                if known.ty is None and not self.s.errors:
                    force_setattr(known, "ty", found)
                known = self._typed(known, found)
            self.globals[v.name_hint] = known
        return known
