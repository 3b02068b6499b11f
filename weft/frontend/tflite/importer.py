"""TFLite models in, Relax out. Quantised tensors are dequantised, computed with and quantised again.

The compiler folds that into integers. Source: the schema of TensorFlow Lite, version 3.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft import ir, registry, relax
from weft.error import ModelImportError, UnsupportedOperator, WeftError, own_errors, require
from weft.frontend.building import DAMAGE, Builder, Refusing, counted, objects
from weft.frontend.complex_arithmetic import Arithmetic, Complex, joined, split
from weft.frontend.dataflow import to_dataflow
from weft.relax.interpreter import evaluate

_DTYPES = """float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource
    variant uint32 uint16 int4 bfloat16""".split()
_SMALL = 4096
"""What is computed from constants of up to this many elements is a constant."""
Custom = Mapping[str, Callable[..., Any]]

CONVERTERS: registry.Registry[Callable[..., Any]] = registry.Registry(once=True)
ON_SIZES: dict[str, Callable[..., Any]] = {}
"""What operators do to arrays of sizes: ``f(node, *arrays)``."""
_BY_PLACES = ("GATHER", "SLICE", "STRIDED_SLICE", "REDUCE_PROD")
"""Operators whose further inputs say where, and not with what."""


@own_errors("importing the model")
def from_tflite(
    model: object,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: Custom | None = None,
) -> ir.IRModule:
    """Import a TFLite model.

    Parameters
    ----------
    model : tflite.Model, bytes, str or os.PathLike
        The model, a file's bytes, or its path.
    shape_dict : mapping of str to sequence of int, optional
        Input shapes in place of the model's, whose open dimensions become variables: the first dimensions of all
        inputs one, ``batch``. In images only that one is open, since windows are counted when a model is imported.
    dtype_dict : mapping of str to str, optional
        What the data types of inputs have to be.
    op_converter : mapping of str to callable, optional
        Converters by operator or custom code, which come before Weft's own: ``converter(node)`` returns an expression.

    Returns
    -------
    IRModule
        One function ``main``, whose parameters are the inputs of the first subgraph; weights are constants. Complex
        inputs and results have a last axis of 2, the real and the imaginary parts.

    Raises
    ------
    MissingDependency
        Without the package ``tflite``, which has the schema.
    UnsupportedOperator
        Listing all operators that the importer lacks.
    ModelImportError
        When the file is malformed or contradicts the arguments.
    """
    schema = require("tflite", extra="tflite")
    try:
        reader = _Reader(schema, _parsed(schema, model), op_converter or {})
        reader.refuse_unsupported()
        return reader.module(shape_dict or {}, dtype_dict or {})
    except (struct.error, *DAMAGE) as e:  # tables are read where they are needed, unchecked before
        raise ModelImportError("a TFLite model is damaged", found=f"{type(e).__name__}: {e}") from e


def _parsed(schema: Any, model: Any) -> Any:
    if isinstance(model, schema.Model):
        return model
    data = Path(model).read_bytes() if isinstance(model, (str, PathLike)) else bytes(model)
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise ModelImportError("this is no TFLite model", expected="the bytes 'TFL3' at 4", found=repr(data[4:8]))
    return schema.Model.GetRootAsModel(bytearray(data), 0)


class _Reader(Arithmetic, Builder):
    """The state of one import: the file's tables, and values by tensor number."""

    def __init__(self, schema: Any, model: Any, custom: Custom) -> None:
        super().__init__()
        self.schema, self.model, self.custom = schema, model, custom
        self.names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
        self.given_shapes = False
        self.origins: dict[ir.Expr, Node] = {}
        self.open: dict[str, ir.Var] = {}

    def operator(self, op: Any) -> str:
        """The name of an operator, or of a custom one."""
        code = self.model.OperatorCodes(op.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = self.names.get(number, f"number {number}")
        return code.CustomCode().decode() if name == "CUSTOM" else name

    def refuse_unsupported(self) -> None:
        """Refuse a model with operators that have no converter, naming all."""
        missing: dict[str, list[str]] = {}
        for s in range(self.model.SubgraphsLength()):
            graph = self.model.Subgraphs(s)
            for i in range(graph.OperatorsLength()):
                name = self.operator(graph.Operators(i))
                if name not in CONVERTERS and name not in self.custom:
                    missing.setdefault(name, []).append(f"operator {i} of subgraph {s}")
        if missing:
            what = f"operators of TFLite have no converter: {counted(missing)}"
            raise UnsupportedOperator(what, help="give one by op_converter")

    def module(self, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]) -> ir.IRModule:
        """The module with the first subgraph as ``main``."""
        if not self.model.SubgraphsLength():
            raise ModelImportError("the model has no subgraph")
        graph = self.model.Subgraphs(0)
        inputs = [Tensor(self, graph, int(i)) for i in graph.InputsAsNumpy()] if graph.InputsLength() else []
        names = [t.name for t in inputs]
        if unknown := ", ".join(sorted({*shapes, *dtypes}.difference(names))):
            raise ModelImportError("an input is not in the model", expected=", ".join(names), found=unknown)
        shapes = {t.name: list(shapes[t.name]) if t.name in shapes else self.opened(t) for t in inputs}
        self.given_shapes = any(shapes[t.name] != t.shape for t in inputs)
        params = []
        for t in inputs:
            if dtypes.get(t.name, t.dtype) != t.dtype:
                raise ModelImportError(
                    f"input '{t.name}' has another data type", expected=t.dtype, found=dtypes[t.name]
                )
            hint = "".join(c if c.isascii() and c.isalnum() else "_" for c in t.name).lstrip("0123456789_") or "x"
            shape, dtype = ([*shapes[t.name], 2], "float32") if t.is_complex else (shapes[t.name], t.dtype)
            params.append(relax.Var(self.bb.fresh_name(hint), ir.tensor_type(shape, dtype)))
        with self.bb.function("main", params):
            args = [split(self.bb, x) if t.is_complex else x for x, t in zip(params, inputs, strict=True)]
            found = [joined(self.bb, x) if isinstance(x, Complex) else x for x in self.run(0, args)]
            self.bb.emit_func_output(self.emit(found[0] if len(found) == 1 else ir.Tuple(tuple(found))))
        mod = self.bb.get()
        mod.update_func(mod.get_global_var("main"), to_dataflow(mod["main"]))
        return mod

    def opened(self, tensor: Tensor) -> list[Any]:
        """An input's shape with variables for what the file leaves open."""
        names = ["batch", *(f"{tensor.name}_{i}" for i in range(1, len(tensor.shape)))]
        for i, n in enumerate(tensor.signature):
            if n == -1 and (i == 0 or len(tensor.shape) != 4) and names[i] not in self.open:
                self.open[names[i]] = ir.SizeVar(names[i], "int64")
        return [
            self.open.get(name, n) if tensor.signature[i : i + 1] == [-1] else n
            for i, (name, n) in enumerate(zip(names, tensor.shape, strict=False))
        ]

    def quotient(self, dims: Sequence[Any], known: Sequence[Any]) -> Any:
        """What follows for one dimension of as many elements from the others."""
        whole: Any = math.prod(dims)
        rest: Any = math.prod(known)
        if isinstance(whole, int) and isinstance(rest, int):
            return whole // max(rest, 1)
        return self.simplified(whole // rest)

    def run(self, number: int, args: Sequence[Any]) -> list[Any]:
        """Convert a subgraph for some arguments."""
        graph = self.model.Subgraphs(number)
        values = dict(zip(map(int, graph.InputsAsNumpy()) if graph.InputsLength() else (), args, strict=True))
        outer, self.sizes = self.sizes, dict(self.sizes)  # what is counted inside is bound there only
        for i in range(graph.OperatorsLength()):
            op = graph.Operators(i)
            node = Node(self, graph, op, values, f"operator {i} of subgraph {number} ({self.operator(op)})")
            self.bb.span = ir.Span(origin="TFLite " + node.where)
            for out, x in zip(node.outputs, self.converted(node), strict=True):
                values[out.number] = x = self.checked(node, out, x)
                if node.name in ON_SIZES and len(node.outputs) == 1:
                    self.origins[x] = node
        self.sizes = outer
        return [self.value(graph, int(i), values) for i in graph.OutputsAsNumpy()]

    def numbers(self, x: ir.Expr) -> np.ndarray:
        """A tensor of integers as numbers and expressions; those that are data are read when the program runs."""
        if isinstance(x, ir.Constant):
            return x.data.numpy().astype(object)
        if x not in self.sizes:
            node = self.origins.get(x)
            if node is None or (node.name in _BY_PLACES and not all(map(node.is_constant, range(1, len(node.inputs))))):
                self.sizes[x] = objects(self.counted(x), self.dims(x))
            else:
                parts = [self.numbers(node.x(i)) for i, t in enumerate(node.inputs) if t is not None]
                self.sizes[x] = np.asarray(ON_SIZES[node.name](node, *parts), object)
        return self.sizes[x]

    def value(self, graph: Any, number: int, values: dict[int, Any]) -> Any:
        """The expression of a tensor; a constant's is its data."""
        if number not in values:
            tensor = Tensor(self, graph, number)
            data = tensor.data
            if data is None:
                raise ModelImportError(f"tensor '{tensor.name}' has no value", expected="data, or an earlier operator")
            parts = [ir.constant(np.array(f(data))) for f in (np.real, np.imag)] if tensor.is_complex else []
            values[number] = Complex(*parts) if parts else ir.constant(data)
        return values[number]

    def converted(self, node: Node) -> list[Any]:
        """Convert an operator; what depends on small constants alone is computed."""
        try:
            convert = self.custom.get(node.name) or CONVERTERS[node.name]
            known = node.inputs and all(map(node.is_constant, range(len(node.inputs))))
            sizes = None if known or node.name in self.custom else computed(node)
            if sizes is not None:
                found = [self.sized(n, t.dtype) for n, t in zip(sizes, node.outputs, strict=True)]
            elif not known or sum(int(np.prod(t.shape)) for t in node.outputs) > _SMALL:
                found = convert(node)
            else:
                outer, self.bb = self.bb, relax.BlockBuilder()
                try:
                    with self.bb.function("main", []):
                        made = convert(node)
                        made = made if isinstance(made, (list, tuple)) else [made]
                        self.bb.emit_func_output(self.emit(ir.Tuple(tuple(made))))
                    found = [ir.constant(np.array(a)) for a in evaluate(self.bb.get())]
                finally:
                    self.bb = outer
        except WeftError as e:
            where = e.where or f"TFLite {node.where}"
            if isinstance(e, ModelImportError):
                e.where = where
                raise
            raise ModelImportError(e.what, where=where, expected=e.expected, found=e.found, help=e.help) from e
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def checked(self, node: Node, out: Tensor, x: Any) -> Any:
        """Bind a result, which must have the type that the model says it has."""
        x = x if isinstance(x, (ir.ExprVar, ir.Constant, Complex)) else self.emit(x)
        same = self.given_shapes or self.dims(x) == out.shape or out.is_open
        dtype = "complex64" if isinstance(x, Complex) else x.ty.dtype
        if dtype != out.dtype or not same:
            found = f"{self.dims(x)} {dtype}"
            raise ModelImportError(
                "an operator's result is not what the model says",
                where=f"TFLite {node.where}",
                expected=f"{out.shape} {out.dtype}",
                found=found,
            )
        return x


def computed(node: Node) -> list[np.ndarray] | None:
    """The results of an operator on open sizes; nothing where it is on other data."""
    inputs = [node.x(i) for i, t in enumerate(node.inputs) if t is not None]
    arrays = node.reader.sizes_of(inputs) if node.name in ON_SIZES else None
    if arrays is None:
        return None
    found = ON_SIZES[node.name](node, *arrays)
    found = found if isinstance(found, list) else [found]
    return [n if isinstance(n, np.ndarray) else objects([n], ()) for n in found]


class Tensor:
    """A tensor of a subgraph: its type, data and quantisation."""

    def __init__(self, reader: _Reader, graph: Any, number: int) -> None:
        self.number, self.table = number, graph.Tensors(number)
        self.model = reader.model
        self.name = (self.table.Name() or b"").decode()
        self.shape: list[int] = [int(d) for d in self.table.ShapeAsNumpy()] if self.table.ShapeLength() else []
        self.signature = (
            [int(d) for d in self.table.ShapeSignatureAsNumpy()] if self.table.ShapeSignatureLength() else []
        )
        self.is_open = -1 in self.signature
        self.dtype = _DTYPES[self.table.Type()] if self.table.Type() < len(_DTYPES) else str(self.table.Type())
        self.is_complex = self.dtype == "complex64"
        if self.dtype in ("string", "complex128", "resource", "variant"):
            raise UnsupportedOperator(
                f"tensor '{self.name}' has an element type that is not supported", found=self.dtype
            )
        if self.table.Sparsity() is not None:
            raise UnsupportedOperator(f"tensor '{self.name}' is sparse", expected="dense tensors")
        q = self.table.Quantization()
        self.scale = self.zero = None
        self.axis = 0
        if q is not None and q.ScaleLength() and not self.dtype.startswith(("float", "bool")):
            self.scale = q.ScaleAsNumpy().astype(np.float32)
            zero = q.ZeroPointAsNumpy() if q.ZeroPointLength() else np.zeros(1)
            self.zero = np.broadcast_to(zero, self.scale.shape).astype(ir.numpy_dtype(self.dtype))
            self.axis = q.QuantizedDimension()

    @property
    def data(self) -> np.ndarray | None:
        """The constant's data, or None."""
        buffer = self.model.Buffers(self.table.Buffer())
        count = int(np.prod(self.shape))
        if buffer is not None and buffer.Offset() > 1:  # data of large models lie behind the table
            raw = np.frombuffer(buffer._tab.Bytes, np.uint8)[buffer.Offset() :][: buffer.Size()]
        elif buffer is None or not buffer.DataLength():
            return np.zeros(self.shape, ir.numpy_dtype(self.dtype)) if count == 0 or self.table.IsVariable() else None
        else:
            raw = buffer.DataAsNumpy()
        if self.dtype == "int4":  # two to a byte, the lower bits first
            pairs = np.stack([raw << 4, raw & 0xF0], -1).view(np.int8) >> 4
            return pairs.reshape(-1)[:count].reshape(self.shape).astype(ir.numpy_dtype("int4"))
        dtype = ir.numpy_dtype(self.dtype)
        if raw.nbytes != count * dtype.itemsize:
            raise ModelImportError(
                f"tensor '{self.name}' has a wrong amount of data",
                expected=f"{count * dtype.itemsize} bytes",
                found=f"{raw.nbytes}",
            )
        return np.frombuffer(raw.tobytes(), dtype).reshape(self.shape)

    def same_numbers(self, other: Tensor) -> bool:
        """Whether equal integers mean equal numbers in both."""
        if self.scale is None or other.scale is None or self.zero is None or other.zero is None:
            return self.scale is other.scale is None
        return bool(np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero))


