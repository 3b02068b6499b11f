"""Print rules of TIR: functions, statements, blocks, buffers (``T``).

A statement that holds the rest of its sequence (an allocation, a binding, an attribute) is written as one line where
that rest is all that follows, and with ``with`` otherwise, so that scopes read back as they were.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft import ir
from weft.ir import CallIntrin as Call
from weft.ir import DataType, Var, find, structural_equal, walk
from weft.ir.text.doc import TERNARY, Doc, Group, Seq, call, index, mapping, tuple_doc
from weft.ir.text.printer import FUNCTION, STMT, Printer, any_literal, quote
from weft.ir.text.scalar import argument, number, same, slice_docs, var_declaration
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.script.printing_exprs import access, buffer_args, element, introduce, new_buffer, range_index

LOOP_KINDS = {
    stmts.ForKind.SERIAL: "serial",
    stmts.ForKind.PARALLEL: "parallel",
    stmts.ForKind.VECTORIZED: "vectorized",
    stmts.ForKind.UNROLLED: "unroll",
    stmts.ForKind.THREAD_BINDING: "thread_binding",
}
AXIS_KINDS = {"data_par": "spatial", "reduce": "reduce", "ordered": "scan", "opaque": "opaque"}


# --- buffers and expressions ------------------------------------------------------------------------------------------


# --- statements -------------------------------------------------------------------------------------------------------


def _body(stmt: stmts.Stmt, p: Printer, *, in_block: bool = False) -> None:
    """Write a statement and all that it holds as a sequence of lines, in a loop.

    At a block's own level an allocation in one line would belong to the block, so a statement is written with ``with``.
    """
    if isinstance(stmt, stmts.SeqStmt) and not stmt.seq:
        p.lines.add("pass")
        return
    todo: list[stmts.Stmt] = [stmt]
    while todo:
        node = todo.pop()
        if isinstance(node, stmts.SeqStmt):
            todo.extend(reversed(node.seq))
            continue
        scope = _SCOPES.get(type(node))
        if scope is None:
            p.stmt(node)
            continue
        line, alone = scope(node, p)
        if not todo and alone is not None and not (in_block and type(node) is stmts.AllocBuffer):
            p.lines.add(alone)
            p.note(node)
            _open_views(node, p)
            todo.append(node.body)  # type: ignore[attr-defined]
        else:
            p.lines.add("with ", line, ":")
            with p.scope():
                p.note(node)
                _open_views(node, p)
                _body(node.body, p)  # type: ignore[attr-defined]


def _open_views(node: stmts.Stmt, p: Printer) -> None:
    """Let views of the memory that a statement introduces be declared behind it."""
    if isinstance(node, (stmts.AllocBuffer, stmts.DeclBuffer)):
        p.open_views(node.buffer.data)
    elif isinstance(node, stmts.LetStmt) and node.var.dtype == "handle":
        p.open_views(node.var)


def _suite(stmt: stmts.Stmt, p: Printer, owner: Any = None) -> None:
    with p.scope():
        p.note(owner)
        _body(stmt, p)


def _as(value: Doc, name: str) -> Doc:
    return Seq(TERNARY, (value, " as ", name))


def _assign(name: str, value: Doc) -> Doc:
    return Seq(TERNARY, (name, " = ", value))


def _let_scope(node: stmts.LetStmt, p: Printer) -> tuple[Doc, Doc | None]:
    value = p.expr(node.value)
    if p.is_defined(node.var):
        return call("T.LetStmt", [value], [("var", p.expr(node.var))]), None
    name = p.define(node.var, node.var.name)
    if type(node.var) is not Var or DataType(node.var.dtype).lanes > 1:
        return _as(call("T.LetStmt", [value], [("var", var_declaration(node.var, p))]), name), None
    alone = Seq(TERNARY, (name, ": T.let[", f"T.{node.var.dtype}", "] = ", value))
    return _as(call("T.LetStmt", [value], [("dtype", quote(node.var.dtype))]), name), alone


def _alloc_scope(node: stmts.AllocBuffer, p: Printer) -> tuple[Doc, Doc | None]:
    args, kwargs = buffer_args(node.buffer, p)
    name = introduce(node.buffer, p)
    if node.annotations:
        kwargs.append(("annotations", any_literal(node.annotations, p)))
    value = call("T.alloc_buffer", args, kwargs)
    return _as(value, name), _assign(name, value)


def _decl_scope(node: stmts.DeclBuffer, p: Printer) -> tuple[Doc, Doc | None]:
    name, value = new_buffer("T.decl_buffer", node.buffer, p)
    return _as(value, name), _assign(name, value)


def _attr_scope(node: stmts.AttrStmt, p: Printer) -> tuple[Doc, Doc | None]:
    if _is_launch(node, p):
        value = call("T.launch_thread", [quote(node.node.thread_tag), argument(node.value, p)])
        name = p.define(node.node.var, node.node.var.name)
        return _as(value, name), _assign(name, value)
    doc = call("T.attr", [any_literal(node.node, p), quote(node.attr_key), any_literal(node.value, p)])
    return doc, doc


def _is_launch(node: stmts.AttrStmt, p: Printer) -> bool:
    iv, extent = node.node, node.value
    if node.attr_key != "thread_extent" or not isinstance(iv, ir.IterVar) or not isinstance(extent, ir.PrimExpr):
        return False
    return not p.is_defined(iv.var) and _is_plain_thread(iv, extent, extent.dtype)


def _assert_scope(node: stmts.AssertStmt, p: Printer) -> tuple[Doc, Doc | None]:
    condition = p.expr(node.condition)
    kwargs = [("kind", quote(node.error_kind))] if node.error_kind != "RuntimeError" else []
    doc = call("T.Assert", [condition, argument(node.message, p)], kwargs)
    if kwargs or isinstance(node.condition, ir.IntImm):
        return doc, doc
    return doc, Seq(TERNARY, ("assert ", condition, ", ", argument(node.message, p)))


def _realize_scope(node: stmts.BufferRealize, p: Printer) -> tuple[Doc, Doc | None]:
    region = index(p.expr(node.buffer), [range_index(r, p) for r in node.bounds])
    doc = call("T.realize", [region, p.expr(node.condition)])
    return doc, doc


_SCOPES: dict[type, Any] = {
    stmts.LetStmt: _let_scope,
    stmts.AllocBuffer: _alloc_scope,
    stmts.DeclBuffer: _decl_scope,
    stmts.AttrStmt: _attr_scope,
    stmts.AssertStmt: _assert_scope,
    stmts.BufferRealize: _realize_scope,
}


STMT.covers += (stmts.Stmt,)


@STMT.on(stmts.SeqStmt, *_SCOPES)
def _several(node: stmts.Stmt, p: Printer) -> None:
    _body(node, p)


@STMT.on(stmts.BufferStore)
def _store(node: stmts.BufferStore, p: Printer) -> None:
    lanes = DataType(node.indices[-1].dtype).lanes if node.indices else 1
    dtype = node.buffer.dtype if lanes == 1 else f"{node.buffer.dtype}x{lanes}"
    indices = [argument(i, p) for i in node.indices]
    if node.value.dtype != dtype:
        args = [p.expr(node.buffer), p.expr(node.value), tuple_doc(indices)]
        p.lines.add(call("T.BufferStore", args + ([p.expr(node.predicate)] if node.predicate is not None else [])))
    elif node.predicate is not None:
        p.lines.add(access(node.buffer, "vstore", [indices, p.expr(node.value)], node.predicate, p))
    else:
        p.lines.add(element(node.buffer, node.indices, p), " = ", p.expr(node.value))


@STMT.on(stmts.Evaluate)
def _evaluate(node: stmts.Evaluate, p: Printer) -> None:
    if isinstance(node.value, Call) and getattr(node.value.op, "name", "") in ("tir.break_loop", "tir.continue_loop"):
        p.lines.add(node.value.op.name.removeprefix("tir.").removesuffix("_loop"))
        return
    if isinstance(node.value, Call) and getattr(node.value.op, "name", "") == "tir.ret" and _returns(node.value):
        p.lines.add("return ", argument(node.value.args[0], p))
        return
    p.lines.add(p.expr(node.value) if isinstance(node.value, Call) else call("T.evaluate", [argument(node.value, p)]))


def _returns(node: Call) -> bool:
    """Whether ``return value`` is read back as a call of ``T.ret``."""
    return len(node.args) == 1 and isinstance(node.args[0], ir.PrimExpr) and node.args[0].dtype == node.dtype


@STMT.on(stmts.Prefetch)
def _prefetch(node: stmts.Prefetch, p: Printer) -> None:
    p.lines.add(call("T.prefetch", [index(p.expr(node.buffer), [range_index(r, p) for r in node.bounds])]))


@STMT.on(stmts.IfThenElse)
def _if(node: stmts.IfThenElse, p: Printer) -> None:
    word = "if "
    while True:
        p.lines.add(word, p.expr(node.condition), ":")
        _suite(node.then_case, p, node)
        if not isinstance(node.else_case, stmts.IfThenElse):
            break
        node, word = node.else_case, "elif "
    if node.else_case is not None:
        p.lines.add("else:")
        _suite(node.else_case, p)


@STMT.on(stmts.While)
def _while(node: stmts.While, p: Printer) -> None:
    p.lines.add("while ", p.expr(node.condition), ":")
    _suite(node.body, p, node)


@STMT.on(stmts.For)
def _for(node: stmts.For, p: Printer) -> None:
    nest = _plain_nest(node)
    loops = p.frames[-1].loops
    if nest:
        extents = [argument(f.extent, p) for f in nest]
        names = [p.define(f.loop_var, f.loop_var.name) for f in nest]
        p.lines.add("for ", ", ".join(names), " in ", call("range" if len(nest) == 1 else "T.grid", extents), ":")
        loops.update((f.loop_var, f) for f in nest)
        with p.lines.indented():
            for f in nest:
                p.note(f)
        _suite(nest[-1].body, p)
        return
    args, kwargs = _loop_args(node, p)
    name = p.define(node.loop_var, node.loop_var.name)
    p.lines.add("for ", name, " in ", call(f"T.{LOOP_KINDS[node.kind]}", args, kwargs), ":")
    loops[node.loop_var] = node
    _suite(node.body, p, node)


def _starts_at_zero(node: stmts.For) -> bool:
    """Whether the loop counts from a zero of its extent's type, with a variable of that type."""
    plain = isinstance(node.min, ir.IntImm) and node.min.value == 0 and type(node.loop_var) is Var
    return plain and node.min.dtype == node.extent.dtype == node.loop_var.dtype


