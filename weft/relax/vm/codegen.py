"""VMCodeGen: Relax functions to bytecode.

One register a variable, parameters in registers 0 to N-1; ``If`` becomes If and Goto with both results copied to one
register; each function ends in Ret.
"""

from typing import Any

from weft import error, ir, runtime, tir
from weft.relax.expr import SeqExpr, Var
from weft.relax.transform.lower_builtin import lower_call
from weft.relax.vm.exec_builder import ExecBuilder
from weft.runtime.opcodes import FuncKind


def vm_codegen(builder: ExecBuilder, mod: ir.IRModule) -> ir.IRModule:
    """Emit bytecode for every Relax function of a module.

    Parameters
    ----------
    builder : ExecBuilder
        Receives the functions.
    mod : IRModule
        In the form ``relax.vm_ready``.

    Returns
    -------
    IRModule
        The TIR functions, which remain to be compiled.
    """
    relax_functions = [(v, f) for v, f in mod.items() if isinstance(f, ir.Function)]
    for gvar, func in relax_functions:
        builder.declare_function(_symbol(gvar, func), FuncKind.VM_FUNC)
    for gvar, func in relax_functions:
        _FunctionCodegen(builder, mod).run(_symbol(gvar, func), func)
    return mod.with_functions({v: f for v, f in mod.items() if not isinstance(f, ir.Function)})


def _symbol(gvar: ir.GlobalVar, func: Any) -> str:
    return func.attrs.get("global_symbol") or gvar.name_hint


class _FunctionCodegen:
    """Registers and constants of one function."""

    def __init__(self, builder: ExecBuilder, mod: ir.IRModule) -> None:
        self.builder, self.mod = builder, mod
        self.registers: dict[ir.Expr, int] = {}
        self.externs: dict[ir.Expr, ir.ExternFunc] = {}  # packed functions by the variables that are names for them
        self.n_registers = 0

    def run(self, name: str, func: ir.Function) -> None:
        """Emit one function."""
        with self.builder.function(name, len(func.params), [p.name_hint for p in func.params]):
            for p in func.params:
                self.registers[p] = self.fresh()
            self.builder.emit_ret(self.to_register(self.sequence(func.body)))

    def fresh(self) -> int:
        """Take a new register."""
        self.n_registers += 1
        return self.n_registers - 1

    def sequence(self, seq: ir.Expr) -> int:
        """Emit a sequence and return the operand of its result."""
        if not isinstance(seq, SeqExpr):
            return self.operand(seq)
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)
        return self.operand(seq.body)

    def binding(self, b: Any) -> None:
        """Emit one binding."""
        value = b.value
        self.builder.span = b.span
        if isinstance(value, ir.If):
            self.registers[b.var] = self.branch(value)
        elif isinstance(value, ir.Call):
            self.call(value, b.var)
        elif isinstance(value, ir.TupleGetItem):
            register = self.registers[b.var] = self.fresh()
            place = [self.operand(value.tuple_value), self.builder.imm(value.index)]
            self.builder.emit_call("vm.builtin.tuple_getitem", place, register)
        else:
            # a register of its own even for an alias: killing one of two names must not take the other's value
            if isinstance(value, ir.ExternFunc):
                self.externs[b.var] = value
            register = self.fresh()
            self.builder.emit_call("vm.builtin.copy", [self.operand(value)], register)
            self.registers[b.var] = register

    def branch(self, value: ir.If) -> int:
        """Emit both branches, each copying its result to the same register."""
        cond = self.fresh()
        self.builder.emit_call("vm.builtin.read_if_cond", [self.operand(value.cond)], cond)
        test = self.builder.next_instruction()
        self.builder.emit_if(cond, 1)
        merged = self.fresh()
        self.builder.emit_call("vm.builtin.copy", [self.sequence(value.true_branch)], merged)
        jump = self.builder.next_instruction()
        self.builder.emit_goto(1)
        self.builder.patch_offset(test, self.builder.next_instruction())
        self.builder.emit_call("vm.builtin.copy", [self.sequence(value.false_branch)], merged)
        self.builder.patch_offset(jump, self.builder.next_instruction())
        return merged

    def call(self, call: ir.Call, var: Var) -> None:
        """Emit a call; a result that nobody can use (an empty tuple) has no register."""
        if isinstance(call.op, ir.Op) and call.op.name.startswith("relax.vm."):
            call = lower_call(call)
        op = call.op
        if isinstance(op, ir.Op):
            if op.name == "relax.vm.kill_object":
                self.builder.emit_call("vm.builtin.null_value", [], self.operand(call.args[0]))
                return
            if op.name not in ("relax.call_builtin", "relax.call_builtin_with_ctx"):
                raise error.CodegenError(
                    f"operator '{op.name}' reached the code generator",
                    where=call.span,
                    help="run LegalizeOps and LowerRuntimeBuiltin first",
                )
            callee, packed = call.args
            args = [self.builder.vm_state()] if op.name.endswith("_with_ctx") else []
            args += [self.operand(a) for a in packed.fields]  # type: ignore[attr-defined]
            name = callee.global_symbol  # type: ignore[attr-defined]
        else:
            args = [self.operand(a) for a in call.args]
            op = self.externs.get(op, op)
            if isinstance(op, ir.ExprVar):
                name, args = "vm.builtin.invoke_closure", [self.builder.vm_state(), self.operand(op), *args]
            else:
                name = op.global_symbol if isinstance(op, ir.ExternFunc) else self.callee(op)
        dst = None
        if call.ty is None or getattr(call.ty, "fields", None) != ():
            dst = self.registers[var] = self.fresh()
        self.builder.emit_call(name, args, dst)

    def callee(self, op: ir.Expr) -> str:
        """The symbol of a function of the module."""
        if not isinstance(op, ir.GlobalVar):
            raise error.CodegenError(
                "only functions of the module and packed functions can be called directly", found=str(op)
            )
        if op not in self.mod:
            raise error.CodegenError(f"the module has no function '{op.name_hint}'")
        return _symbol(op, self.mod[op])

    def to_register(self, word: int) -> int:
        """Return a register that holds an operand."""
        if word >> 56 == 0:
            return word
        register = self.fresh()
        self.builder.emit_call("vm.builtin.copy", [word], register)
        return register

    def operand(self, expr: ir.Expr) -> int:
        """Return the operand word of an atom."""
        return _OPERAND(expr, self)


