"""The meaning of Relax: an interpreter of every form of a program, from the importer's to the planned one.

Operators are what their declarations' `reference` computes, in NumPy; kernels (``call_tir``, and calls of TIR functions
behind CallTIRRewrite) are what somebody runs for the interpreter, by default their TIR compiled without a schedule.
Every value is compared with its type. Nothing of the virtual machine takes part, so that it, the passes and the
schedules can be judged by this (``weft check``).
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from weft import error, ffi, ir, op, runtime, tir
from weft.op.relations import Relation, refused, size_relation
from weft.relax.core_ops import CORE_OPS, bounds_of
from weft.relax.expr import MatchCast, SeqExpr
from weft.runtime.host import HOST_FUNCTION, Kind, Texts, call_host, from_machine, known_texts, to_machine
from weft.target import build as build_kernels
from weft.tir.interpret import evaluate as evaluate_scalar

Kernels = Callable[[str, tir.PrimFunc, Sequence[Any]], None]
"""Runs a TIR function of a name on arrays and numbers; what it writes, it writes in place."""
Watcher = Callable[[Any, Any], None]
"""Gets each binding and its value."""
_UNWRITTEN = 0xFF
"""What fresh memory is full of: not a number as a float, -1 as an integer."""


class MachineOnly(error.EvaluationError):
    """A program has what only the virtual machine, or compiled code, can run."""


class UnscheduledKernels:
    """Kernels as their loops are written, each compiled when it is first run."""

    def __init__(self, target: Any = "llvm") -> None:
        self._target = target
        self._built: dict[tir.PrimFunc, Any] = {}

    def __call__(self, name: str, func: tir.PrimFunc, args: Sequence[Any]) -> None:
        """Run a kernel."""
        if func not in self._built:
            module = build_kernels(ir.IRModule({name: func.with_attr("global_symbol", name)}), self._target)
            self._built[func] = module[name]
        self._built[func](*args)


class _Frame:
    """Values of the variables of one call, and of the dimensions that are known there."""

    def __init__(self, outer: _Frame | None = None) -> None:
        self.values: ChainMap[Any, Any] = ChainMap({}, *(outer.values.maps if outer is not None else ()))
        self.dims: dict[Any, Any] = dict(outer.dims) if outer is not None else {}


class _Closure:
    """A function as a value."""

    def __init__(self, func: Any, frame: _Frame | None, given: tuple[Any, ...] = ()) -> None:
        self.func, self.frame, self.given = func, frame, given


class Interpreter:
    """Runs functions of a module on NumPy arrays.

    Parameters
    ----------
    mod : IRModule
        Relax functions, and TIR functions that they call.
    kernels : callable, optional
        ``kernels(name, func, args)`` runs a TIR function.
    watch : callable, optional
        ``watch(binding, value)``, called for each binding of the function that is run, not of those that it calls.
    """

    def __init__(self, mod: ir.IRModule, kernels: Kernels | None = None, watch: Watcher | None = None) -> None:
        self.mod, self.watch = mod, watch
        self.kernels: Kernels = kernels if kernels is not None else UnscheduledKernels()
        self._depth = 0
        self.place: Any = None

    def run(self, name: str, *args: Any) -> Any:
        """Return the result of a function: an array, a number, or a tuple.

        Raises
        ------
        EvaluationError
            When a value is not of its type, or there is something that only the virtual machine can run.
        """
        func: Any = self.mod[name]
        params = [_array(c.data) for c in func.attrs.get("params", ())]
        return self.call(_Closure(func, None), [*args, *params])

    def call(self, function: _Closure, args: Sequence[Any]) -> Any:
        """Call a function that is a value."""
        frame = _Frame(function.frame)
        given = [*args, *function.given]
        if len(given) != len(function.func.params):
            raise error.EvaluationError(
                "wrong number of arguments", expected=str(len(function.func.params)), found=str(len(given))
            )
        for p, a in zip(function.func.params, given, strict=True):
            frame.values[p] = a
            _name_dims(a, p.ty, frame)
        for p, a in zip(function.func.params, given, strict=True):
            _check_type(a, p.ty, frame, p.name_hint)
        self._depth += 1
        try:
            return self.eval(function.func.body, frame)
        finally:
            self._depth -= 1

    def eval(self, e: Any, frame: _Frame) -> Any:
        """Evaluate an expression."""
        return _EXPR(e, self, frame)

    def run_kernel(self, callee: Any, args: Sequence[Any]) -> None:
        """Run a TIR function of the module, or a packed function, that writes its results."""
        if isinstance(callee, ir.ExternFunc):
            found: Any = ffi.get_global_func(callee.global_symbol)
            found(*args)
            return
        func = self.mod[callee]
        assert isinstance(func, tir.PrimFunc)
        self.kernels(str(func.attrs.get("global_symbol") or callee.name_hint), func, args)

    def fresh(self, ty: Any, frame: _Frame) -> np.ndarray:
        """Allocate memory for a tensor of a type."""
        dims = tuple(int(evaluate_scalar(d, frame.dims)) for d in ty.shape)
        return _fresh(dims, ty.dtype)


def evaluate(mod: ir.IRModule, *args: Any) -> list[Any]:
    """Run ``main`` of a module on arrays; a list of its results, however many."""
    main: Any = mod["main"]
    about = json.loads(str(main.attrs.get("weft.io", "{}")))
    if "inputs" not in about:
        out = Interpreter(mod).run("main", *map(np.asarray, args))
        return list(out) if isinstance(out, tuple) else [out]
    ins, outs = ([Kind.from_json(d["kind"]) if "kind" in d else None for d in about[k]] for k in ("inputs", "outputs"))
    with known_texts(Texts(about.get("texts", ()))):
        given = [np.asarray(a) if k is None else to_machine(a, k) for a, k in zip(args, ins, strict=True)]
        out = Interpreter(mod).run("main", *given)
        results = out if isinstance(out, tuple) else (out,)
        return [r if k is None else from_machine(r, k) for r, k in zip(results, outs, strict=True)]


def _fresh(dims: Sequence[int], dtype: str) -> np.ndarray:
    kind = ir.numpy_dtype(dtype)
    memory = runtime.aligned(np.full(prod(dims) * kind.itemsize, _UNWRITTEN, np.uint8))
    return memory.view(kind).reshape(dims)


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _name_dims(value: Any, ty: Any, frame: _Frame) -> None:
    """Give the variables among a tensor's dimensions their values: an argument before it may compute with them."""
    if isinstance(ty, ir.TensorType) and ty.shape is not None and isinstance(value, np.ndarray):
        for n, d in zip(value.shape, ty.shape, strict=False):
            if isinstance(d, ir.Var):
                frame.dims.setdefault(d, np.int64(n))


