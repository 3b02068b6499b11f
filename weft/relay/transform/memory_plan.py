"""MemoryPlan: tensors whose lives do not overlap share storage, and results take over the memory of dying operands.

What leaves a chain of lets (results, fields of values, arguments of functions, what branches see) keeps a storage of
its own. The others of constant size lie in one storage a segment, at offsets; those of sizes that run time computes
reuse storages of the same size. A segment is what stands between calls of functions, choices and matches, so a frame
of a recursion holds no memory for tensors that are dead by then.
"""

from __future__ import annotations

from typing import Any

from weft.ir import Attrs, Expr, IRModule, Op, Pass
from weft.ir.deep import with_deep_stack
from weft.relay.adt import Constructor
from weft.relay.expr import Call, Constant, Function, GlobalVar, Tuple, TupleGetItem, Var, const, let_chain, lets
from weft.relay.op.memory import ALIGNMENT, STORAGE
from weft.relay.scalars import scalar_operation
from weft.relay.transform.nested import VariablesIn, with_bodies
from weft.relay.walk import operator_name

_READS = frozenset({"vm.invoke_tvm_op", "vm.shape_of", "memory.kill", "memory.alloc_tensor"})
_ALIASES = frozenset({"vm.reshape_tensor", "device_copy"})


def MemoryPlan() -> Pass:
    """Make the pass that lets tensors share storage, on the output of ``ManifestAlloc``.

    Kernels whose attribute ``inplace_inputs`` allows it write their result over an input that is not used afterwards.
    """
    return Pass("MemoryPlan", _memory_plan, 0, MemoryPlan.__doc__, "relay.lowered")


def _memory_plan(mod: IRModule) -> IRModule:
    variables = VariablesIn()

    def body(expr: Expr) -> Any:
        bindings, tail = let_chain(expr)
        new = [(v, with_bodies(value, body)) for v, value in bindings]
        planned = _Plan(new, tail, mod, variables).rewritten()
        same = len(planned) == len(bindings) and all(a[1] is b[1] for a, b in zip(planned, bindings, strict=True))
        return expr if same else lets(planned, tail)

    out = mod.copy()
    for gvar, func in mod.items():
        if isinstance(func, Function):
            out[gvar] = with_deep_stack(lambda f=func: with_bodies(f, body))
    return out


class _Block:
    """Memory that one tensor, or several in turn, lie in."""

    __slots__ = ("device", "end", "escapes", "offset", "segment", "size", "start", "var")

    def __init__(self, i: int, segment: int, var: Var, call: Call) -> None:
        self.start = self.end = i
        self.segment: int | None = segment
        self.size, self.device, self.var = call.args[0], call.attrs["device_index"], var
        self.escapes = False
        self.offset = 0

    @property
    def n_bytes(self) -> int | None:
        """The size, where it is constant."""
        return int(self.size.data.numpy()) if isinstance(self.size, Constant) else None

    def use(self, i: int, segment: int) -> None:
        """Be alive until binding `i`."""
        self.end = max(self.end, i)
        if segment != self.segment:
            self.segment = None

    def absorb(self, other: _Block) -> None:
        """Hold what another block of equal size holds, too."""
        self.end = max(self.end, other.end)
        self.escapes |= other.escapes
        if self.segment != other.segment:
            self.segment = None

    def same_size(self, other: _Block) -> bool:
        """Whether two blocks have one size, on one device."""
        equal = self.size is other.size or (self.n_bytes is not None and self.n_bytes == other.n_bytes)
        return equal and self.device == other.device