def _plain_nest(node: stmts.Stmt) -> list[stmts.For]:
    """Return the loops from `node` inwards that one ``T.grid`` writes."""
    nest: list[stmts.For] = []
    inner: set[Any] = set()
    while (
        type(node) is stmts.For
        and node.kind == stmts.ForKind.SERIAL
        and node.thread_binding is None
        and not node.annotations
        and _starts_at_zero(node)
    ):
        if any(n in inner for n in walk(node.extent)):
            break
        nest.append(node)
        inner.add(node.loop_var)
        node = node.body
    return nest


def _loop_args(node: stmts.For, p: Printer) -> tuple[list[Doc], list[tuple[str, Doc]]]:
    kwargs: list[tuple[str, Doc]] = []
    r = ir.Range.from_min_extent(node.min, node.extent)
    docs = None if _starts_at_zero(node) else slice_docs(r, p)
    if _starts_at_zero(node):
        args = [argument(node.extent, p)]
    elif docs is None or node.loop_var.dtype != node.extent.dtype or type(node.loop_var) is not Var:
        args = [p.expr(r)]
        kwargs.append(("var", var_declaration(node.loop_var, p)))
    else:
        args = list(docs)
    if node.kind == stmts.ForKind.THREAD_BINDING:
        thread = node.thread_binding
        if thread is not None and _is_plain_thread(thread, node.extent, node.loop_var.dtype):
            kwargs.append(("thread", quote(thread.thread_tag)))
        else:
            kwargs.append(("binding", any_literal(thread, p)))
    elif node.thread_binding is not None:
        kwargs.append(("binding", p.expr(node.thread_binding)))
    if node.annotations:
        kwargs.append(("annotations", any_literal(node.annotations, p)))
    return args, kwargs