def _check_type(value: Any, ty: Any, frame: _Frame, what: str) -> None:
    """Compare a value with a type, binding dimensions that are new."""
    if isinstance(ty, ir.TensorType):
        if not isinstance(value, np.ndarray):
            raise error.EvaluationError(f"{what} is no tensor", expected=str(ty), found=type(value).__name__)
        if ty.dtype and value.dtype.name != ty.dtype:
            raise error.EvaluationError(
                f"{what} has another dtype than its type says", expected=ty.dtype, found=value.dtype.name
            )
        if ty.shape is not None:
            _check_dims(value.shape, ty.shape, frame, what)
    elif isinstance(ty, ir.ShapeType) and ty.values is not None:
        _check_dims(value, ty.values, frame, what)
    elif isinstance(ty, ir.TupleType) and isinstance(value, tuple):
        for v, t in zip(value, ty.fields, strict=True):
            _check_type(v, t, frame, what)


def _check_relation(r: Relation, frame: _Frame) -> None:
    """Compare what a relation between operands, or of a size, found with what it expects, and refuse as machines do."""
    expected = ir.int64(int(evaluate_scalar(r.expected, frame.dims)))
    if ir.as_int(r.found) != expected.value:
        raise refused(replace(r, expected=expected))


def _check_dims(actual: Sequence[int], dims: Sequence[Any], frame: _Frame, what: str) -> None:
    right = len(actual) == len(dims)
    for a, d in zip(actual, dims, strict=False):
        if isinstance(d, ir.Var) and d not in frame.dims:
            frame.dims[d] = np.int64(a)
            if isinstance(d, ir.SizeVar):
                _check_relation(size_relation(ir.int64(a), what), frame)
        right = right and int(evaluate_scalar(d, frame.dims)) == a
    if not right:
        shown = ", ".join(map(str, dims))
        raise error.EvaluationError(
            f"a dimension of {what} is not what its type says", expected=f"({shown})", found=str(tuple(actual))
        )


