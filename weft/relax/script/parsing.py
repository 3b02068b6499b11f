"""Parse rules of Relax.

Statements of the Python AST to bindings, normalised and typed by the block builder as they are read.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from weft import error, ir, op
from weft.ir.text.evaluate import BINARY, CALL, PLACE, SUBSCRIPT, Evaluator
from weft.ir.text.parser import Dialect, FunctionDecorator, Macro, MacroDecorator, MetaVar, Parser
from weft.relax.analysis.types import definable_tir_vars_in_type, tir_vars_in_type, type_outside
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import as_relax, assert_op, contradict
from weft.relax.expr import SeqExpr, VarBinding
from weft.relax.infer import function_type, merge_types, result_type
from weft.relax.script.annotation import Proxy, TupleOf, as_type
from weft.relax.script.bindings import as_value, assign, bind, new_var
from weft.relax.script.language import Command

_OPTIONS = {"name", "private", "pure", "check_well_formed"}


class _State:
    """A function under way."""

    def __init__(self, node: ast.FunctionDef, options: dict[str, Any], outer: _State | None) -> None:
        self.node, self.options, self.outer = node, options, outer
        self.bb: BlockBuilder = outer.bb if outer is not None else BlockBuilder()
        self.bb.as_written = True
        self.symbols: dict[str, ir.Var] = dict(outer.symbols) if outer is not None else {}
        self.sizes: set[str] = set()
        self.params: tuple[ir.ExprVar, ...] = ()
        self.ret_ty: ir.Type | None = None
        self.attrs: dict[str, Any] = {}
        self.outputs: set[str] | None = None  # of the dataflow block under way
        self.result: ir.Expr | None = None
        self.scope: Any = None  # of the block builder: where bindings go

    @property
    def ty(self) -> ir.FuncType | None:
        """The type, where the signature decides it."""
        if self.ret_ty is None:
            return None
        return ir.FuncType(
            tuple(v.ty or ir.AnyType() for v in self.params), self.ret_ty, self.options.get("pure", True)
        )


# --- signatures -------------------------------------------------------------------------------------------------------


def _signature(p: Parser, node: ast.FunctionDef, options: dict[str, Any]) -> _State:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise p.fail(node, f"R.function has no option '{min(unknown)}'", expected=", ".join(sorted(_OPTIONS)))
    state = _State(node, options, p.state)
    if node.args.vararg or node.args.kwarg or node.args.defaults or node.args.kwonlyargs:
        raise p.fail(node, "parameters of a program have no defaults and are not packed")
    notes: list[Any] = []
    for arg in node.args.args:
        if arg.annotation is None:
            raise p.fail(
                arg,
                f"parameter '{arg.arg}' has no type",
                help='R.Tensor(("n", 4), "float32"), R.Shape, R.Tuple, ... or R.Any',
            )
        notes.append(p.evaluate(arg.annotation))
    state.sizes = {t for n in notes if isinstance(n, Proxy) for t in n.sizes}
    declared = _declared(p, node)
    saved, p.state = p.state, state
    try:
        types = [_type(p, arg.annotation, note, declared) for arg, note in zip(node.args.args, notes, strict=True)]
        _check_sizes(p, node, types, saved)
        state.params = tuple(ir.ExprVar(a.arg, t, span=p.span(a)) for a, t in zip(node.args.args, types, strict=True))
        if node.returns is not None and not (isinstance(node.returns, ast.Constant) and node.returns.value is None):
            note = p.evaluate(node.returns)
            state.ret_ty = None if note is TupleOf else _type(p, node.returns, note, declared)  # R.Tuple: some tuple
    finally:
        p.state = saved
    return state


def _check_sizes(p: Parser, node: ast.FunctionDef, types: list[ir.Type], outer: _State | None) -> None:
    """Refuse expressions of sizes that no parameter has for itself."""
    known = {v for t in types for v in definable_tir_vars_in_type(t)} | set(outer.symbols.values() if outer else ())
    known |= {v for t in types for f in ir.find(t, ir.FuncType) for v in tir_vars_in_type(f)}
    for arg, ty in zip(node.args.args, types, strict=True):
        for v in (x for x in tir_vars_in_type(ty) if x not in known):
            help = f"a parameter whose shape has '{v.name}' by itself says what it is"
            raise p.fail(arg.annotation or arg, f"the size '{v.name}' is not defined", found=str(ty), help=help)


def _declared(p: Parser, node: ast.FunctionDef) -> dict[str, tuple[str, bool | None]]:
    """Return the symbolic variables that the body's ``n = T.int64()`` lines declare.

    Data type and, where given, kind.
    """
    found: dict[str, tuple[str, bool | None]] = {}
    for s in node.body:
        call = s.value if isinstance(s, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args:
            continue
        target, kinds, made = _target(s), {k.arg: k.value for k in call.keywords}, call.func.attr
        if isinstance(target, ast.Name) and set(kinds) <= {"is_size_var"} and made.startswith(("int", "uint")):
            kind = kinds.get("is_size_var")
            found[target.id] = (made, bool(kind.value) if isinstance(kind, ast.Constant) else None)
    return found


def _type(p: Parser, node: Any, value: Any, declared: dict[str, tuple[str, bool | None]]) -> ir.Type:
    """Convert an annotation; its strings introduce symbolic variables."""

    def resolve(text: str) -> ir.PrimExpr:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as e:
            raise p.fail(node, f"the dimension '{text}' is no expression", found=e.msg) from None
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"T", "tvm", "weft", "min", "max"}
        for n in names:
            _symbol(p, n, declared)
        for n in ast.walk(tree):
            ast.copy_location(n, node)
        p.scopes.append({k: v for k, v in p.state.symbols.items() if k in names})
        try:
            dim = p.evaluate(tree)
        finally:
            p.scopes.pop()
        return ir.as_shape((dim,))[0]

    with p.placed(node):
        return as_type(value, resolve)


def _symbol(p: Parser, name: str, declared: dict[str, tuple[str, bool | None]]) -> ir.Var:
    state: _State = p.state
    var = state.symbols.get(name)
    if var is None:
        dtype, size = declared.get(name, ("int64", None))
        is_size = size if size is not None else name in state.sizes
        var = state.symbols[name] = (ir.SizeVar if is_size else ir.Var)(name, dtype)
    return var


# --- bodies -----------------------------------------------------------------------------------------------------------


def _body(p: Parser, state: _State) -> ir.Function:
    node, options = state.node, state.options
    saved, p.state = p.state, state
    bb = state.bb
    p.scopes.append({**state.symbols, **{v.name_hint: v for v in state.params}})
    try:
        with bb.scope() as inner:
            state.scope = inner
            _sequence(p, node.body)
            if state.result is None:
                raise p.fail(node, f"function '{node.name}' returns nothing", help="end it with `return value`")
            result = state.result
            body = bb.finish(inner, result)
    finally:
        p.scopes.pop()
        p.state = saved
    attrs = dict(state.attrs)
    if options.get("private") and "global_symbol" in attrs:
        raise p.fail(node, f"function '{node.name}' is private and has a global symbol", found=attrs["global_symbol"])
    if not options.get("private") and "global_symbol" not in attrs and state.outer is None:
        attrs["global_symbol"] = options.get("name", node.name)
    outer = state.outer.symbols.values() if state.outer is not None else ()
    found, pure = type_outside(state.params, body, outer), options.get("pure", True)
    if contradict(state.ret_ty, found):
        what = f"the result of '{node.name}' has another type"
        raise p.fail(node.returns or node, what, expected=f"{state.ret_ty}", found=f"{found}")
    ret_ty = result_type(state.ret_ty, found)
    func = ir.Function(state.params, body, ret_ty, pure, ir.Attrs.of(attrs), span=p.span(node))
    _add_te_functions(p, state)
    return func.replace(ty=function_type(func))


def _add_te_functions(p: Parser, state: _State) -> None:
    """Hand the TIR functions that ``R.emit_te`` made over to the module."""
    if state.outer is None and p.module is not None:
        for var, func in state.bb.get().items():
            p.module.made[var.name_hint] = (var, func)


def _sequence(p: Parser, nodes: list[ast.stmt]) -> None:
    for i, n in enumerate(nodes):
        if p.state.result is not None:
            raise p.fail(n, "this statement stands after the function's return")
        if isinstance(n, ast.If) and i == len(nodes) - 1 and _returns(n):
            _returned_if(p, n)
        else:
            _statement(p, n)


def _statement(p: Parser, node: ast.stmt) -> None:
    rule = _STATEMENTS.get(type(node))
    if rule is None:
        raise p.fail(node, f"a Relax program has no '{type(node).__name__.lower()}' statement")
    bb = p.state.bb
    place = getattr(node, "value", None) or node
    before, bb.span = bb.span, p.span(place)
    try:
        with p.placed(place):
            rule(p, node)
    finally:
        bb.span = before


def _expand(p: Parser, nodes: list[ast.stmt]) -> Any:
    """Read a macro's body in place; its ``return`` is the value of the call."""
    saved, p.state.result = p.state.result, None
    for n in nodes:
        if isinstance(n, ast.Return):
            value = None if n.value is None else p.evaluate(n.value)
            p.state.result = saved
            return value
        _statement(p, n)
    p.state.result = saved
    return None


