"""VMTIRCodeGen: bytecode to TIR functions ``__vmtir__<name>``, which do what the machine's loop would do.

``__vmtir__main(ctx_ptr, r, c, f)`` takes the machine, its registers, constants and functions, as Apache TVM's do: lists
of values, on which the ``anylist`` intrinsics work. The result goes to the register after the parameters. Calls of
kernels whose arguments are known beforehand pass raw pointers (see ``direct``), and tensors that only such calls use
lie in an arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import error, machine
from weft.ir import Attrs, CallIntrin, DataType, IRModule, Op, PrimExpr, StringImm, Var, int64
from weft.relax.vm.direct import DirectPlan, plan_direct
from weft.relax.vm.exec_builder import ExecBuilder, Insn, SpecialReg
from weft.runtime.opcodes import ArgKind, FuncKind, Opcode, decode_arg
from weft.tir import AllocBuffer, BufferLoad, Evaluate, IfThenElse, PrimFunc, Stmt, decl_buffer, seq

PREFIX = "__vmtir__"
_KILL, _COPY, _INVOKE = "vm.builtin.null_value", "vm.builtin.copy", "vm.builtin.invoke_closure"
_TAIL = "vm.builtin.tail_call"


def vmtir_codegen(builder: ExecBuilder, kernels: Mapping[str, PrimFunc] | None = None) -> tuple[IRModule, set[str]]:
    """Take the bytecode of every function out of a builder and write it as TIR; the functions change their kind.

    Parameters
    ----------
    builder : ExecBuilder
        With the bytecode.
    kernels : mapping of str to PrimFunc, optional
        Kernels that will be compiled for the host, into the same library, and may be called directly.

    Returns
    -------
    mod : IRModule
        The functions ``__vmtir__<name>``, in lowered form.
    direct : set of str
        The kernels that they call directly.
    """
    functions: dict[str, PrimFunc] = {}
    direct: set[str] = set()
    bodies = list(builder.take_bodies())
    recursive = _recursive(builder, bodies)
    for name, n_params, body in bodies:
        plan = plan_direct(body, builder, kernels or {})
        functions[PREFIX + name] = _Writer(builder, name, n_params, body, plan, name in recursive).function()
        direct |= {builder.function_name(body[at].words[1]) for at in plan.calls}
    return IRModule(functions), direct


def _recursive(builder: ExecBuilder, bodies: Sequence[tuple[str, int, Sequence[Insn]]]) -> set[str]:
    """The functions that may run again before they return: those that reach themselves, or call what they are given."""
    invoke = builder.find_function(_INVOKE)
    reached: dict[int, set[int]] = {}
    for name, _, body in bodies:
        calls = [i for i in body if i.opcode == Opcode.CALL]
        words = [decode_arg(w) for i in calls for w in i.args]
        reached[builder.function_index(name)] = {i.words[1] for i in calls} | {
            value for kind, value in words if kind == ArgKind.FUNCTION
        }
    for middle in reached:
        for start, ends in reached.items():
            if middle in ends and middle != start:
                ends |= reached[middle]
    return {builder.function_name(f) for f, ends in reached.items() if f in ends or invoke in ends}


class _Writer:
    """The TIR of one function."""

    def __init__(
        self, builder: ExecBuilder, name: str, n_params: int, body: Sequence[Insn], plan: DirectPlan, recursive: bool
    ) -> None:
        self.builder, self.name, self.n_params, self.body, self.plan = builder, name, n_params, body, plan
        self.recursive = recursive
        self.context, self.r, self.c, self.f = (Var(n, "handle") for n in ("ctx_ptr", "r", "c", "f"))
        self.kill, self.copy = builder.find_function(_KILL), builder.find_function(_COPY)
        self.arena = decl_buffer((int64(plan.arena_bytes),), "uint8", "arena")

    def function(self) -> PrimFunc:
        """Write the function."""
        attrs = Attrs.of({"global_symbol": PREFIX + self.name, "tir.noalias": False})
        body = self.block(0, len(self.body))
        if self.plan.arena_bytes:
            body = AllocBuffer(self.arena, body, Attrs.of({"stack_bytes": machine.UNKNOWN.frame_arena_bytes}))
        return PrimFunc((self.context, self.r, self.c, self.f), body, attrs=attrs)

    def block(self, begin: int, end: int) -> Stmt:
        """Write the instructions of a range, in which every ``If`` is followed by both of its branches."""
        out: list[Stmt] = []
        at = begin
        while at < end:
            insn = self.body[at]
            if insn.opcode == Opcode.CALL:
                if at not in self.plan.omitted:
                    out.append(Evaluate(self.kernel(at, insn) if at in self.plan.calls else self.call(at, insn)))
                at += 1
            elif insn.opcode == Opcode.RET:
                out.append(Evaluate(self.item_call("moveitem", self.n_params, self.register(insn.words[0]))))
                at += 1
            elif insn.opcode == Opcode.IF:
                otherwise = at + insn.words[1]
                jump = self.body[otherwise - 1]
                if jump.opcode != Opcode.GOTO:
                    raise error.InternalError("a branch of bytecode does not end in a jump", found=self.name)
                joined = otherwise - 1 + jump.words[0]
                condition = self.item_call("truth", self.register(insn.words[0]), dtype="bool")
                out.append(IfThenElse(condition, self.block(at + 1, otherwise - 1), self.block(otherwise, joined)))
                at = joined
            else:
                raise error.InternalError("a jump of bytecode stands alone", found=self.name)
        return seq(*out)

    def register(self, index: int) -> int:
        """The place of a register, behind that of the result if it is no parameter."""
        return index + 1 if index >= self.n_params else index

    def item_call(self, name: str, *places: int, dtype: str = "void") -> CallIntrin:
        """Make a call on the registers."""
        args = (self.r, *(int64(p) for p in places))
        return CallIntrin(DataType(dtype), Op.get(f"tir.anylist_{name}"), args)

    def call(self, at: int, insn: Insn) -> PrimExpr:
        """Write a call; functions of the machine are called through its builtin."""
        dst, callee = insn.words[:2]
        place = -1 if dst == SpecialReg.VOID_ARG else self.register(dst)
        if callee == self.kill and not insn.args and place >= 0:
            return self.item_call("resetitem", place)
        if callee == self.copy and len(insn.args) == 1 and place >= 0:
            value = self.operand(insn.args[0])
            return CallIntrin(DataType("void"), Op.get("tir.anylist_setitem"), (self.r, int64(place), value))
        args = [self.operand(w) for w in insn.args]
        function = callee
        if self.builder.function_kind(callee) != FuncKind.PACKED_FUNC:
            args = [self.context, self.item(self.f, callee), *args]
            function = self.builder.function_index(_INVOKE)
        if self.recursive and function == self.builder.find_function(_INVOKE) and self.is_tail(at, dst):
            function = self.builder.function_index(_TAIL)
        attrs = Attrs.of({"vm.call": (at, callee, self.n_params)})
        call = (self.r, int64(place), self.item(self.f, function), *args)
        return CallIntrin(DataType("void"), Op.get("tir.anylist_setitem_call_packed"), call, attrs)

    def is_tail(self, at: int, value: int) -> bool:
        """Whether a call's result is only moved and returned behind it; jumps lead to where branches meet."""
        while value != SpecialReg.VOID_ARG:
            at += 1
            insn = self.body[at]
            if insn.opcode == Opcode.GOTO:
                at += insn.words[0] - 1
            elif insn.opcode != Opcode.CALL:
                return insn.opcode == Opcode.RET and insn.words[0] == value
            elif insn.words[1] == self.copy and insn.args == (value,):
                value = insn.words[0]
            elif insn.words[1] not in (self.copy, self.kill) or insn.words[0] == value:
                return False
        return False

    def kernel(self, at: int, insn: Insn) -> PrimExpr:
        """Write a direct call of a kernel."""
        callee = insn.words[1]
        attrs = Attrs.of({"vm.call": (at, callee, self.n_params)})
        args = (StringImm(self.builder.function_name(callee)), self.r, *(self.address(w) for w in insn.args))
        return CallIntrin(DataType("void"), Op.get("tir.call_kernel"), args, attrs)

    def address(self, word: int) -> PrimExpr:
        """Write an argument of a direct call: an address where it is known, else the object."""
        kind, value = decode_arg(word)
        if kind == ArgKind.REGISTER and value in self.plan.addresses:
            return CallIntrin(
                DataType("handle"),
                Op.get("tir.address_of"),
                (BufferLoad(self.arena, (int64(self.plan.addresses[value]),)),),
            )
        if kind == ArgKind.REGISTER and value in self.plan.compact:
            return self.item_call("data", self.register(value), dtype="handle")
        return self.operand(word)

    def item(self, items: Var, index: int) -> PrimExpr:
        """Make an item of a list."""
        return CallIntrin(DataType("handle"), Op.get("tir.anylist_getitem"), (items, int64(index)))

    def operand(self, word: int) -> PrimExpr:
        """Write an argument word."""
        kind, value = decode_arg(word)
        if kind == ArgKind.IMMEDIATE:
            return int64(value)
        if kind == ArgKind.CONSTANT:
            return self.item(self.c, value)
        if kind == ArgKind.FUNCTION:
            return self.item(self.f, value)
        return self.context if value == SpecialReg.VM_STATE else self.item(self.r, self.register(value))