def _is_plain_thread(iv: ir.IterVar, extent: ir.PrimExpr, dtype: str) -> bool:
    """Whether a thread axis is the one that a tag makes: from 0 over `extent`, by a variable of `dtype`."""
    if (
        iv.dom is None
        or iv.iter_type != "thread"
        or not iv.thread_tag
        or type(iv.var) is not Var
        or iv.var.dtype != dtype
    ):
        return False
    return same(iv.dom.extent, extent) and same(iv.dom.min, ir.const(0, dtype))


# --- blocks -----------------------------------------------------------------------------------------------------------


@STMT.on(stmts.BlockRealize)
def _block_realize(node: stmts.BlockRealize, p: Printer) -> None:
    p.lines.add("with ", call("T.sblock", [quote(node.block.name_hint)]), ":")
    with p.scope():
        p.note(node)
        p.note(node.block)
        _axes(node.block, node.iter_values, p)
        if not (isinstance(node.predicate, ir.IntImm) and node.predicate.value):
            p.lines.add(call("T.where", [p.expr(node.predicate)]))
        _block_content(node.block, p, signature=True)


@STMT.on(stmts.Block)
def _block(node: stmts.Block, p: Printer) -> None:
    _block_realize(stmts.BlockRealize(tuple(iv.var for iv in node.iter_vars), ir.TRUE, node), p)