# --- statements -------------------------------------------------------------------------------------------------------


def _assignment(p: Parser, node: ast.Assign) -> None:
    if len(node.targets) > 1:
        raise p.fail(node, "several targets in one assignment")
    assign(p, node.targets[0], p.evaluate(node.value))


def _annotated(p: Parser, node: ast.AnnAssign) -> None:
    if node.value is None:
        raise p.fail(node, "a variable needs a value")
    value = p.evaluate(node.value)
    assign(p, node.target, value, _type(p, node.annotation, p.evaluate(node.annotation), {}))


def _expression(p: Parser, node: ast.Expr) -> None:
    value = p.evaluate(node.value)
    if value is None or isinstance(value, (str, MetaVar)):
        return
    if isinstance(value, Command):
        if value.kind == "func_attr":
            p.state.attrs.update(value.value)
        elif value.kind == "output":
            raise p.fail(node, "R.output stands inside a dataflow block")
        else:
            raise p.fail(node, f"the result of R.{value.kind} is not used")
    elif isinstance(value, ir.Expr):
        unused_result(p, node, bind(p, ast.copy_location(ast.Name("_", ast.Store()), node), value, None))
    else:
        raise p.fail(node, "the statement has no effect", found=repr(value))


def unused_result(p: Parser, node: ast.AST, var: ir.ExprVar) -> ir.ExprVar:
    """Refuse a statement whose value, which is not empty, is lost."""
    if not isinstance(var.ty, ir.AnyType) and not (isinstance(var.ty, ir.TupleType) and not var.ty.fields):
        raise p.fail(node, "the value of the statement is lost", found=str(var.ty), help="_ = ... says that it may be")
    return var