class _Plan:
    """One chain of lets: which storages there are, how long each is needed, and where it lies."""

    def __init__(self, bindings: list[Any], tail: Expr, mod: IRModule, variables: VariablesIn) -> None:
        self.bindings, self.mod, self.variables = bindings, mod, variables
        self.block_of: dict[Var, _Block] = {}
        self.roots: dict[Expr, list[Var]] = {}  # the storages that a variable's value may lie in
        self._live(tail)
        self._take_over()
        self.arenas: dict[tuple[int, int], list[_Block]] = {}
        self._place()

    def _live(self, tail: Expr) -> None:
        segment = 0
        for i, (var, value) in enumerate(self.bindings):
            name = operator_name(value)
            if name == "memory.alloc_storage":
                self.block_of[var] = _Block(i, segment, var, value)
                self.roots[var] = [var]
                continue
            used = self._roots(value)
            for r in used:
                self.block_of[r].use(i, segment)
            if name == "memory.alloc_tensor":
                self.roots[var] = self.roots.get(value.args[0], [])
            elif name in _ALIASES or isinstance(value, (Var, Tuple, TupleGetItem)) or _is_scalar_operation(value):
                self.roots[var] = used
            elif name not in _READS:
                for r in used:
                    self.block_of[r].escapes = True
                made = isinstance(value, Call) and isinstance(value.op, (Constructor, Op))
                segment += not (made or isinstance(value, (Function, Constant)))
        for r in self._roots(tail):
            self.block_of[r].escapes = True

    def _roots(self, value: Expr) -> list[Var]:
        return list(dict.fromkeys(r for var in self.variables(value) for r in self.roots.get(var, ())))

    def _take_over(self) -> None:
        """Let results of element-wise kernels lie where an operand lay that dies there."""
        for i, (_, value) in enumerate(self.bindings):
            if operator_name(value) != "vm.invoke_tvm_op" or not isinstance(value.args[0], GlobalVar):
                continue
            if value.args[0] not in self.mod:  # an external compiler makes it
                continue
            func: Any = self.mod[value.args[0]]
            inputs, outputs = value.args[1].fields, value.args[2].fields
            places = func.attrs.get("inplace_inputs") or ()
            out = self.roots.get(outputs[0], []) if len(outputs) == 1 else []
            for k in places if len(out) == 1 else ():
                old = self.roots.get(inputs[k], ())
                others = [r for j, a in enumerate(inputs) if j not in places for r in self.roots.get(a, ())]
                if len(old) == 1 and not any(r is old[0] for r in others) and self._joined(old[0], out[0], i):
                    break

    def _joined(self, old: Var, new: Var, i: int) -> bool:
        a, b = self.block_of[old], self.block_of[new]
        if a is b or a.escapes or a.end != i or b.end == b.start or not a.same_size(b):
            return False
        a.absorb(b)
        for key, block in self.block_of.items():
            if block is b:
                self.block_of[key] = a
        return True

    def _place(self) -> None:
        free: list[_Block] = []
        for b in sorted(dict.fromkeys(self.block_of.values()), key=lambda b: b.start):
            if b.escapes or b.segment is None:
                continue
            if b.n_bytes is not None:
                self.arenas.setdefault((b.segment, b.device), []).append(b)
                continue
            old = next((f for f in free if f.segment == b.segment and f.end < b.start and f.same_size(b)), None)
            if old is None:
                free.append(b)
            else:
                b.var, old.end = old.var, b.end
        for members in self.arenas.values():
            _assign_offsets(members)

    def rewritten(self) -> list[Any]:
        """The bindings with storages shared; a binding that stays is the same object."""
        arena: dict[_Block | None, tuple[int, int]] = {b: key for key, members in self.arenas.items() for b in members}
        sizes = {key: max(b.offset + _padded(b.n_bytes or 0) for b in m) for key, m in self.arenas.items()}
        storage_of: dict[tuple[int, int], Var] = {}
        out: list[Any] = []
        for var, value in self.bindings:
            name = operator_name(value)
            block = self.block_of.get(var if name == "memory.alloc_storage" else _storage(value))
            key = arena.get(block)
            if block is None:
                out.append((var, value))
            elif name == "memory.alloc_tensor":
                out.append((var, _moved(value, block.var if key is None else storage_of[key], block.offset)))
            elif key is None and block.var is var:
                out.append((var, value))
            elif key is not None and key not in storage_of:
                storage_of[key] = var
                out.append((var, value if sizes[key] == block.n_bytes else _resized(value, sizes[key])))
        return out


def _storage(value: Any) -> Any:
    """The storage that a tensor is allocated in, or None for other operations."""
    return value.args[0] if operator_name(value) == "memory.alloc_tensor" else None


def _is_scalar_operation(value: Expr) -> bool:
    """Whether the machine computes a value in its registers: from its operands, or it may be one of them."""
    return isinstance(value, Call) and scalar_operation(value) is not None


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def _assign_offsets(blocks: list[_Block]) -> None:
    """Give blocks of constant size places, large ones first, so that those alive at one time do not overlap.

    Source: greedy by size, Pisarchyk and Lee, 2020.
    """
    placed: list[_Block] = []
    for b in sorted(blocks, key=lambda b: -(b.n_bytes or 0)):
        size = _padded(b.n_bytes or 0)
        at = 0
        for p in sorted(placed, key=lambda p: p.offset):
            if p.end < b.start or b.end < p.start:
                continue
            if at + size <= p.offset:
                break
            at = max(at, p.offset + _padded(p.n_bytes or 0))
        b.offset = at
        placed.append(b)


def _resized(call: Call, n_bytes: int) -> Call:
    return Call(call.op, (const(n_bytes, "int64"),), call.attrs, span=call.span, ty=STORAGE)


def _moved(call: Call, storage: Expr, offset: int) -> Call:
    if storage is call.args[0] and not offset:
        return call
    attrs = Attrs.of({**dict(call.attrs.items), "offset": call.attrs["offset"] + offset})
    return Call(call.op, (storage, call.args[1]), attrs, span=call.span, ty=call.ty)