# ---- expressions -----------------------------------------------------------------------------------------------------

# Functions of other levels are called where they are named, and are no values.
_EXPR = ir.Dispatch("interpret Relax", (ir.Expr,), leaves_out=(ir.ExternFunc, tir.PrimFunc))


@_EXPR.on(SeqExpr)
def _sequence(e: SeqExpr, run: Interpreter, frame: _Frame) -> Any:
    for block in e.blocks:
        for b in block.bindings:
            binding: Any = b
            run.place = binding.span
            value = run.eval(binding.value, frame)
            where = f"{binding.var.name_hint}" + (f" at {binding.span}" if binding.span is not None else "")
            if isinstance(b, MatchCast) and b.span is not None and b.span.check:
                kind, what = b.span.check
                for n, d in zip(value, binding.ty.values, strict=True):
                    _check_relation(Relation(what, ir.int64(n), d, b.span.origin, kind), frame)
            _check_type(value, binding.ty if isinstance(b, MatchCast) else binding.var.ty, frame, where)
            frame.values[binding.var] = value
            if run.watch is not None and run._depth == 1:
                run.watch(binding, value)
    return run.eval(e.body, frame)


@_EXPR.on(ir.ExprVar)
def _variable(e: ir.ExprVar, run: Interpreter, frame: _Frame) -> Any:
    if e not in frame.values:
        raise error.EvaluationError(f"'{e.name_hint}' is used where it has no value, or no more")
    return frame.values[e]


@_EXPR.on(ir.Constant)
def _constant(e: ir.Constant, run: Interpreter, frame: _Frame) -> Any:
    return _array(e.data)


@_EXPR.on(ir.ShapeExpr)
def _shape(e: ir.ShapeExpr, run: Interpreter, frame: _Frame) -> Any:
    return tuple(int(evaluate_scalar(d, frame.dims)) for d in e.values)


@_EXPR.on(ir.PrimValue)
def _prim(e: ir.PrimValue, run: Interpreter, frame: _Frame) -> Any:
    return evaluate_scalar(e.value, frame.dims)[()].item()


@_EXPR.on(ir.ExprStringImm, ir.DataTypeImm)
def _text(e: Any, run: Interpreter, frame: _Frame) -> Any:
    return e.value


@_EXPR.on(ir.Tuple)
def _tuple(e: ir.Tuple, run: Interpreter, frame: _Frame) -> Any:
    return tuple(run.eval(f, frame) for f in e.fields)


@_EXPR.on(ir.TupleGetItem)
def _field(e: ir.TupleGetItem, run: Interpreter, frame: _Frame) -> Any:
    return run.eval(e.tuple_value, frame)[e.index]


@_EXPR.on(ir.If)
def _if(e: ir.If, run: Interpreter, frame: _Frame) -> Any:
    return run.eval(e.true_branch if bool(run.eval(e.cond, frame)) else e.false_branch, frame)


@_EXPR.on(ir.Function)
def _function(e: ir.Function, run: Interpreter, frame: _Frame) -> Any:
    return _Closure(e, frame)


@_EXPR.on(ir.GlobalVar)
def _global(e: ir.GlobalVar, run: Interpreter, frame: _Frame) -> Any:
    return _Closure(run.mod[e], None)


