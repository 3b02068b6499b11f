"""SplitHostDevice as TVM's programs know it: regions of another target become functions, and calls of them launches.

Targets are attributes: ``target`` of a function, with the target of its host, and of a region inside it.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.spelling import unused_name
from weft.tir import stmt as stmts
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.transform.split_host_device import split_host_device

_REGIONS = ("thread_extent", "device_scope")
_FAILED = "Error executing compute kernel"


@ir.module_pass(name="SplitHostDevice")
def split_target_regions(mod: ir.IRModule) -> ir.IRModule:
    """Put regions of other targets into functions of their own, and write how each is called.

    A region is what an attribute ``target`` says so of, or what is bound to threads. Its function takes pointers and
    scalars, both sorted by name. A call of a function of another device is a packed one with the launch extents; of
    another target of the same device, an external one. Functions without a target are split as their loops say
    (:func:`~weft.tir.transform.split_host_device.split_host_device`).

    Requires: No blocks.
    Ensures: The same form; no region of another target in a function.
    Before::

        @T.prim_func
        def f(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            T.attr(T.target("cuda"), "target", 0)
            T.evaluate(n)

    After::

        @T.prim_func
        def f(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            T.call_packed("f_kernel", n)

        @T.prim_func
        def f_kernel(n: T.int32):
            T.func_attr({"target": T.target("cuda"), "tir.noalias": True, "tir.is_global_func": True,
                         "calling_conv": 2, "tir.kernel_launch_params": []})
            T.evaluate(n)
    Cost: Linear in statements, for each region.
    Source: TVM's ``SplitHostDevice``.
    """
    plain = {v: f for v, f in mod.items() if isinstance(f, PrimFunc) and f.attrs.get("target") is None}
    if plain:
        split = split_host_device()(mod.with_functions(plain))
        mod = mod.with_functions({**dict(mod.items()), **dict(split.items())})
    functions: dict[ir.GlobalVar, Any] = dict(mod.items())
    for var, func in mod.items():
        if isinstance(func, PrimFunc) and func.attrs.get("target") is not None:
            splitter = _Splitter(functions, var.name_hint, func)
            body = splitter.visit(func.body)
            functions[var] = func.replace(body=body)
    split = _launched(functions)
    unchanged = len(split) == len(mod) and all(f is g for f, (_, g) in zip(split.values(), mod.items(), strict=True))
    return mod if unchanged else mod.with_functions(split)


def _bare(target: Any) -> Any:
    """Return a target without its host."""
    return target if target.host is None else type(target)({"kind": target.kind.name, **target.attrs})


class _Splitter:
    """Takes the regions out of one function."""

    def __init__(self, functions: dict[ir.GlobalVar, Any], name: str, func: PrimFunc) -> None:
        self.functions, self.func = functions, func
        self.base = f"{func.attrs.get('global_symbol') or name}_kernel"
        self.target = func.attrs["target"]
        self.buffers = {b.data: b for _, b in func.buffer_map}

    def visit(self, node: ir.Node) -> Any:
        """Replace the outermost regions."""
        if not isinstance(node, stmts.Stmt):
            return node
        if isinstance(node, (stmts.AllocBuffer, stmts.DeclBuffer)):
            self.buffers.setdefault(node.buffer.data, node.buffer)
        if isinstance(node, stmts.AttrStmt) and node.attr_key == "target":
            return self.call(node.body, node.node)
        bound = isinstance(node, stmts.For) and node.kind == stmts.ForKind.THREAD_BINDING
        if bound or (isinstance(node, stmts.AttrStmt) and node.attr_key in _REGIONS):
            if self.func.attrs.get("tir.is_global_func") or not self.is_split:
                return node
            return self.call(node, _bare(self.target))
        return ir.rebuild(node, self.visit)

    @property
    def is_split(self) -> bool:
        """Whether the function has a host that its threads are not on."""
        return self.target.host is not None

    def call(self, region: stmts.Stmt, target: Any) -> stmts.Stmt:
        """Make a function of a region, and return its call."""
        free = sorted(_free(region), key=lambda v: (v.dtype != "handle", v.name))
        fresh: dict[Any, Any] = {v: replace_node(v) for v in free}
        body = region
        for data in reversed([v for v in free if v in self.buffers]):
            buffer = self.buffers[data]
            fresh[buffer] = ir.substitute(replace_node(buffer, data=fresh[data]), fresh)
            body = stmts.DeclBuffer(buffer, body)
        body = ir.substitute(body, fresh)
        attrs: dict[str, Any] = {"target": target, "tir.noalias": True, "tir.is_global_func": True}
        if self.func.attrs.get("tir.kernel_launch_params") is not None:
            attrs["tir.kernel_launch_params"] = self.func.attrs["tir.kernel_launch_params"]
        on_cpu = target.kind.device == "cpu"
        if on_cpu:
            zero = ir.const(0, "int32")
            body = stmts.seq(body, stmts.Evaluate(ir.CallIntrin("int32", ir.Op.get("tir.ret"), (zero,))))
        var = ir.GlobalVar(unused_name(self.base, {v.name_hint for v in self.functions}))
        if not _same(_host(self.target), target):
            attrs["global_symbol"] = var.name_hint
        params = tuple(fresh[v] for v in free)
        self.functions[var] = PrimFunc(params, body, _INT32 if on_cpu else None, (), ir.Attrs.of(attrs))
        call = ir.CallIntrin("int32" if on_cpu else "void", var, tuple(free))
        if not on_cpu:
            return stmts.Evaluate(call)
        code = ir.Var("kernel_error_code", "int32")
        check = stmts.AssertStmt(ir.equal(code, 0), ir.StringImm(_FAILED), stmts.Evaluate(ir.const(0)))
        return stmts.LetStmt(code, call, check)


_INT32 = ir.PrimType("int32")


def _free(region: stmts.Stmt) -> list[ir.Var]:
    """List the variables that a region takes from outside."""
    known: set[Any] = set()
    for n in ir.walk(region):
        if isinstance(n, stmts.For):
            known.add(n.loop_var)
        elif isinstance(n, (stmts.LetStmt, ir.Let, ir.IterVar)):
            known.add(n.var)
        elif isinstance(n, stmts.AllocBuffer):
            known.add(n.buffer.data)
    used = dict.fromkeys(n for n in ir.find(region, ir.Var) if n not in known)
    for n in ir.walk(region):
        if isinstance(n, (BufferLoad, stmts.BufferStore)) and n.buffer.data not in known:
            used.setdefault(n.buffer.data)
    return list(used)


# --- calls ------------------------------------------------------------------------------------------------------------


def _host(target: Any) -> Any:
    return target if target.host is None else target.host


def _same(a: Any, b: Any) -> bool:
    return _bare(a) == _bare(b)


def _launched(functions: dict[ir.GlobalVar, Any]) -> dict[ir.GlobalVar, Any]:
    """Write calls of functions of other targets as launches, and note in these what a launch needs."""
    by_name = {v.name_hint: (v, f) for v, f in functions.items() if isinstance(f, PrimFunc)}
    result = dict(functions)
    for var, func in functions.items():
        if not isinstance(func, PrimFunc) or func.attrs.get("target") is None:
            continue
        caller = _host(func.attrs["target"])

        def launch(node: Any, caller: Any = caller) -> Any:
            op = node.op if isinstance(node, ir.CallIntrin) else None
            callee = by_name.get(op.name_hint) if isinstance(op, ir.GlobalVar) else None
            target = callee[1].attrs.get("target") if callee is not None else None
            if callee is None or target is None or _same(caller, target):
                return node
            extents = _extents(callee[1])
            result[callee[0]] = kernel = _kernel(*callee, caller, extents)
            symbol = ir.StringImm(kernel.attrs["global_symbol"])
            if target.kind.device == caller.kind.device:
                return ir.CallIntrin(node.dtype, ir.Op.get("tir.call_extern"), (symbol, *node.args))
            values: dict[Any, Any] = dict(zip(callee[1].params, node.args, strict=True))
            sizes = [
                ir.substitute(extents[t], values) for t in kernel.attrs["tir.kernel_launch_params"] if t in extents
            ]
            return ir.CallIntrin("int32", ir.Op.get("tir.tvm_call_packed"), (symbol, *node.args, *sizes))

        body = ir.rewrite(func.body, launch)
        if body is not func.body:
            result[var] = result[var].replace(body=body)
    return result


def _kernel(var: ir.GlobalVar, func: PrimFunc, caller: Any, extents: dict[str, ir.PrimExpr]) -> PrimFunc:
    """Give a function that is launched its name, and the order of the launch's extents."""
    attrs: dict[str, Any] = {"tir.is_global_func": True}
    if func.attrs.get("global_symbol") is None:
        attrs["global_symbol"] = var.name_hint
    if func.attrs["target"].kind.device != caller.kind.device:
        attrs["calling_conv"] = 2
        if func.attrs.get("tir.kernel_launch_params") is None:
            attrs["tir.kernel_launch_params"] = tuple(extents)
    return func.with_attr(attrs)


def _extents(func: PrimFunc) -> dict[str, ir.PrimExpr]:
    """Return the extent of each thread axis in terms of the parameters, in order of appearance."""
    values: dict[Any, Any] = {}
    extents: dict[str, ir.PrimExpr] = {}
    for n in ir.walk(func.body):
        if isinstance(n, stmts.LetStmt):
            values[n.var] = n.value
        elif isinstance(n, stmts.AttrStmt) and n.attr_key == "thread_extent":
            extents.setdefault(n.node.thread_tag, n.value)
        elif isinstance(n, stmts.For) and n.thread_binding is not None:
            extents.setdefault(n.thread_binding.thread_tag, n.extent)
    for _ in values:  # a value may stand for what another one stands for
        extents = {t: ir.substitute(e, values) for t, e in extents.items()}
    return extents
