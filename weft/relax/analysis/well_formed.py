"""Well-formedness of Relax: what holds at every stage, from import to the virtual machine.

Each variable is bound once, before its uses; a dataflow variable is used in its block only; symbolic variables are
introduced by parameters, ``match_cast`` or the type of a binding; functions that are called exist and take what they
are given; types that are written down do not contradict the values; conditions are scalar bools; effects stand outside
of dataflow blocks and of pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import error, ir
from weft.ir.spec import Spec, verify
from weft.relax.analysis.arguments import argument_errors, contradict
from weft.relax.core_ops import CORE_OPS
from weft.relax.effects import is_pure_call
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr
from weft.relax.normal_form import is_atom, operands
from weft.spelling import also_called

WELL_FORMED = Spec(
    "relax.well_formed", ir.Function, doc="names are bound once, before their uses; effects stand where they may"
)


AS_WRITTEN = Spec(
    "relax.as_written",
    ir.Function,
    doc="WELL_FORMED, in normal form, and symbolic sizes come from parameters and casts of the same function",
)


_ALONE = Spec("relax.function_as_written", ir.Function, doc="as relax.as_written, in a module that is not known")


@also_called(obj="mod")
def well_formed(
    mod: ir.IRModule | ir.Function, check_ty: bool = True, *, check_struct_info: bool | None = None
) -> bool:
    """Return True for a well-formed module or function, or one function whose module is not known.

    Its functions are in normal form, and share no symbolic variables; whether everything has its type is not asked.

    Parameters
    ----------
    check_ty : bool
        Taken for TVM's sake: types are always checked.
    check_struct_info : bool, optional
        The name of `check_ty` up to 0.24. Where it is given, the answer is a bool, as it was then.

    Raises
    ------
    ErrorGroup
        With all that is not well formed, under the bindings that are guilty, unless `check_struct_info` is given.
    """
    if check_struct_info is not None:
        return check_well_formed(mod)
    verify(mod, AS_WRITTEN if isinstance(mod, ir.IRModule) else _ALONE)
    return True


@also_called(obj="mod")
def check_well_formed(mod: ir.IRModule | ir.Function, check_ty: bool = True) -> bool:
    """Return whether a module or function is well formed; it takes what :func:`well_formed` takes."""
    try:
        return well_formed(mod, check_ty)
    except error.ErrorGroup:
        return False


@WELL_FORMED.on_function
def _check(func: ir.Function, mod: ir.IRModule) -> Iterator[tuple[Any, str]]:
    yield from _misnamed(func, mod)
    yield from _Checker(mod).violations(func)


def _misnamed(func: ir.Function, mod: ir.IRModule) -> Iterator[tuple[Any, str]]:
    symbol = func.attrs.get("global_symbol")
    names = [v.name_hint for v, f in mod.items() if f is func]
    if symbol and names and symbol not in names and not func.attrs.get("Codegen"):
        yield func, f"the function is named '{names[0]}' and has the global_symbol '{symbol}'"


@AS_WRITTEN.on_function
def _check_as_written(func: ir.Function, mod: ir.IRModule) -> Iterator[tuple[Any, str]]:
    yield from _misnamed(func, mod)
    functions = [f for f in mod.functions.values() if isinstance(f, ir.Function)]
    symbols = _sizes_of_params(func)
    for other in functions[: functions.index(func)]:
        for v in symbols & _sizes_of_params(other):
            yield func, f"the symbolic variable '{v.name}' is one of another function, too"
    yield from _Checker(mod, strict=True).violations(func)


@_ALONE.on_function
def _check_alone(func: ir.Function, mod: ir.IRModule) -> Iterator[tuple[Any, str]]:
    yield from _Checker(mod, strict=True, alone=True).violations(func)


def _sizes_of_params(func: ir.Function) -> set[ir.Var]:
    return {n for p in func.params if p.ty is not None for n in ir.find(p.ty, ir.Var)}


class _Checker:
    """Walks a function in order of execution with what is bound so far.

    A strict one wants normal form, and takes the type of a variable for a use of its symbolic sizes.
    """

    def __init__(self, mod: ir.IRModule, strict: bool = False, alone: bool = False) -> None:
        self.mod, self.strict, self.alone = mod, strict, alone
        self.found: list[tuple[Any, str]] = []
        self.bound: set[ir.Expr] = set()
        self.ever: set[ir.Expr] = set()  # bound anywhere, to find second bindings
        self.symbols: set[ir.Var] = set()
        self.statement: Any = None
        self.pure = True
        self.dataflow = False

    def violations(self, func: ir.Function) -> list[tuple[Any, str]]:
        """Check a function from outside; return what it violates."""
        if func.attrs.get("relax.force_pure") and not func.is_pure and self.strict:
            self.found.append((func, "force_pure is said of a function that is not pure"))
        self.function(func)
        return self.found

    def say(self, message: str) -> None:
        """Note a violation at the statement under way."""
        self.found.append((self.statement, message))

    # --- functions and blocks ---

    def function(self, func: ir.Function) -> None:
        """Check a function; names of functions around it stay known."""
        saved = self.statement, self.pure, self.dataflow, set(self.bound), set(self.symbols)
        self.statement = func if self.statement is None else self.statement
        self.pure = func.is_pure and not func.attrs.get("relax.force_pure")
        self.dataflow = False
        self.symbols |= _sizes_of_params(func)
        for param in func.params:
            self.bind(param)
        if func.ret_ty is not None and self.strict:
            self._symbols(func.ret_ty)
        elif func.ret_ty is not None:
            # dimensions of the result may be known inside only
            self.symbols |= set(ir.find(func.ret_ty, ir.Var))
        self.value(func.body)
        found = getattr(func.body, "ty", None)
        if contradict(found, func.ret_ty):
            self.say(f"the result is {found}, the function says {func.ret_ty}")
        self.statement, self.pure, self.dataflow, self.bound, self.symbols = saved

    def sequence(self, seq: SeqExpr) -> None:
        """Check the blocks, then the result."""
        for block in seq.blocks:
            self.block(block)
        if self.strict and not is_atom(seq.body):
            self.say(f"the result `{seq.body}` is no variable or constant")
        self.value(seq.body)

    def block(self, block: BindingBlock) -> None:
        """Check the bindings of a block, in order."""
        outer, self.dataflow = self.dataflow, isinstance(block, DataflowBlock)
        local: set[ir.Expr] = set()
        for b in block.bindings:
            saved, self.statement = self.statement, b
            if isinstance(b.value, ir.Function):  # type: ignore[attr-defined]
                self.bind(b.var)  # a function may call itself
                self.function(b.value)  # type: ignore[attr-defined]
            else:
                self._normal(b.value)  # type: ignore[attr-defined]
                self.value(b.value)  # type: ignore[attr-defined]
                found = getattr(b.value, "ty", None)  # type: ignore[attr-defined]
                if contradict(found, b.ty if isinstance(b, MatchCast) else b.var.ty):
                    wanted = b.ty if isinstance(b, MatchCast) else b.var.ty
                    self.say(f"variable '{b.var.name_hint}' is said to be {wanted}, its value is {found}")
                if isinstance(b, MatchCast):
                    self.symbols |= set(ir.find(b.ty, ir.Var))
                self.bind(b.var)
            if isinstance(b.var, DataflowVar):
                local.add(b.var)
                if not self.dataflow:
                    self.say(f"the dataflow variable '{b.var.name_hint}' is bound outside of a dataflow block")
            self.statement = saved
        self.bound -= local
        self.dataflow = outer

    def bind(self, var: ir.ExprVar) -> None:
        """Introduce a variable."""
        if var in self.ever:
            self.say(f"variable '{var.name_hint}' is bound twice")
        self.ever.add(var)
        self.bound.add(var)
        if var.ty is not None and self.strict:
            self._symbols(var.ty)
        elif var.ty is not None:
            self.symbols |= set(ir.find(var.ty, ir.Var))

    # --- values ---

    def value(self, root: ir.Expr) -> None:
        """Check an expression."""
        stack: list[Any] = [root]
        while stack:
            e = stack.pop()
            if isinstance(e, SeqExpr):
                self.sequence(e)
            elif isinstance(e, ir.Function):
                self.function(e)
            elif isinstance(e, ir.If):
                self._if(e)
            elif isinstance(e, ir.ExprVar):
                self._use(e)
            elif isinstance(e, ir.GlobalVar):
                self._global(e)
            elif isinstance(e, ir.Call):
                self._call(e)
                stack.extend([*reversed(e.args), *reversed(e.ty_args), e.op])
            elif isinstance(e, ir.Tuple):
                stack.extend(reversed(e.fields))
            elif isinstance(e, ir.TupleGetItem):
                self._item(e)
                stack.append(e.tuple_value)
            elif isinstance(e, (ir.Type, ir.PrimExpr)):
                self._symbols(e)
            elif not isinstance(e, ir.Constant):
                stack.extend(_parts(e))

    def _normal(self, value: ir.Expr) -> None:
        """Check that what is bound is one operation on atoms."""
        if not self.strict:
            return
        for operand in operands(value):
            if not is_atom(operand):
                self.say(f"the operand `{operand}` is no variable or constant")
        branches = (value.true_branch, value.false_branch) if isinstance(value, ir.If) else ()
        if not all(isinstance(b, SeqExpr) for b in branches):
            self.say("a branch of an if is no sequence of bindings")

    def _use(self, var: ir.ExprVar) -> None:
        if var not in self.bound:
            if var in self.ever and isinstance(var, DataflowVar):
                self.say(f"the dataflow variable '{var.name_hint}' is used outside of its block")
            else:
                self.say(f"variable '{var.name_hint}' is not bound here")
            self.bound.add(var)  # say it once

    def _global(self, var: ir.GlobalVar) -> None:
        if var not in self.mod and not self.alone:
            self.say(f"the module has no function '{var.name_hint}'")

    def _symbols(self, node: ir.Node) -> None:
        own = {  # the sizes that the type of a function names stand for those of its arguments
            v for f in ir.find(node, ir.FuncType) for p in f.params or () for v in ir.walk(p)
        }
        for n in ir.walk(node):
            if isinstance(n, ir.Var) and n not in self.symbols and n not in own:
                self.say(f"the symbolic variable '{n.name}' is not introduced here")
                self.symbols.add(n)

    def _if(self, node: ir.If) -> None:
        ty = getattr(node.cond, "ty", None)
        scalar_bool = isinstance(ty, ir.TensorType) and (ty.dtype in ("bool", "") and ty.ndim in (0, -1))
        scalar_bool |= isinstance(ty, ir.PrimType) and ty.dtype == "bool"
        if ty is not None and not scalar_bool and type(ty).__name__ != "AnyType":
            self.say(f"the condition of an if is no scalar bool but {ty}")
        if self.dataflow:
            self.say("an if stands in a dataflow block")
        self.value(node.cond)
        for branch in (node.true_branch, node.false_branch):
            bound, symbols = set(self.bound), set(self.symbols)
            self.value(branch)
            self.bound, self.symbols = bound, symbols

    def _call(self, call: ir.Call) -> None:
        if isinstance(call.op, ir.Op):
            rule = ir.op_attr(call.op.name, "FNormalize") if call.op.name[6:] not in CORE_OPS else None
            if rule is not None and rule(None, call) is not call:
                self.say(f"the call of '{call.op.name}' is not as its FNormalize makes it")
            if not call.op.name.startswith("relax."):
                return
        for message in argument_errors(call, self.mod):
            self.say(message)
        pure = is_pure_call(call, self.mod)
        if (self.dataflow or self.pure) and not pure and not _is_bookkeeping(call):
            names = (getattr(call.op, field, None) for field in ("global_symbol", "name_hint", "name"))
            what = next(filter(None, names), "it")
            where = "a dataflow block" if self.dataflow else "a pure function"
            self.say(f"the call of '{what}' may have effects and stands in {where}")

    def _item(self, node: ir.TupleGetItem) -> None:
        ty = getattr(node.tuple_value, "ty", None)
        if isinstance(ty, ir.TupleType) and not 0 <= node.index < len(ty.fields):
            self.say(f"element {node.index} of a tuple of {len(ty.fields)}")


def _parts(e: ir.Node) -> list[ir.Node]:
    """List the nodes in the fields of an expression, all but its type."""
    fields = e.__struct_fields__ if isinstance(e, ir.Expr) else ()
    return [x for f in fields if f != "ty" for x in _nodes(getattr(e, f))]


def _nodes(value: Any) -> list[ir.Node]:
    if isinstance(value, ir.Node):
        return [value]
    return [x for v in value for x in _nodes(v)] if isinstance(value, tuple) else []


def _is_bookkeeping(call: ir.Call) -> bool:
    """Whether a call's effect is on memory that the program does not see."""
    if not isinstance(call.op, ir.Op):
        return False
    name = call.op.name.removeprefix("relax.")
    return name in CORE_OPS and name.startswith(("memory.", "builtin.", "vm.", "call_builtin"))
