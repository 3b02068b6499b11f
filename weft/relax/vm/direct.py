"""Which calls of a function's bytecode may go straight to kernels, and where the tensors between them lie.

A call is direct when the shapes and dtypes that its kernel's parameters demand are those of its arguments, or can be
checked once. A tensor that only direct calls use is no object: its memory is a place in the function's arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from weft import environment, ir, runtime, tir
from weft.relax.vm.exec_builder import ExecBuilder, Insn, SpecialReg
from weft.runtime.opcodes import ArgKind, Opcode, decode_arg

_ALIGNMENT = 64


class _Type(NamedTuple):
    shape: tuple[int, ...]
    dtype: str


class _Place(NamedTuple):
    """Where a tensor lies: a register that holds its storage, and the bytes before it."""

    storage: int
    offset: int


class DirectPlan(NamedTuple):
    """What becomes of the calls and registers of a function."""

    calls: frozenset[int]
    """Numbers of the instructions that call a kernel directly."""
    addresses: dict[int, int]
    """Register of a tensor that is no object to its place in the arena, in bytes."""
    omitted: frozenset[int]
    """Numbers of the instructions of which nothing is left."""
    compact: frozenset[int]
    """Registers of objects that are known to be what a kernel demands."""
    arena_bytes: int


def plan_direct(body: Sequence[Insn], builder: ExecBuilder, kernels: Mapping[str, tir.PrimFunc]) -> DirectPlan:
    """Plan the direct calls of one function."""
    return _Planner(body, builder, kernels).plan()


class _Planner:
    """What is known about the registers of one function."""

    def __init__(self, body: Sequence[Insn], builder: ExecBuilder, kernels: Mapping[str, tir.PrimFunc]) -> None:
        self.body, self.builder = body, builder
        found = {builder.find_function(n): kernel_signature(f) for n, f in kernels.items()}
        self.signatures = {i: s for i, s in found.items() if i is not None and s is not None}
        names = ("null_value", "reshape", "alloc_storage", "alloc_tensor")
        self.kill, self.reshape, self.alloc_storage, self.alloc_tensor = (
            builder.find_function(f"vm.builtin.{n}") for n in names
        )
        self.read = {w for i in body for w in (i.args if i.opcode == Opcode.CALL else i.words[:1])}
        self.types: dict[int, _Type] = {}
        self.places: dict[int, _Place] = {}
        self.aliases: dict[int, int] = {}
        self.storages: set[int] = set()
        self.objects: set[int] = set()  # tensors that something else than a direct call uses

    def plan(self) -> DirectPlan:
        """Find what is known of registers, then which of them must be objects, until nothing changes."""
        self.define()
        if environment.GUARD.read() != "0":  # in an arena tensors have no guard between them
            self.objects.update(self.types)
        calls: set[int] = set()
        while True:
            before = len(self.objects)
            calls = {at for at, insn in enumerate(self.body) if self.use(insn)}
            if len(self.objects) == before:
                break
        direct = {t for t in self.types if t not in self.objects}
        kept = {self.place(t).storage for t in self.types if t in self.objects}
        addresses, nbytes = self.lay_out(direct)
        omitted = {
            at
            for at, insn in enumerate(self.body)
            if insn.opcode == Opcode.CALL
            and (insn.words[0] in direct or (insn.words[0] in self.storages and insn.words[0] not in kept))
        }
        compact = {t for t in self.types if t in self.objects and t not in self.aliases}
        return DirectPlan(frozenset(calls), addresses, frozenset(omitted), frozenset(compact), nbytes)

    def calls_of(self, function: int | None) -> list[Insn]:
        """List the calls of a function."""
        return [i for i in self.body if i.opcode == Opcode.CALL and i.words[1] == function]

    def define(self) -> None:
        """Find storages and tensors of constant size, made at one place only."""
        made: dict[int, int] = {}
        for insn in self.body:
            if insn.opcode == Opcode.CALL and insn.words[1] != self.kill:
                made[insn.words[0]] = made.get(insn.words[0], 0) + 1
        for insn in self.calls_of(self.alloc_storage):
            _, size, device, _, scope = (self.value(w) for w in insn.args)
            if size is not None and device == 0 and scope == "global" and made[insn.words[0]] == 1:
                self.storages.add(insn.words[0])
        for insn in self.body:
            if insn.opcode != Opcode.CALL or made.get(insn.words[0]) != 1:
                continue
            dst, function = insn.words[:2]
            if function == self.alloc_tensor and insn.args[0] in self.storages:
                offset, shape, dtype = (self.value(w) for w in insn.args[1:4])
                if isinstance(offset, int) and shape is not None and dtype is not None:
                    self.types[dst] = _Type(tuple(shape), str(dtype))
                    self.places[dst] = _Place(insn.args[0], offset)
            elif function == self.reshape and insn.args[0] in self.types:
                shape, source = self.value(insn.args[1]), self.types[insn.args[0]]
                if shape is not None and _count(shape) == _count(source.shape):
                    self.types[dst] = _Type(tuple(shape), source.dtype)
                    self.aliases[dst] = insn.args[0]

    def value(self, word: int) -> Any:
        """The value of a constant argument; None of another."""
        kind, value = decode_arg(word)
        if kind == ArgKind.IMMEDIATE:
            return value
        return self.builder.constant(value) if kind == ArgKind.CONSTANT else None

    def place(self, tensor: int) -> _Place:
        """Where a tensor lies, behind the reshapes that it is made by."""
        while tensor in self.aliases:
            tensor = self.aliases[tensor]
        return self.places[tensor]

    def use(self, insn: Insn) -> bool:
        """Note which tensors an instruction needs as objects; whether it calls a kernel directly."""
        if insn.opcode != Opcode.CALL:
            self.objects.update(w for w in insn.words[:1] if insn.opcode == Opcode.RET and w in self.types)
            return False
        dst, function = insn.words[:2]
        if function == self.kill:
            return False
        signature = self.signatures.get(function)
        if signature is not None and dst not in self.read and self.fits(signature, insn.args):
            return True
        if function == self.reshape and dst in self.aliases and dst not in self.objects:
            if insn.args[0] in self.objects:
                self.objects.add(dst)
            return False
        self.objects.update(w for w in insn.args if w in self.types)
        return False

    def fits(self, signature: Sequence[_Type | None], args: Sequence[int]) -> bool:
        """Whether arguments are what a kernel demands, or may be."""
        if len(signature) != len(args):
            return False
        for demanded, word in zip(signature, args, strict=True):
            kind, value = decode_arg(word)
            if demanded is None:
                if kind != ArgKind.IMMEDIATE or not -(1 << 31) <= value < (1 << 31):
                    return False
            elif kind == ArgKind.CONSTANT:
                if not isinstance(self.builder.constant(value), runtime.Tensor):
                    return False
            elif kind != ArgKind.REGISTER or value >= SpecialReg.VOID_ARG:
                return False
            elif value in self.types and self.types[value] != demanded:
                return False
        return True

    def lay_out(self, direct: set[int]) -> tuple[dict[int, int], int]:
        """Give each storage that a direct tensor lies in a place; storages of different times may share one."""
        lives: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        for t in direct:
            storage, offset = self.place(t)
            n_bytes = _count(self.types[t].shape) * ir.DataType(self.types[t].dtype).itemsize
            sizes[storage] = max(sizes.get(storage, 0), -(-(offset + n_bytes) // _ALIGNMENT) * _ALIGNMENT)
        for at, insn in enumerate(self.body):
            words = {insn.words[0], *insn.args} if insn.opcode == Opcode.CALL else set[int]()
            for t in words & direct:
                lives.setdefault(self.place(t).storage, []).append(at)
        at_of: dict[int, int] = {}
        for storage in sorted(sizes, key=lambda s: (lives[s][0], s)):
            first, last = lives[storage][0], lives[storage][-1]
            taken = sorted(
                (at_of[o], at_of[o] + sizes[o]) for o in at_of if lives[o][0] <= last and first <= lives[o][-1]
            )
            begin = 0
            for low, high in taken:
                if begin + sizes[storage] <= low:
                    break
                begin = max(begin, high)
            at_of[storage] = begin
        total = max((at_of[s] + sizes[s] for s in at_of), default=0)
        return {t: at_of[self.place(t).storage] + self.place(t).offset for t in direct}, total


def _count(shape: Sequence[int]) -> int:
    return prod(int(d) for d in shape)


def kernel_signature(func: tir.PrimFunc) -> tuple[_Type | None, ...] | None:
    """What each parameter of a kernel demands, None for an integer; None of a kernel that is not called directly."""
    out: list[_Type | None] = []
    for p in func.params:
        buffer = func.buffer_of(p)
        if buffer is None:
            if ir.DataType(p.dtype) not in ("int32", "int64"):
                return None
            out.append(None)
            continue
        shape = [ir.as_int(d) for d in buffer.shape]
        if buffer.strides or buffer.elem_offset is not None or any(d is None for d in shape):
            return None
        out.append(_Type(tuple(d for d in shape if d is not None), str(buffer.dtype)))
    return tuple(out)
