"""Emission of what compiled Relax functions do: calls on lists of tvm-ffi values.

The lists are the machine's registers, constants and functions: pointers to values ``{i32 kind, i32 0, 8 bytes}``.
Functions are called through their tvm-ffi cell, with bit copies of values as borrowed arguments.
"""

from typing import Any

from weft import error, ir
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import on

_ANY = "{ i32, i32, i64 }"
_FIRST_OBJECT = 64
_CELL = 24  # bytes of the header before a function's cell, which begins with the address to call


def item_pointer(s: FunctionEmitter, items: ir.PrimExpr, index: int, field: int = 0) -> str:
    """The address of a list's item, or of the payload (field 2) in it."""
    return s.value(f"getelementptr inbounds {_ANY}, ptr {s.expr(items)}, i64 {index}, i32 {field}")


def _area(s: FunctionEmitter, count: int) -> str:
    """Return room for arguments and a result, which all calls of a function share."""
    size = 1 << max(2, count.bit_length())
    line = f"  %call.area{size} = alloca [{size} x {_ANY}], align 16"
    if line not in s.allocas:
        s.allocas.append(line)
    return f"%call.area{size}"


def _put(s: FunctionEmitter, area: str, i: int, a: Any) -> None:
    """Write an argument: a bit copy of a list's item, an integer, or a pointer."""
    slot = s.value(f"getelementptr inbounds {_ANY}, ptr {area}, i64 {i}, i32 0")
    if isinstance(a, ir.CallIntrin) and isinstance(a.op, ir.Op) and a.op.name == "tir.anylist_getitem":
        _copy(s, slot, item_pointer(s, a.args[0], _index(a.args[1])))
        return
    kind, payload = (1, s.expr(a)) if isinstance(a, ir.IntImm) else (4, s.value(f"ptrtoint ptr {s.expr(a)} to i64"))
    _set(s, slot, str(kind), payload)


def _payload(s: FunctionEmitter, slot: str) -> str:
    return s.value(f"getelementptr inbounds i8, ptr {slot}, i64 8")


def _set(s: FunctionEmitter, slot: str, kind: str, payload: str) -> None:
    """Write a value, word by word: reading 16 bytes just written in halves would wait for the store buffer."""
    s.emit(f"store i64 {kind}, ptr {slot}, align 8")
    s.emit(f"store i64 {payload}, ptr {_payload(s, slot)}, align 8")


def _copy(s: FunctionEmitter, to: str, source: str) -> None:
    words = [s.effect(f"load i64, ptr {p}, align 8") for p in (source, _payload(s, source))]
    _set(s, to, *words)


def _index(e: Any) -> int:
    value = ir.as_int(e)
    if value is None:
        raise error.CodegenError("a place in a list of values is a constant", found=str(e))
    return value


def _count(s: FunctionEmitter, slot: str, name: str, function: str) -> None:
    """Count the references to the object of a value, if it is one, by a function of tvm-ffi."""
    s.module.declare(function, f"declare extern_weak i32 @{function}(ptr)")
    s.module.support(
        name,
        lambda: (
            f"""define internal void @{name}(i32 %kind, ptr %object) #0 {{
  %is = icmp sge i32 %kind, {_FIRST_OBJECT}
  br i1 %is, label %count, label %done
count:
  %rc = call i32 @{function}(ptr %object)
  br label %done
done:
  ret void
}}"""
        ),
    )
    kind = s.effect(f"load i32, ptr {slot}, align 8")
    held = s.effect(f"load ptr, ptr {_payload(s, slot)}, align 8")
    s.emit(f"call void @{name}(i32 {kind}, ptr {held})")


def _release(s: FunctionEmitter, slot: str) -> None:
    """Give the object of a value back, if it is one."""
    _count(s, slot, "weft.release", "TVMFFIObjectDecRef")


def leave_marked(
    s: FunctionEmitter, code: str, call: ir.CallIntrin, registers: ir.PrimExpr, always: bool = False
) -> None:
    """Go on if `code` is zero, else return it and tell the machine which call failed, in the payload of the result.

    `always`: leave in any case. A call without ``vm.call`` is none of the machine's: nobody is told.
    The low half of the payload is the number of the call, from 1; the high half its callee's place in the table.
    """
    good, bad = s.label("ok"), s.label("failed")
    if not always:
        s.branch(s.value(f"icmp eq i32 {code}, 0"), good, bad, ", !prof !0")
        s.start(bad)
    with s.scope():
        if call.attrs and "vm.call" in call.attrs:
            place, function, result = call.attrs["vm.call"]
            payload = item_pointer(s, registers, result, 2)
            s.emit(f"store i64 {(function << 32) | (place + 1)}, ptr {payload}, align 8")
        s.leave(code)
    if not always:
        s.start(good)


@on("anylist_setitem_call_packed")
def _call(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, index, function, args...)``: call a function of a list; -1 is the place of a result nobody reads."""
    registers, place, function, *given = e.args
    area, count = _area(s, len(given)), len(given)
    for i, a in enumerate(given):
        _put(s, area, i, a)
    result = s.value(f"getelementptr inbounds {_ANY}, ptr {area}, i64 {count}, i32 0")
    _set(s, result, "0", "0")
    object_ = s.effect(f"load ptr, ptr {item_pointer(s, function.args[0], _index(function.args[1]), 2)}, align 8")
    cell = s.value(f"getelementptr inbounds i8, ptr {object_}, i64 {_CELL}")
    address = s.effect(f"load ptr, ptr {cell}, align 8")
    code = s.effect(f"call i32 {address}(ptr {object_}, ptr {area}, i32 {count}, ptr {result})")
    leave_marked(s, code, e, registers)
    index = _index(place)
    if index < 0:
        _release(s, result)
    else:
        _store(s, registers, index, result)
    return "0"


@on("anylist_setitem")
def _assign(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, index, value)``: an item becomes a value, of which both then hold a reference."""
    area = _area(s, 1)
    _put(s, area, 0, e.args[2])
    value = s.value(f"getelementptr inbounds {_ANY}, ptr {area}, i64 0, i32 0")
    _count(s, value, "weft.retain", "TVMFFIObjectIncRef")
    _store(s, e.args[0], _index(e.args[1]), value)
    return "0"


def _store(s: FunctionEmitter, items: Any, index: int, value: str) -> None:
    """Move a value into a list, giving back what was there."""
    slot = item_pointer(s, items, index)
    s.version(slot, changed=True)
    _release(s, slot)
    _copy(s, slot, value)


@on("anylist_resetitem")
def _reset(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, index)``: an item becomes None."""
    slot = item_pointer(s, e.args[0], _index(e.args[1]))
    s.version(slot, changed=True)
    _release(s, slot)
    _set(s, slot, "0", "0")
    return "0"


@on("anylist_moveitem")
def _move(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, to, from)``: an item moves to an empty place."""
    to, source = (item_pointer(s, e.args[0], _index(a)) for a in e.args[1:])
    for slot in (to, source):
        s.version(slot, changed=True)
    _copy(s, to, source)
    _set(s, source, "0", "0")
    return "0"


@on("anylist_truth")
def _truth(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, index)``: whether an item, which is an integer or a truth value, is not zero."""
    payload = item_pointer(s, e.args[0], _index(e.args[1]), 2)
    return s.value(f"icmp ne i64 {s.effect(f'load i64, ptr {payload}, align 8')}, 0")