def _with(p: Parser, node: ast.With) -> None:
    commands = [p.evaluate(item.context_expr) for item in node.items]
    if len(commands) != 1 or not isinstance(commands[0], Command) or commands[0].kind != "dataflow":
        raise p.fail(node, "'with' opens a dataflow block", expected="with R.dataflow():")
    state: _State = p.state
    if state.outputs is not None:
        raise p.fail(node, "dataflow blocks do not nest")
    outputs = _output_names(p, node.body)
    state.bb.open_block(state.scope, True)
    p.scopes.append({})
    returned = None
    try:
        last = {name: i for i, n in enumerate(node.body) for name in _bound_names(n)}
        for i, n in enumerate(node.body):
            # What a name means at the end is visible outside; a variable that had it before is not.
            state.outputs = {name for name in outputs if last.get(name, i) <= i}
            if isinstance(n, ast.Return) and n is node.body[-1]:
                returned = _visible_result(p, n)
            elif not _is_output(n):
                _statement(p, n)
        visible = p.scopes[-1]
    finally:
        p.scopes.pop()
        state.outputs = None
    for name in outputs:
        if name not in visible:
            raise p.fail(node.body[-1], f"R.output names '{name}', which the block does not define")
        p.define(name, visible[name])
    state.bb.open_block(state.scope, False)
    if returned is not None:
        state.result = returned