def _axes(block: stmts.Block, values: tuple[Any, ...], p: Printer) -> None:
    """Write the iteration variables; neighbours that run over a whole loop each are grouped."""
    run: list[tuple[ir.IterVar, Any]] = []
    loops = p.frames[-1].loops

    def flush() -> None:
        if len(run) == 1:
            _axis(*run[0], p)
        elif run:
            kinds = "".join("S" if iv.iter_type == "data_par" else "R" for iv, _ in run)
            values = Group("[", tuple([p.expr(v) for _, v in run]), "]")
            names = ", ".join(p.define(iv.var, iv.var.name) for iv, _ in run)
            p.lines.add(names, " = ", call("T.axis.remap", [quote(kinds), values]))
        run.clear()

    for iv, value in zip(block.iter_vars, values, strict=False):
        loop = loops.get(value)
        if loop is not None and _is_remap(iv, value, loop):
            run.append((iv, value))
        else:
            flush()
            _axis(iv, value, p)
    flush()


def _is_remap(iv: ir.IterVar, value: ir.PrimExpr, loop: stmts.For) -> bool:
    if (
        iv.iter_type not in ("data_par", "reduce")
        or iv.thread_tag
        or iv.dom is None
        or iv.var.dtype != value.dtype
        or type(iv.var) is not Var
    ):
        return False
    return all(same(a, b) or structural_equal(a, b) for a, b in ((iv.dom.min, loop.min), (iv.dom.extent, loop.extent)))


def _axis(iv: ir.IterVar, value: ir.PrimExpr, p: Printer) -> None:
    dom = iv.dom
    if dom is None:
        dom_doc: Doc = "None"
    else:
        dom_doc = _domain(dom, value, p)
    kwargs = []
    if dom is None or iv.var.dtype != dom.extent.dtype:
        kwargs.append(("dtype", quote(iv.var.dtype)))
    if iv.thread_tag:
        kwargs.append(("thread_tag", quote(iv.thread_tag)))
    value_doc = argument(value, p)
    kind = AXIS_KINDS.get(iv.iter_type)
    args = [dom_doc, value_doc]
    if kind is None:
        kind, args = "of_kind", [quote(iv.iter_type), *args]
    p.lines.add(p.define(iv.var, iv.var.name), " = ", call(f"T.axis.{kind}", args, kwargs))


def _domain(dom: ir.Range, value: ir.PrimExpr, p: Printer) -> Doc:
    """Write an axis' domain; plain numbers take the type of its value."""
    low, extent = dom.min, dom.extent
    constant = isinstance(low, ir.IntImm) and isinstance(extent, ir.IntImm)
    if isinstance(low, ir.IntImm) and isinstance(extent, ir.IntImm) and low.dtype == extent.dtype == value.dtype:
        low_doc, high_doc = number(low.value), number(low.value + extent.value)
        return high_doc if low.value == 0 else tuple_doc([low_doc, high_doc])
    docs = None if constant else slice_docs(dom, p)
    if docs is None:
        return p.expr(dom)
    return docs[1] if isinstance(low, ir.IntImm) and low.value == 0 else tuple_doc(docs)


def _block_content(block: stmts.Block, p: Printer, *, signature: bool) -> None:
    own = set(block.alloc_buffers) | {m.buffer for m in block.match_buffers}
    if any(r.buffer in own for r in (*block.reads, *block.writes)):
        _block_buffers(block, p)
        own.clear()
    if signature:
        p.lines.add(call("T.reads", [p.expr(r) for r in block.reads]))
        p.lines.add(call("T.writes", [p.expr(r) for r in block.writes]))
        if block.annotations:
            p.lines.add(call("T.sblock_attr", [any_literal(block.annotations, p)]))
    if own:
        _block_buffers(block, p)
    if block.init is not None:
        p.lines.add("with T.init():")
        _suite(block.init, p)
    _body(block.body, p, in_block=True)


def _block_buffers(block: stmts.Block, p: Printer) -> None:
    for b in block.alloc_buffers:
        name, value = new_buffer("T.sblock_alloc_buffer", b, p)
        p.lines.add(_assign(name, value))
        p.open_views(b.data)
    for m in block.match_buffers:
        name, value = new_buffer("T.match_buffer", m.buffer, p, p.expr(m.source))
        p.lines.add(_assign(name, value))
        p.open_views(m.buffer.data)