@_EXPR.on(ir.Call)
def _call(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    if not isinstance(e.op, ir.Op):
        return _call_function(e, run, frame)
    try:
        return _call_operator(e, e.op, run, frame)
    except error.WeftError:
        raise
    except (ValueError, LookupError, ArithmeticError, MemoryError) as wrong:
        kind = error.OutOfMemory if isinstance(wrong, MemoryError) else error.InvalidArgument
        with np.printoptions(threshold=8, edgeitems=1):
            found = ", ".join(str(frame.values.get(a, a)) for a in e.args)
        where = getattr(run.place, "origin", None) or run.place
        raise kind(f"{e.op.name}: {wrong}", expected=f"a result of {e.ty}", found=found, where=where) from wrong


def _call_operator(e: ir.Call, operator: ir.Op, run: Interpreter, frame: _Frame) -> Any:
    name = operator.name.removeprefix("relax.")
    if name in _CORE:
        return _CORE[name](e, run, frame)
    if name in CORE_OPS:
        return _on_values(name, [run.eval(a, frame) for a in e.args], run)
    definition = op.get_op_def(operator)
    attrs = {k: _attribute(v, frame) for k, v in e.attrs.items}
    if definition.reference is None:
        simpler = definition.decompose(*e.args, **attrs) if definition.decompose is not None else None
        if simpler is None:
            raise MachineOnly(f"operator '{name}' has no reference, so that only compiled code can run it")
        return run.eval(simpler, frame)
    args = [run.eval(a, frame) for a in e.args]
    with np.errstate(all="ignore"):
        out = definition.reference(*args, **attrs)
    return tuple(map(np.asarray, out)) if isinstance(e.ty, ir.TupleType) else np.asarray(out)


def _on_values(name: str, args: Sequence[Any], run: Interpreter) -> Any:
    rule = _ON_VALUES.get(name.replace("invoke_pure", "invoke"))
    if rule is None:
        raise MachineOnly(f"'relax.{name}' is for the virtual machine")
    at = _SPREAD.get(name)
    return rule(run, *args) if at is None else rule(run, *args[:at], *args[at])


def _call_function(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    args = [run.eval(a, frame) for a in e.args]
    if isinstance(e.op, ir.ExternFunc):
        return _packed(e.op, args, run)
    if isinstance(e.op, ir.GlobalVar) and isinstance(run.mod[e.op], tir.PrimFunc):
        run.run_kernel(e.op, args)
        return ()
    return run.call(run.eval(e.op, frame), args)


def _packed(function: ir.ExternFunc, args: Sequence[Any], run: Interpreter) -> Any:
    name = function.global_symbol
    if name == HOST_FUNCTION:
        found = call_host(args[0], args[1:])
        return found[0] if len(found) == 1 else found
    rule = _ON_VALUES.get(name.removeprefix("vm.builtin."))
    if rule is not None:
        return rule(run, *args)
    if name.startswith("vm.builtin."):
        raise MachineOnly(f"'{name}' is a function of the virtual machine's own")
    packed: Any = ffi.get_global_func(name)
    out = packed(*args)
    return _array(out) if hasattr(out, "numpy") else out


def _attribute(value: Any, frame: _Frame) -> Any:
    if isinstance(value, ir.PrimExpr):
        return evaluate_scalar(value, frame.dims)[()].item()
    return tuple(_attribute(x, frame) for x in value) if isinstance(value, tuple) else value


# ---- operators of the language itself --------------------------------------------------------------------------------


def _call_tir(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    """Results are fresh, or copies of the arguments that they overwrite: values never change."""
    callee, args = e.args[0], list(run.eval(e.args[1], frame))
    (ty,) = e.ty_args
    types = ty.fields if isinstance(ty, ir.TupleType) else (ty,)
    places = e.attrs.get("inplace_indices") or ()
    outs: list[Any] = []
    fresh: list[Any] = []
    for i, t in enumerate(types):
        place = places[i] if i < len(places) else -1
        if place >= 0:
            args[place] = args[place].copy()
            outs.append(args[place])
        else:
            outs.append(run.fresh(t, frame))
            fresh.append(outs[-1])
    scalars = run.eval(e.args[2], frame) if len(e.args) > 2 else ()
    run.run_kernel(callee, [*(runtime.aligned(a) if isinstance(a, np.ndarray) else a for a in args), *fresh, *scalars])
    return tuple(outs) if isinstance(ty, ir.TupleType) else outs[0]


def _kill(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    """Forget a value: who uses it later reads what is not there any more."""
    frame.values.pop(e.args[0], None)
    return ()


def _call_packed(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    function: Any = e.args[0]
    return _packed(function, [run.eval(a, frame) for a in e.args[1:]], run)


def _call_builtin(e: ir.Call, run: Interpreter, frame: _Frame) -> Any:
    function: Any = e.args[0]
    return _packed(function, run.eval(e.args[1], frame), run)


_CORE: dict[str, Callable[[ir.Call, Interpreter, _Frame], Any]] = {
    "call_tir": _call_tir,
    "call_tir_inplace": _call_tir,
    "call_dps_packed": _call_tir,
    "call_pure_packed": _call_packed,
    "call_builtin": _call_builtin,
    "call_builtin_with_ctx": _call_builtin,
    "memory.kill_storage": _kill,
    "memory.kill_tensor": _kill,
    "vm.kill_object": _kill,
}


# ---- functions of the language, and of the machine, whose arguments are values ---------------------------------------


def _slice(run: Interpreter, x: Any, *bounds: Any) -> Any:
    begin, end, strides = (tuple(map(int, b)) for b in bounds)
    reference: Any = op.get_op_def("strided_slice").reference
    return reference(x, axes=tuple(range(x.ndim)), begin=begin, end=end, strides=strides)


def _assert(run: Interpreter, condition: Any, *_: object) -> Any:
    if not bool(condition):
        raise error.EvaluationError("an assertion of the program fails")
    return ()


def _storage(run: Interpreter, size: tuple[int, ...], device: int, dtype: str, scope: str) -> Any:
    return _fresh((prod(size) * ir.numpy_dtype(dtype).itemsize,), "uint8")


def _storage_tensor(run: Interpreter, storage: Any, offset: int, shape: tuple[int, ...], dtype: str, *_: object) -> Any:
    kind = ir.numpy_dtype(dtype)
    return storage[offset : offset + prod(shape) * kind.itemsize].view(kind).reshape(shape)


def _view(run: Interpreter, x: Any, shape: Any, dtype: Any, offset: Any) -> Any:
    """See an array's bytes as another one; nothing is said by an empty tuple or text."""
    kind = ir.numpy_dtype(str(x.dtype if dtype in ((), "") else dtype))
    dims = x.shape if shape in ((), "") else tuple(shape)
    start = 0 if offset in ((), "") else int(offset)
    data = np.ascontiguousarray(x).reshape(-1).view("uint8")
    return data[start : start + prod(dims) * kind.itemsize].view(kind).reshape(dims)


def _through_runtime(name: str) -> Callable[..., Any]:
    """Make the meaning of an operator of the machine's function for it."""

    def compute(run: Interpreter, x: Any, *rest: Any) -> Any:
        function: Any = ffi.get_global_func(name)
        found = function(runtime.tensor(np.ascontiguousarray(x)), *rest)
        return tuple(f.numpy() for f in found) if isinstance(found, tuple) else found.numpy()

    return compute


_STAYING = "to_vdevice hint_on_device copy builtin.stop_lift_params memory.ensure_zero_offset"
_ON_VALUES: dict[str, Callable[..., Any]] = {
    "shape_of": lambda run, x: tuple(x.shape),
    "tensor_to_shape": lambda run, x: tuple(int(v) for v in x),
    "shape_to_tensor": lambda run, shape: np.array(shape, np.int64),
    "index_bounds": lambda run, x, places: bounds_of(x, places),
    "dynamic_strided_slice": _slice,
    **dict.fromkeys(("assert_op", "weft.run.assert_op"), _assert),
    **dict.fromkeys(("print", "weft.run.print"), lambda run, *_: ()),
    "null_value": lambda run: None,
    **dict.fromkeys(_STAYING.split(), lambda run, x: x),
    **dict.fromkeys(("to_device", "fresh_tensor"), lambda run, x, *_: x.copy()),
    **dict.fromkeys(("view", "memory.view", "weft.run.view"), _view),
    **dict.fromkeys(("unique", "weft.run.unique"), _through_runtime("weft.run.unique")),
    **dict.fromkeys(("nonzero", "weft.run.nonzero"), _through_runtime("weft.run.nonzero")),
    "append": lambda run, rows, row, *_: np.concatenate([rows, row[None]]) if len(rows) else row[None],
    "reshape": lambda run, x, shape: x.reshape(shape),
    "make_tuple": lambda run, *fields: fields,
    "tuple_getitem": lambda run, values, index: values[index],
    "make_closure": lambda run, f, *captured: _Closure(f.func, f.frame, (*f.given, *captured)),
    "invoke_closure": lambda run, f, *args: run.call(f, args),
    "builtin.alloc_tensor": lambda run, shape, dtype, *_: _fresh(shape, dtype),
    "memory.alloc_storage": lambda run, size, device, scope, dtype: _storage(run, size, device, dtype, scope),
    **dict.fromkeys(("alloc_storage", "vm.alloc_storage"), _storage),
    **dict.fromkeys(("alloc_tensor", "vm.alloc_tensor", "memory.alloc_tensor"), _storage_tensor),
}
"""By the names of operators and, less ``vm.builtin.``, of the machine's functions."""
_SPREAD = {"make_closure": 1, "invoke_closure": 1, "invoke_pure_closure": 1}
"""Operators whose argument at a place is a tuple that their function takes spread."""
