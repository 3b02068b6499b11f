"""What error messages say of a function's arguments: its signature, and where the value of a dimension comes from.

Both code generators that write entry points word their messages with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

from weft import error, ir, tir


def signature(func: tir.PrimFunc, name: str) -> str:
    """The function as messages show it: ``add(a: Tensor([n, 4], float32), k: int32)``."""
    buffers = dict(func.buffer_map)
    return f"{name}({', '.join(_shown(p, buffers.get(p)) for p in func.params)})"


def _shown(p: ir.Var, buffer: tir.Buffer | None) -> str:
    if buffer is None:
        return f"{p.name}: {p.dtype}"
    dims = (str(d.value) if isinstance(d, ir.IntImm) else _text(d, {}, typed=True) for d in buffer.shape)
    return f"{buffer.name}: Tensor([{', '.join(dims)}], {buffer.dtype})"


def called_intrinsics(body: tir.Stmt) -> frozenset[str]:
    """Return the names of the operators that are called in a body."""
    found = _CALLED.get(body)
    if found is None:
        found = _CALLED[body] = frozenset(str(n.op.name) for n in ir.find(body, ir.CallIntrin))
    return found


_CALLED: WeakKeyDictionary[tir.Stmt, frozenset[str]] = WeakKeyDictionary()


def dimension_vars(func: tir.PrimFunc) -> list[ir.Var]:
    """List the variables in the shapes of parameter buffers that are no parameters themselves."""
    params = set(func.params)
    found: dict[ir.Var, None] = {}
    for _, b in func.buffer_map:
        for e in (*b.shape, *b.strides, *(() if b.elem_offset is None else (b.elem_offset,))):
            found.update(dict.fromkeys(v for v in ir.find(e, ir.Var) if v not in params))
    return list(found)


def callee_of(e: ir.CallIntrin, siblings: Mapping[str, tir.PrimFunc]) -> tir.PrimFunc:
    """Return the function of the same module that a call is of, or say why it cannot be called so."""
    name = e.op.name_hint
    callee = siblings.get(name)
    if callee is None:
        raise error.CodegenError(
            f"there is no function '{name}' in the module", where=e.span, found=", ".join(siblings)
        )
    if dimension_vars(callee):
        raise error.CodegenError(
            f"'{name}' has symbolic dimensions, so a kernel cannot call it", where=e.span, help="make them parameters"
        )
    if len(e.args) != len(callee.params):
        raise error.CodegenError(f"'{name}' takes {len(callee.params)} arguments", where=e.span, found=str(len(e.args)))
    if e.dtype != "void" and not returns_value(callee.body):
        raise error.CodegenError(f"'{name}' returns nothing", where=e.span, expected=f"a value of type {e.dtype}")
    return callee


def returns_value(body: tir.Stmt) -> bool:
    """Whether a function returns a value, ``T.ret(x)``, besides what it writes into buffers."""
    return "tir.ret" in called_intrinsics(body)


def origins(func: tir.PrimFunc) -> dict[tuple[int, str], str]:
    """Say where the expected values of fields come from that are no constants.

    Returns
    -------
    dict of (int, str) to str
        By argument and field (``"shape[0]"``), another field or an expression of some: ``"A.shape[0] + 1"``. The field
        in which a variable is first seen is not among them, as it gives the variable its value.
    """
    buffers = dict(func.buffer_map)
    known = {p: p.name for p in func.params if p not in buffers}
    asked: list[tuple[tuple[int, str], ir.PrimExpr]] = []
    for i, p in enumerate(func.params):
        buffer = buffers.get(p)
        for field, e in _fields(buffer) if buffer is not None else ():
            if isinstance(e, ir.Var) and e not in known:
                known[e] = f"{p.name if buffer is None else buffer.name}.{field}"
            elif ir.as_int(e) is None:
                asked.append(((i, field), e))
    return {at: _text(e, known) for at, e in asked}


def _fields(buffer: tir.Buffer) -> Iterator[tuple[str, ir.PrimExpr]]:
    yield from ((f"shape[{d}]", e) for d, e in enumerate(buffer.shape))
    yield from ((f"strides[{d}]", e) for d, e in enumerate(buffer.strides))


def _text(e: ir.PrimExpr, known: Mapping[ir.Var, str], typed: bool = False) -> str:
    """An expression in terms of fields, which are no names that the printer knows; constants with their types, or not.

    The printer leaves the types of constants out, so that those stand for the others as variables.
    """
    if isinstance(e, ir.Var):
        return known.get(e, e.name)
    texts = {v: known[v] for v in ir.find(e, ir.Var) if v in known}
    if typed:
        texts |= {n: f"T.{n.dtype}({n.value})" for n in ir.find(e, ir.IntImm) if n.dtype != "int32"}
    stand_ins = {n: ir.Var(f"stand_in_{i}", n.dtype) for i, n in enumerate(texts)}
    shown = str(ir.rewrite(e, lambda n: stand_ins.get(n)))
    return re.sub(r"\bstand_in_(\d+)\b", lambda m: list(texts.values())[int(m[1])], shown)