# --- functions --------------------------------------------------------------------------------------------------------


@FUNCTION.on(PrimFunc)
def _prim_func(func: PrimFunc, name: str, p: Printer) -> None:
    p.dialects.add("T")
    place: list[Any] = []
    p.open_function(place)
    inline = _inline_params(func)
    params: list[Doc] = []
    for param in func.params:
        buffer = inline.get(param)
        if buffer is not None:
            args, kwargs = buffer_args(buffer, p, typed=True)
            params.append(Seq(TERNARY, (introduce(buffer, p), ": ", call("T.Buffer", args, kwargs))))
        else:
            declaration = var_declaration(param, p)
            kind = f"T.{param.dtype}" if declaration == call(f"T.{param.dtype}") else declaration
            params.append(Seq(TERNARY, (p.define(param, param.name), ": ", kind)))
    attrs = dict(func.attrs.items)
    symbol = attrs.get("global_symbol")
    spelled = name if name.isidentifier() else p.fresh("func")
    options = [("private", "True")] if symbol is None else []
    if spelled != name:
        options.append(("name", quote(name)))
    if symbol == name:
        del attrs["global_symbol"]
    bare = _is_plain_root(func.body)
    if not bare and _holds_block(func.body) and not isinstance(func.body, stmts.BlockRealize):
        options.append(("root_block", "False"))
    p.lines.add("@", call("T.prim_func", (), options) if options else "T.prim_func")
    returns = [] if func.ret_type is None else [" -> ", _return_type(func.ret_type, p)]
    p.lines.add(f"def {spelled}", Group("(", tuple(params), ")"), *returns, ":")
    with p.scope():
        if attrs:
            p.lines.add(call("T.func_attr", [mapping([(quote(k), any_literal(v, p)) for k, v in attrs.items()])]))
        p.lines.mark(place)
        for param, buffer in func.buffer_map:
            if param not in inline:
                buffer_name, value = new_buffer("T.match_buffer", buffer, p, p.expr(param))
                p.lines.add(_assign(buffer_name, value))
        p.frames[-1].places[0] = p.lines.mark()
        if bare:
            p.lines.add('# with T.sblock("root"):')
            _block_content(func.body.block, p, signature=False)  # type: ignore[attr-defined]
        else:
            _body(func.body, p)
    p.close_function()


def _return_type(ty: ir.Type, p: Printer) -> Doc:
    return f"T.{ty.dtype}" if isinstance(ty, ir.PrimType) and ty.value is None else any_literal(ty, p)


def _inline_params(func: PrimFunc) -> dict[Var, Buffer]:
    """Return, by parameter, the buffers that a signature can hold.

    Of constant shape, on a pointer that nothing else names.
    """
    used = {n for n in find(func.body, Var) if n.dtype == "handle"}
    pointers = Counter(b.data for _, b in func.buffer_map)
    matched = Counter(v for v, _ in func.buffer_map)
    inline = {}
    for param, b in func.buffer_map:
        own_offset = type(b.elem_offset) is Var and all(p is not b.elem_offset for p in func.params)
        parts = (*b.shape, *b.strides, *(() if b.elem_offset is None or own_offset else (b.elem_offset,)))
        constant = all(isinstance(x, ir.IntImm) for x in parts) and type(param) is Var and param.dtype == "handle"
        if constant and param not in used and matched[param] == 1 and pointers[b.data] == 1 and b.data is not param:
            inline[param] = b
    return inline


def _is_plain_root(body: stmts.Stmt) -> bool:
    """Whether the body is the root block that reading a function with blocks puts around them."""
    if (
        not isinstance(body, stmts.BlockRealize)
        or body.iter_values
        or not (isinstance(body.predicate, ir.IntImm) and body.predicate.value)
    ):
        return False
    b = body.block
    plain = (
        b.name_hint == "root"
        and not (b.iter_vars or b.reads or b.writes or b.annotations or b.match_buffers)
        and b.init is None
    )
    if isinstance(b.body, stmts.BlockRealize) and not b.alloc_buffers and not b.body.iter_values:
        return False  # the content alone would be taken for a root block itself
    return plain and (bool(b.alloc_buffers) or _holds_block(b.body))


def _holds_block(stmt: stmts.Stmt) -> bool:
    return bool(find(stmt, stmts.BlockRealize))