# These are values of bindings, which have instructions of their own; functions are called by name.
_OPERAND = ir.Dispatch(
    "operand of an instruction",
    (ir.Expr,),
    leaves_out=(ir.Function, tir.PrimFunc, ir.TupleGetItem, ir.Call, ir.If, SeqExpr),
)


@_OPERAND.on(ir.ExprVar)
def _var(expr: ir.ExprVar, s: _FunctionCodegen) -> int:
    if expr not in s.registers:
        if isinstance(expr.ty, ir.TupleType) and not expr.ty.fields:  # what a call for its effect gives
            return _tuple(ir.Tuple(()), s)
        raise error.CodegenError(f"variable '{expr.name_hint}' is used before it is defined", where=expr.span)
    return s.registers[expr]


@_OPERAND.on(ir.Constant)
def _constant(expr: ir.Constant, s: _FunctionCodegen) -> int:
    device = getattr(expr.ty, "vdevice", None)
    scope = device.memory_scope if device is not None and device.memory_scope != "global" else None
    return s.builder.convert_constant(expr.data, ("tensor", expr.data), scope)


@_OPERAND.on(ir.ShapeExpr)
def _shape(expr: ir.ShapeExpr, s: _FunctionCodegen) -> int:
    dims = tuple(d.value for d in expr.values if isinstance(d, ir.IntImm))
    if len(dims) != len(expr.values):
        raise error.CodegenError(
            "a symbolic shape reached the code generator", found=str(expr.values), help="run VMShapeLower first"
        )
    return s.builder.convert_constant(runtime.shape_constant(dims), ("shape", dims))


@_OPERAND.on(ir.PrimValue)
def _prim(expr: ir.PrimValue, s: _FunctionCodegen) -> int:
    if isinstance(expr.value, ir.IntImm):
        return s.builder.convert_constant(expr.value.value)
    if isinstance(expr.value, ir.FloatImm):
        return s.builder.convert_constant(float(expr.value.value))
    raise error.CodegenError(
        "a symbolic scalar reached the code generator", found=str(expr.value), help="run VMShapeLower first"
    )


@_OPERAND.on(ir.ExprStringImm)
def _string(expr: ir.ExprStringImm, s: _FunctionCodegen) -> int:
    return s.builder.convert_constant(expr.value)


@_OPERAND.on(ir.DataTypeImm)
def _dtype(expr: ir.DataTypeImm, s: _FunctionCodegen) -> int:
    return s.builder.convert_constant(runtime.dtype_constant(ir.DataType(expr.value)), ("dtype", str(expr.value)))


@_OPERAND.on(ir.Tuple)
def _tuple(expr: ir.Tuple, s: _FunctionCodegen) -> int:
    register = s.fresh()
    s.builder.emit_call("vm.builtin.make_tuple", [s.operand(f) for f in expr.fields], register)
    return register


@_OPERAND.on(ir.GlobalVar)
def _global(expr: ir.GlobalVar, s: _FunctionCodegen) -> int:
    return s.builder.f(s.callee(expr))


@_OPERAND.on(ir.ExternFunc)
def _extern(expr: ir.ExternFunc, s: _FunctionCodegen) -> int:
    return s.builder.f(expr.global_symbol)
