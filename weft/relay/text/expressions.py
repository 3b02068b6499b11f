"""Parsing of Relay's expressions: by precedence for operators, by recursion for what nests, by loops for lets."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.ir import Attrs, Op
from weft.relay import expr as nodes
from weft.relay.adt import Clause, Match, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from weft.relay.op import registry
from weft.relay.text.lexer import Token
from weft.relay.text.reader import LEFT_OUT, Reader, near

# Sign -> how strongly it binds, and the operator that it means.
_BINARY = {
    "*": (4, "multiply"),
    "/": (4, "divide"),
    "+": (3, "add"),
    "-": (3, "subtract"),
    "<": (2, "less"),
    ">": (2, "greater"),
    "<=": (2, "less_equal"),
    ">=": (2, "greater_equal"),
    "==": (1, "equal"),
    "!=": (1, "not_equal"),
}
_PLACES = {("memory.alloc_storage", "virtual_device"): "device_index"}
_REFS = {"ref": (1, nodes.RefCreate), "ref_read": (1, nodes.RefRead), "ref_write": (2, nodes.RefWrite)}


class ExpressionReader(Reader):
    """Reads expressions in scopes of variables (``%x``) and of numbered nodes (``%0``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scopes: list[dict[str, ir.Expr]] = [{}]
        self.globals: dict[str, nodes.GlobalVar] = {v.name_hint: v for v in self.mod.functions}  # type: ignore[misc]

    def start_over(self) -> None:
        """Forget the scopes of a definition that did not parse."""
        self._scopes, self._type_vars, self._depth = [{}], [], 0

    # --- variables ---

    def _bind(self, token: Token, node: Any) -> Any:
        self._scopes[-1][token.name if token.kind == "var" else token.text] = node
        return node

    def _variable(self, places: list[Any] | None = None) -> tuple[Token, nodes.Var]:
        """Read ``%x: type``, without making it known; `places` gets TVM's ``{virtual_device=...}`` behind the name."""
        token = self.t.expect_kind("var", "variable such as %x")
        place: dict[str, Any] = {}
        if places is not None:
            if self.t.take("{"):
                self.read_attribute(place)
                self.t.expect("}", "the place of a parameter")
            places.append(place.get("virtual_device"))
        ty = self.annotation() if self.t.take(":") else None
        return token, nodes.Var(token.name, ty, span=self.t.span(token.start, token.end))

    def _parameter(self, places: list[Any] | None = None) -> nodes.Var:
        return self._bind(*self._variable(places))

    def _look_up(self, token: Token) -> ir.Expr:
        name = token.name if token.kind == "var" else token.text
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        kind = "var" if token.kind == "var" else "graph"
        known = [f"%{k}" if not k.startswith("%") else k for s in self._scopes for k in s]
        self.t.fail(
            f"{token.text} is not known here",
            token,
            help=near(token.text, known)
            or ("declare it by 'free_var'" if kind == "var" else "numbered nodes are defined before they are used"),
        )

    # --- blocks ---

    def block(self, close: str, where: str) -> ir.Expr:
        """Read lets, numbered nodes and a last expression up to `close`, and step over that."""
        self._scopes.append({})
        lets: list[tuple[Token, nodes.Var, ir.Expr]] = []
        while True:
            start = self.t.peek()
            if self.t.take("let"):
                lets.append((start, *self._let()))
            elif self._numbered():
                continue
            elif start.text == "free_var" and self.t.peek(1).kind == "var":
                self.t.next()
                self._bind(*self._variable())
                self._end_statement()
            else:
                value = self.expr()
                if not self.t.take(";"):
                    break
                lets.append((start, nodes.Var("_", span=self.t.since(start)), value))
        end = self.t.take(close) if close else self.t.peek().kind == "end"
        if not end:
            expected = f"an operator, ';' or {repr(close) if close else 'the end of the text'}"
            self.t.fail(f"{where} is malformed", expected=expected, found=str(self.t.peek()))
        self._scopes.pop()
        for start, var, bound in reversed(lets):
            value = nodes.Let(var, bound, value, span=self.t.span(start.start, start.end))
        return value

    def _numbered(self) -> bool:
        """Read ``%0 = ...;`` where it stands next."""
        start = self.t.peek()
        if start.kind != "graph" or self.t.peek(1).text != "=":
            return False
        self.t.at += 2
        self._bind(start, self.expr())
        self._end_statement()
        return True

    def _end_statement(self) -> None:
        if not self.t.take(";"):
            self.t.fail("a statement ends with ';'", expected="an operator or ';'", found=str(self.t.peek()))

    def _let(self) -> tuple[nodes.Var, ir.Expr]:
        """Read what follows ``let``. Only a function sees the variable that it is bound to."""
        token, var = self._variable()
        self.t.expect("=", "a let")
        if self.t.sees("fn"):
            self._bind(token, var)
        if self.t.sees("let"):
            self.t.fail("a let inside a let stands between braces", help="write let %x = { let %y = …; … };")
        value = self.expr()
        self._end_statement()
        self._bind(token, var)
        return var, value

    # --- operators ---

    def expr(self, strength: int = 0) -> ir.Expr:
        """Read an expression whose operators bind more strongly than `strength`."""
        self.enter()
        start = self.t.peek()
        left = self._unary()
        while True:
            sign = self.t.peek()
            binding, name = _BINARY.get(sign.text, (0, "")) if sign.kind == "punct" else (0, "")
            if binding <= strength:
                break
            self.t.next()
            right = self.expr(binding)
            left = nodes.Call(Op.get(name), (left, right), span=self.t.since(start))
        self.leave()
        return left

    def _unary(self) -> ir.Expr:
        start = self.t.peek()
        signs = 0
        while self.t.take("-"):
            signs += 1
        if signs and self.t.peek().kind == "number":
            return self._postfix(self._literal(self.t.next(), start, signs % 2 == 1), start)
        value = self._postfix(self._atom(), start)
        for _ in range(signs):
            value = nodes.Call(Op.get("negative"), (value,), span=self.t.since(start))
        return value

    def _literal(self, token: Token, start: Token, negative: bool = False) -> nodes.Constant:
        made = nodes.const(self.number(token, negative))
        return nodes.Constant(made.data, ty=made.ty, span=self.t.since(start))

    def _postfix(self, value: Any, start: Token) -> ir.Expr:
        """Read calls and projections behind an expression."""
        while True:
            token = self.t.peek()
            if token.kind == "item":
                self.t.next()
                if len(token.text) > 10:
                    self.t.fail("the index is too large", token)
                value = nodes.TupleGetItem(value, int(token.text[1:]), span=self.t.since(start))
            elif self.t.take("("):
                value = self._call(value, start)
            else:
                return value

    def _call(self, callee: Any, start: Token) -> ir.Expr:
        args: list[ir.Expr] = []
        attrs: dict[str, Any] = {}

        def one() -> None:
            if not self.sees_attribute():
                if attrs:
                    self.t.fail("arguments stand before attributes", found=str(self.t.peek()))
                args.append(self.expr())
            else:
                self.read_attribute(attrs, lacks=isinstance(callee, Op), name=self._attribute_name(callee))

        self.t.sequence(")", one, "a call")
        if isinstance(callee, Op):
            defaults = registry.get(callee).attrs
            attrs = {k: attrs.get(k, v) for k, v in defaults.items()}
            attrs = {k: v for k, v in attrs.items() if v is not LEFT_OUT and v is not registry.REQUIRED}
        return nodes.Call(callee, tuple(args), Attrs.of(attrs), span=self.t.since(start))

    def _attribute_name(self, callee: ir.Node) -> str | None:
        """Return the name of the attribute that is next; TVM calls devices ``virtual_device``."""
        token = self.t.peek()
        name = token.text.strip('"')
        if not isinstance(callee, Op):
            return None
        known = registry.get(callee).attrs
        ours = name if name in known else _PLACES.get((callee.name, name), name.replace("virtual_device", "device"))
        if ours not in known:
            listed = ", ".join(known) or "no attributes"
            self.t.fail(f"'{callee.name}' has no attribute '{name}'", token, expected=listed)
        return ours

    # --- what begins an expression ---

    def _atom(self) -> Any:
        token = self.t.peek()
        if token.kind in ("var", "graph"):
            self.t.next()
            return self._look_up(token)
        if token.kind == "number":
            return self._literal(self.t.next(), token)
        if token.kind == "global":
            self.t.next()
            known = self.globals.get(token.name)
            if known is None:
                known = self.globals[token.name] = nodes.GlobalVar(token.name, span=self.t.since(token))
            return known
        rule = _RULES.get(token.text) if token.kind in ("name", "punct", "match") else None
        if rule is not None:
            return rule(self, token)
        if token.kind == "name":
            return self._word(self.t.next())
        return self.t.fail("an expression is expected", expected="an expression", found=str(token))

    def _word(self, token: Token) -> Any:
        name = token.text
        if name in _REFS and self.t.sees("("):
            return self._reference(token)
        if name in self.constructors:
            made = self.constructors[name]
            return made if made.inputs or self.t.sees("(") else nodes.Call(made, (), span=self.t.since(token))
        if registry.has(name):
            return Op.get(name)
        self.t.fail(
            f"'{name}' is no operator and no constructor",
            token,
            help=near(name, [*self.constructors, *registry.list_ops()]) or "variables begin with %, functions with @",
        )

    def _reference(self, token: Token) -> ir.Expr:
        arity, kind = _REFS[token.text]
        self.t.next()
        args, _ = self.t.sequence(")", self.expr, f"'{token.text}'")
        if len(args) != arity:
            self.t.fail(f"'{token.text}' takes {arity} of arguments", token, found=str(len(args)))
        return kind(*args, span=self.t.since(token))

    def _parenthesis(self, start: Token) -> ir.Expr:
        self.t.next()
        if self.t.sees("let"):
            return self.block(")", "a parenthesis")
        fields, comma = self.t.sequence(")", self.expr, "a tuple")
        return fields[0] if len(fields) == 1 and not comma else nodes.Tuple(tuple(fields), span=self.t.since(start))

    def _braces(self, start: Token) -> ir.Expr:
        self.t.next()
        return self.block("}", "a block")

    def _truth(self, token: Token) -> ir.Expr:
        self.t.next()
        made = nodes.const(token.text == "True")
        return nodes.Constant(made.data, ty=made.ty, span=self.t.since(token))

    def _meta(self, token: Token) -> ir.Expr:
        """Read a reference; ``meta[relay.Constructor][Nil]`` is the constructor itself, which ``Nil`` would call."""
        name = self.t.peek(5)
        if self.t.peek(2).text == "relay.Constructor" and name.text in self.constructors:
            self.t.at += 6
            self.t.expect("]", "a reference to a constructor")
            return self.constructors[name.text]
        return self.reference(ir.Expr, "expression")

    def _if(self, start: Token) -> ir.Expr:
        self.t.next()
        cond = self.expr()
        self.t.expect("{", "an if")
        then = self.block("}", "a branch")
        self.t.expect("else", "an if")
        if self.t.sees("if"):
            with self.deeper():
                other = self._if(self.t.peek())
        else:
            self.t.expect("{", "an if")
            other = self.block("}", "a branch")
        return nodes.If(cond, then, other, span=self.t.since(start))

    def _fn(self, start: Token) -> ir.Expr:
        self.t.next()
        return self.function(start)

    def function(self, start: Token) -> nodes.Function:
        """Read what follows ``fn`` or ``def @f``: type variables, parameters, attributes, result type, body."""
        types = self.type_vars()
        self._scopes.append({})
        self.t.expect("(", "a function")
        params: list[nodes.Var] = []
        places: list[Any] = []
        attrs: dict[str, Any] = {}

        def one() -> None:
            if self.sees_attribute():
                self.read_attribute(attrs)
            elif self.t.peek().kind == "var" and any(p.name_hint == self.t.peek().name for p in params):
                self.t.fail(f"parameter {self.t.peek().text} is declared twice")
            else:
                params.append(self._parameter(places))

        self.t.sequence(")", one, "a list of parameters")
        if any(places):
            attrs["param_virtual_devices"] = tuple(places)
        result = self.annotation() if self.t.take("->") else None
        self.t.expect("{", "a function")
        body = self.block("}", "the body of a function")
        self._scopes.pop()
        self.leave_types()
        return nodes.Function(tuple(params), body, result, types, Attrs(tuple(attrs.items())), span=self.t.since(start))

    # --- matches ---

    def _match(self, start: Token) -> ir.Expr:
        self.t.next()
        data = self.expr()
        self.t.expect("{", "a match")
        clauses, _ = self.t.sequence("}", self._clause, "a match")
        return Match(data, tuple(clauses), start.text == "match", span=self.t.since(start))

    def _clause(self) -> Clause:
        start = self.t.peek()
        self._scopes.append({})
        lhs = self.pattern()
        self.t.expect("=>", "a clause")
        while self._numbered():
            pass
        rhs = self.expr()
        self._scopes.pop()
        return Clause(lhs, rhs, span=self.t.since(start))

    def pattern(self) -> Pattern:
        """Read a pattern and make its variables known."""
        with self.deeper():
            token = self.t.peek()
            if token.kind == "var":
                return PatternVar(self._parameter(), span=self.t.since(token))
            if self.t.take("_"):
                return PatternWildcard(span=self.t.since(token))
            if self.t.take("("):
                inner, comma = self.t.sequence(")", self.pattern, "a pattern")
                one = len(inner) == 1 and not comma
                return inner[0] if one else PatternTuple(tuple(inner), span=self.t.since(token))
            if token.kind != "name":
                self.t.fail("a pattern is expected", expected="_, %x, a constructor or a tuple", found=str(token))
            self.t.next()
            constructor = self.constructors.get(token.text)
            if constructor is None:
                known = ", ".join(self.constructors) or "no data types at all"
                hint = near(token.text, self.constructors)
                self.t.fail(f"'{token.text}' is no constructor", token, expected=f"one of {known}", help=hint)
            args = self.t.sequence(")", self.pattern, "a pattern")[0] if self.t.take("(") else ()
            return PatternConstructor(constructor, tuple(args), span=self.t.since(token))


_RULES: dict[str, Any] = {
    "(": ExpressionReader._parenthesis,
    "{": ExpressionReader._braces,
    "True": ExpressionReader._truth,
    "False": ExpressionReader._truth,
    "meta": ExpressionReader._meta,
    "if": ExpressionReader._if,
    "fn": ExpressionReader._fn,
    "match": ExpressionReader._match,
    "match?": ExpressionReader._match,
}
