"""Emission of direct calls of kernels: raw pointers to the kernel's body, with no entry point between.

Tensors of the caller's own memory come as addresses. Objects in a list of values are checked as the kernel's entry
point would check them, with the same errors, once for each value and type of buffer; what follows uses the pointer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import error, ir, tir
from weft.target.llvm.anylist import item_pointer, leave_marked
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.entry import Entry, emit_body
from weft.target.llvm.intrin import on
from weft.target.llvm.support import raise_error
from weft.target.llvm.types import llvm_type, tensor_member
from weft.target.signature import returns_value

_HEADER_BYTES = 24  # before a tensor object's DLTensor


class Kernel(NamedTuple):
    """A kernel that others call directly: its signature and, if it is to be inlined, its lowered body."""

    func: tir.PrimFunc
    inline: bool


class _Checks(Entry):
    """Checks of a kernel's arguments inside of another function."""

    def __init__(self, s: FunctionEmitter, name: str, call: ir.CallIntrin) -> None:
        super().__init__(s.module, s.module.kernels[name].func, name, s, [])
        self.call = call
        self.bases: dict[int, str] = {}
        self.places: dict[int, tuple[Any, int]] = {}

    def arguments(self, arg: int) -> tuple[str, str]:
        """The place before a value, where the array of arguments would begin."""
        return self.bases[arg], str(arg + 1)

    def field(self, i: int, index: int, t: str) -> str:
        """Load a field of argument `i`, which may have changed since another check."""
        return self.s.effect(f"load {t}, ptr {item_pointer(self.s, *self.places[i], index)}")

    def refuse(self, label: str, call: str = "") -> None:
        """Leave with the error, and tell which call it was."""
        s = self.s
        with s.scope():
            block = s.block
            s.start(label)
            code = s.effect(call) if call else "-1"
            leave_marked(s, code, self.call, self.call.args[1], always=True)
            s.block = block

    def pointer(self, i: int, item: ir.CallIntrin) -> str:
        """Check the object that is argument `i`, unless an equal check dominates, and return its data pointer."""
        s, buffer = self.s, self.buffers[self.func.params[i]]
        place = ir.as_int(item.args[1])
        assert place is not None
        slot = item_pointer(s, item.args[0], place)
        shape = [ir.as_int(d) for d in buffer.shape]
        self.bases[i] = s.value(f"getelementptr {{ i32, i32, i64 }}, ptr {slot}, i64 {-i}")
        self.places[i] = item.args[0], place
        key = f"; {s.version(slot)} of {slot} as {buffer.dtype} {shape}"
        return s.once(key, lambda: self.tensor(i, buffer).removeprefix("ptr "))


@on("call_kernel")
def _call_kernel(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(name, registers, args...)``: call a kernel's body; arguments are addresses, items of lists, and integers."""
    symbol = e.args[0]
    if not isinstance(symbol, ir.StringImm) or symbol.value not in s.module.kernels:
        raise error.CodegenError("a kernel that is called directly is compiled with its caller", where=e.span)
    name = symbol.value
    kernel = s.module.kernels[name]
    checks = _Checks(s, name, e)
    args = []
    for i, (p, a) in enumerate(zip(kernel.func.params, e.args[2:], strict=True)):
        if isinstance(a, ir.CallIntrin) and isinstance(a.op, ir.Op) and a.op.name == "tir.anylist_getitem":
            args.append(f"ptr {checks.pointer(i, a)}")
        else:
            args.append(f"{'ptr' if p in checks.buffers else llvm_type(p.dtype)} {s.expr(a)}")
    if returns_value(kernel.func.body):
        args.append(f"ptr {s.alloca('{ i32, i32, i64 }, align 8', 'ignored')}")
    _define(s, name, kernel)
    code = s.effect(f"call i32 @{name}_impl({', '.join(args)})")
    if not kernel.inline:
        code = _with_message(s, name, code)
    leave_marked(s, code, e, e.args[1])
    return "0"


def _define(s: FunctionEmitter, name: str, kernel: Kernel) -> None:
    """Declare the body of a kernel, or define a copy of it for LLVM to inline."""
    if kernel.inline:
        if name not in s.module.inlined:
            s.module.inlined.add(name)
            emit_body(s.module, kernel.func, name, "internal i32")
        return
    buffers = {p for p, _ in kernel.func.buffer_map}
    types = ["ptr" if p in buffers else llvm_type(p.dtype) for p in kernel.func.params]
    types += ["ptr"] * returns_value(kernel.func.body)
    s.module.declare(f"{name}_impl", f"declare hidden i32 @{name}_impl({', '.join(types)})")


def _with_message(s: FunctionEmitter, name: str, code: str) -> str:
    """Raise the error of a body that had no memory, which its entry point would raise."""
    before, nomem, after = s.block, s.label("nomem"), s.label("called")
    s.branch(s.value(f"icmp eq i32 {code}, -2"), nomem, after, ", !prof !2")
    s.start(nomem)
    text = s.module.string(f"{name}: out of memory for a workspace")
    raised = s.effect(raise_error(s.module, s.module.string("MemoryError"), text))
    s.jump(after)
    s.start(after)
    return s.effect(f"phi i32 [ {code}, %{before} ], [ {raised}, %{nomem} ]")


@on("anylist_data")
def _data(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``(list, index)``: the data of a tensor object that is known to be compact."""
    place = ir.as_int(e.args[1])
    assert place is not None
    slot = item_pointer(s, e.args[0], place)

    def load() -> str:
        tensor = s.effect(f"load ptr, ptr {item_pointer(s, e.args[0], place, 2)}, align 8")
        inside = s.value(f"getelementptr inbounds i8, ptr {tensor}, i64 {_HEADER_BYTES}")
        data = s.effect(f"load ptr, ptr {s.value(tensor_member(inside, 'data'))}, align 8")
        offset = s.value(tensor_member(inside, "byte_offset"))
        return s.value(f"getelementptr inbounds i8, ptr {data}, i64 {s.effect(f'load i64, ptr {offset}, align 8')}")

    return s.once(f"; {s.version(slot)} of {slot} as data", load)