def _visible_result(p: Parser, node: ast.Return) -> ir.Expr:
    """Return the result of a function that a dataflow block ends in: what it names is visible after the block."""
    value = p.evaluate(node.value) if node.value is not None else ()
    made = p.state.bb.normalize(as_relax(value))
    parts = made.fields if isinstance(made, ir.Tuple) else (made,)
    shown = tuple(p.state.bb.visible(v) if not isinstance(v, ir.Constant) else v for v in parts)
    return ir.Tuple(shown) if isinstance(made, ir.Tuple) else shown[0]


def _output_names(p: Parser, nodes: list[ast.stmt]) -> set[str]:
    """Return the names in ``R.output(...)``, which must end a dataflow block."""
    for n in nodes:
        if _is_output(n):
            call: Any = n.value  # type: ignore[attr-defined]
            bad = next((a for a in call.args if not isinstance(a, ast.Name)), None)
            if bad is not None:
                raise p.fail(bad, "R.output takes names of variables")
            if n is not nodes[-1]:
                raise p.fail(n, "R.output ends a dataflow block")
            return {a.id for a in call.args if isinstance(a, ast.Name)}
    return set()


def _bound_names(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def _is_output(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "output"


def _return(p: Parser, node: ast.Return) -> None:
    if p.state.outputs is not None:
        raise p.fail(node, "a dataflow block cannot return", help="end it with R.output(...) and return after it")
    p.state.result = _result(p, () if node.value is None else p.evaluate(node.value))


def _result(p: Parser, value: Any) -> ir.Expr:
    """Return a value as the atom at the end of a sequence, binding what is more."""
    new = as_value(p, value)
    if isinstance(new, (ir.ExprVar, ir.Constant, ir.Tuple, ir.ShapeExpr, ir.PrimValue)):
        return new
    return p.state.bb.emit(new, "gv")


def _condition(p: Parser, node: ast.If) -> Any:
    value = p.evaluate(node.test)
    return p.state.bb.atom(as_relax(value)) if isinstance(value, (ir.Expr, ir.PrimExpr)) else bool(value)


def _returns(node: ast.If) -> bool:
    """Whether both branches end by returning."""

    def ends(nodes: list[ast.stmt]) -> bool:
        return bool(nodes) and (
            isinstance(nodes[-1], ast.Return) or (isinstance(nodes[-1], ast.If) and _returns(nodes[-1]))
        )

    return ends(node.body) and ends(node.orelse)


def _returned_if(p: Parser, node: ast.If) -> None:
    """Read an ``if`` whose branches both return: the function returns its value."""
    condition = _condition(p, node)
    if isinstance(condition, bool):
        _sequence(p, node.body if condition else node.orelse)
        return

    def branch(nodes: list[ast.stmt]) -> SeqExpr:
        outer = p.state.scope
        with p.state.bb.scope() as inner:
            p.state.scope = inner
            p.with_scope(lambda: _sequence(p, nodes))
            result, p.state.result = p.state.result, None
            p.state.scope = outer
            return p.state.bb.finish(inner, result)

    value = _if_value(p, node, condition, branch(node.body), branch(node.orelse))
    p.state.result = bind(p, ast.copy_location(ast.Name("gv", ast.Store()), node.test), value, None)


def _if_value(p: Parser, node: ast.If, condition: ir.Expr, then_case: SeqExpr, else_case: SeqExpr) -> ir.If:
    assert then_case.ty is not None and else_case.ty is not None
    ty = merge_types(then_case.ty, else_case.ty)
    return ir.If(condition, then_case, else_case, span=p.span(node.test), ty=ty)


def _if(p: Parser, node: ast.If) -> None:
    condition = _condition(p, node)
    if isinstance(condition, bool):  # known while the program is read: only that branch is the program
        for n in node.body if condition else node.orelse:
            _statement(p, n)
        return
    if p.state.outputs is not None:
        raise p.fail(node, "an 'if' stands in a dataflow block", help="a dataflow block has no control flow")
    if not node.orelse:
        raise p.fail(
            node, "an 'if' of a Relax program needs an 'else'", help="both branches end by assigning the same name"
        )
    (then_case, name, note), (else_case, other, other_note) = _branch(p, node, node.body), _branch(p, node, node.orelse)
    if name != other:
        raise p.fail(node, "the branches of an 'if' must end by assigning the same name", expected=name, found=other)
    note = note or other_note
    value = _if_value(p, node, condition, then_case, else_case)
    if note is not None and isinstance(value.ty, ir.AnyType):
        value = ir.If(condition, then_case, else_case, span=value.span, ty=note)
    target = ast.copy_location(ast.Name(name, ast.Store()), node.test)
    p.define(name, bind(p, target, value, note))


def _branch(p: Parser, node: ast.If, nodes: list[ast.stmt]) -> tuple[SeqExpr, str, ir.Type | None]:
    """Read a branch; return it with the name that its last statement assigns and that name's annotation."""
    *first, last = nodes
    state: _State = p.state
    outputs, state.outputs, outer = state.outputs, None, state.scope
    p.scopes.append({})
    try:
        with state.bb.scope() as inner:
            state.scope = inner
            for n in first:
                _statement(p, n)
            result, name, note = _last(p, last)
            return state.bb.finish(inner, result), name, note
    finally:
        p.scopes.pop()
        state.outputs, state.scope = outputs, outer


def _last(p: Parser, node: ast.stmt) -> tuple[ir.Expr, str, ir.Type | None]:
    target = _target(node)
    if isinstance(node, ast.Expr):
        value = p.evaluate(node.value)
        if isinstance(value, ir.Expr):
            var = bind(p, ast.copy_location(ast.Name("_", ast.Store()), node), value, None)
            return unused_result(p, node, var), "_", None
    if not isinstance(target, ast.Name):
        _statement(p, node)
        name = _assigned(node)
        if name is None:
            return _result(p, ()), "_", None
        return p.lookup(name), name, None
    bb = p.state.bb
    bb.span = p.span(node)
    value = p.evaluate(node.value)  # type: ignore[attr-defined]
    note = _type(p, node.annotation, p.evaluate(node.annotation), {}) if isinstance(node, ast.AnnAssign) else None
    if isinstance(value, Command) and value.kind == "match_cast":
        assign(p, target, value, note)
        return p.lookup(target.id), target.id, note
    new = as_value(p, value)
    if isinstance(new, (ir.ExprVar, ir.Constant, ir.Tuple, ir.ShapeExpr, ir.PrimValue)):
        return new, target.id, note
    return bind(p, target, new, note), target.id, note


def _target(node: ast.stmt) -> ast.expr | None:
    """Return what an assignment gives a value."""
    return node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None


def _assigned(node: ast.stmt) -> str | None:
    """Return the name that an ``if`` or an inner function at the end of a branch gives a value."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.If) and node.body:
        last = node.body[-1]
        target = _target(last)
        return target.id if isinstance(target, ast.Name) else _assigned(last)
    return None


def _for(p: Parser, node: ast.For) -> None:
    """Read the body once for each element of a Python iterable."""
    values = p.evaluate(node.iter)
    if isinstance(values, ir.Expr) or not hasattr(values, "__iter__"):
        raise p.fail(
            node.iter,
            "a Relax program has no loops at run time",
            help="write a recursive function, or iterate over a Python range",
        )
    for item in values:
        if isinstance(node.target, ast.Name):
            p.define(node.target.id, item)
        else:
            assign(p, node.target, tuple(MetaVar(x) for x in item))
        for n in node.body:
            _statement(p, n)


def _assert(p: Parser, node: ast.Assert) -> None:
    message = ast.unparse(node.test) if node.msg is None else p.evaluate(node.msg)
    target = ast.copy_location(ast.Name("_", ast.Store()), node)
    bind(p, target, assert_op(p.evaluate(node.test), (), str(message)), None)


def _inner_function(p: Parser, node: ast.FunctionDef) -> None:
    decorator: Any = None
    for d in node.decorator_list:
        decorator = p.evaluate(d)
        if isinstance(decorator, MacroDecorator):
            scope = {k: v for names in p.scopes for k, v in names.items()}
            p.define(node.name, Macro(p.source, node, p.outer, scope, decorator.hygienic))
            return
    if not isinstance(decorator, FunctionDecorator) or decorator.dialect is not RELAX:
        raise p.fail(node, f"inner function '{node.name}' is no Relax function", help="decorate it with @R.function")
    state = _signature(p, node, {"name": node.name, **decorator.options})
    var = new_var(p, node.name, state.ty, p.span(node))
    p.define(node.name, var)
    outputs, p.state.outputs = p.state.outputs, None
    func = _body(p, state)
    p.state.outputs = outputs
    if var.ty is None:
        var = new_var(p, node.name, func.ty, p.span(node))
        p.define(node.name, var)
    p.state.bb.emit_normalized(VarBinding(var, func, span=p.span(node)))


_STATEMENTS: dict[type, Callable[[Parser, Any], None]] = {
    ast.Assign: _assignment,
    ast.AnnAssign: _annotated,
    ast.Expr: _expression,
    ast.With: _with,
    ast.Return: _return,
    ast.If: _if,
    ast.For: _for,
    ast.Assert: _assert,
    ast.FunctionDef: _inner_function,
    **dict.fromkeys((ast.Pass, ast.Nonlocal, ast.Global), lambda p, node: None),  # names of outside are known anyway
}


# --- expressions ------------------------------------------------------------------------------------------------------

_OPERATORS = {"floor_mod": ("floor_mod", "mod")}


@BINARY.on(ir.Expr)
def _operator(a: ir.Expr, b: Any, name: str, p: Evaluator) -> Any:
    operands = (a,) if b is None else (a, b)
    known = op.list_ops()
    for candidate in _OPERATORS.get(name, (name,)):
        if candidate in known:
            return op.make_call(candidate)(*operands)
    raise error.TypeInferenceError(f"Relax has no operator '{name}'")


@SUBSCRIPT.on(ir.Expr)
def _item(value: ir.Expr, indices: tuple[Any, ...], p: Evaluator) -> Any:
    index: Any = indices[0] if len(indices) == 1 else None
    index = index.value if hasattr(index, "value") else index
    if not isinstance(index, int):
        raise error.TypeInferenceError(
            "only elements of tuples are taken by an index", help="use R.take or R.strided_slice on a tensor"
        )
    if isinstance(value, ir.Tuple):
        return value.fields[index]
    ty = value.ty
    count = len(ty.fields) if isinstance(ty, ir.TupleType) else None
    if isinstance(ty, ir.TensorType) or (count is not None and not -count <= index < count):
        found = f"index {index} of {ty}"
        raise error.TypeInferenceError("the tuple has no such element", found=found)
    return ir.TupleGetItem(value, index + count if index < 0 and count is not None else index)


@CALL.on(ir.ExprVar)
def _call_var(func: ir.ExprVar, args: list[Any], kwargs: dict[str, Any], p: Evaluator) -> ir.Call:
    return ir.Call(func, tuple(as_relax(a) for a in args))


@PLACE.on(ir.Call)
def _placed(call: ir.Call, span: ir.Span) -> ir.Call:
    if call.span is not None:
        return call
    return ir.Call(call.op, call.args, call.attrs, call.ty_args, span=span, ty=call.ty)


def _call_global(func: ir.GlobalVar, args: list[Any], ty_args: Any = ()) -> ir.Call:
    return ir.Call(func, tuple(as_relax(a) for a in args), ty_args=tuple(as_type(t) for t in ty_args))


RELAX = Dialect("relax", _signature, _body, _expand, _call_global)
function = FunctionDecorator(RELAX)