class Node(Refusing):
    """One operator as its converter sees it: operands, options, and what to build with."""

    def __init__(self, reader: _Reader, graph: Any, op: Any, values: dict[int, Any], where: str) -> None:
        self.reader, self.graph, self.table, self.values, self.where = reader, graph, op, values, where
        self.name = reader.operator(op)
        self.op, self.dims = reader.op, reader.dims
        numbers = op.InputsAsNumpy() if op.InputsLength() else ()
        self.inputs = [Tensor(reader, graph, int(i)) if i >= 0 else None for i in numbers]
        self.outputs = [Tensor(reader, graph, int(i)) for i in op.OutputsAsNumpy()]

    def option(self, table: str, name: str, default: Any = 0) -> Any:
        """An option by its table and name, or the default where the operator has none."""
        raw = self.table.BuiltinOptions() or self.table.BuiltinOptions2()
        if raw is None:
            return default
        options = getattr(self.reader.schema, table)()
        options.Init(raw.Bytes, raw.Pos)
        return getattr(options, name)()

    def has(self, i: int) -> bool:
        """Whether input `i` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def is_constant(self, i: int) -> bool:
        """Whether input `i` is known, or not given."""
        return not self.has(i) or isinstance(self.x(i), ir.Constant)

    def x(self, i: int = 0) -> Any:
        """Input `i` as it is stored."""
        if not self.has(i):
            self.error(f"input {i} is missing", expected=f"at least {i + 1} inputs", found=str(len(self.inputs)))
        return self.reader.value(self.graph, self.inputs[i].number, self.values)  # type: ignore[union-attr]

    def const(self, i: int) -> np.ndarray:
        """The data of input `i`, which must be known."""
        x = self.x(i)
        if not isinstance(x, ir.Constant):
            self.unsupported(f"input {i} is known only when the model runs", expected="a constant")
        return x.data.numpy()

    def ints(self, i: int) -> list[Any]:
        """The numbers of input `i`; those that follow from open dimensions, or are data, are expressions."""
        return [self.reader.simplified(n) for n in self.reader.numbers(self.x(i)).reshape(-1).tolist()]

    def real(self, i: int = 0, order: Sequence[int] | None = None) -> Any:
        """Input `i` as floats, a constant's dimensions in another order."""
        x, tensor = self.x(i), self.inputs[i]
        assert tensor is not None
        if order is not None and isinstance(x, ir.Constant):
            x = ir.constant(np.ascontiguousarray(x.data.numpy().transpose(order)))
        elif order is not None:
            x = self.reader.permute(x, order)
        if tensor.scale is None or tensor.zero is None:
            return self.reader.astype(x, "float32") if tensor.dtype == "float16" else x
        axis = tensor.axis if order is None else list(order).index(tensor.axis)
        single = tensor.scale.size == 1
        scale, zero = (ir.constant(np.array(v.reshape(-1)[0]) if single else v) for v in (tensor.scale, tensor.zero))
        return self.op("dequantize", x, scale, zero, axis=0 if single else axis)

    def result(self, x: Any, i: int = 0) -> Any:
        """Numbers as result `i` stores them."""
        out = self.outputs[i]
        if out.scale is None or out.zero is None or not x.ty.dtype.startswith("float"):
            return x if x.ty.dtype == out.dtype or out.dtype == "bool" else self.reader.astype(x, out.dtype)
        scale, zero = (ir.constant(np.array(v.reshape(-1)[0])) for v in (out.scale, out.zero))
        return self.op("quantize", x, scale, zero, axis=0, out_dtype=out.dtype)

    def moved(self, *numbers: int) -> list[Any]:
        """Inputs whose elements only change places: as they are stored, where the result means the same by them."""
        if all(self.inputs[i].same_numbers(self.outputs[0]) for i in numbers):  # type: ignore[union-attr]
            return [self.x(i) for i in numbers]
        return [self.result(self.real(i)) for i in numbers]

    def activated(self, x: Any, table: str) -> Any:
        """Apply the activation that is fused with an operator."""
        kind = self.option(table, "FusedActivationFunction")
        if kind not in _FUSED:
            self.unsupported(
                "an unknown fused activation", expected="none, relu, relu6, relu_n1_to_1, tanh", found=str(kind)
            )
        name, limits = _FUSED[kind]
        return x if not name else self.op(name, x, **limits)


_FUSED: dict[int, tuple[str, dict[str, float]]] = {
    0: ("", {}),
    1: ("nn.relu", {}),
    2: ("clip", {"min": -1.0, "max": 1.0}),
    3: ("clip", {"min": 0.0, "max": 6.0}),
    4: ("tanh", {}),
}
