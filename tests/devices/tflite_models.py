"""TFLite files written with the schema's builders, and their comparison with TFLite's own runtime, for tests."""

from typing import Any

import numpy as np
import pytest

from tests.arrays import floats
from weft import environment
from weft.frontend.tflite import from_tflite
from weft.relax.interpreter import evaluate

if environment.DEVICES.read() == "1":
    import flatbuffers
    import tflite
    from ai_edge_litert import interpreter as litert
else:
    tflite = pytest.importorskip("tflite")
    flatbuffers = pytest.importorskip("flatbuffers")
    litert = pytest.importorskip("ai_edge_litert.interpreter")

TYPES = dict(float32=0, float16=1, int32=2, uint8=3, int64=4, bool=6, int16=7, complex64=8, int8=9)


class Subgraph:
    """Tensors and operators; the first subgraph of a model is what it runs."""

    def __init__(self) -> None:
        self.tensors: list[tuple[Any, ...]] = []
        self.operators: list[tuple[Any, ...]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def tensor(self, shape: Any, dtype: str = "float32", data: Any = None, q: Any = None) -> int:
        """Declare a tensor; `q` is (scales, zero points, axis)."""
        self.tensors.append((tuple(shape), dtype, data, q))
        return len(self.tensors) - 1

    def input(self, shape: Any, dtype: str = "float32", q: Any = None) -> int:
        self.inputs.append(self.tensor(shape, dtype, None, q))
        return self.inputs[-1]

    def variable(self, *shape: int) -> int:
        """Declare a tensor that keeps its values from call to call, zeros before the first."""
        return self.tensor(shape, data=())

    def constant(self, array: Any, q: Any = None) -> int:
        array = np.asarray(array)
        return self.tensor(array.shape, str(array.dtype), array, q)

    def op(self, name: str, inputs: Any, *outputs: Any, table: str = "", **options: Any) -> Any:
        """Add an operator whose results have the given (shape, dtype, quantisation)."""
        made = []
        for shape, *rest in outputs:
            dtype, q = (*rest, None, None)[:2]
            made.append(self.tensor(shape, dtype or "float32", None, q))
        self.operators.append((name, [*inputs], made, table, options))
        return made[0] if len(made) == 1 else made


def write(*graphs: Subgraph, start: int = 0) -> bytes:
    """Write a model of some subgraphs, with all data in the table, or behind it from `start` on."""
    b = flatbuffers.Builder(1024)
    names = sorted({op[0] for g in graphs for op in g.operators})
    buffers: list[bytes] = [b""]
    subgraphs = [_subgraph(b, g, names, buffers) for g in graphs]
    codes = []
    for name in names:
        number = getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(b, number)
        tflite.OperatorCodeAddVersion(b, 2 if name == "BROADCAST_TO" else 1)
        codes.append(tflite.OperatorCodeEnd(b))
    made = []
    behind = b""
    for data in buffers:
        vector = _bytes(b, data) if data and not start else None
        tflite.BufferStart(b)
        if data and start:
            tflite.BufferAddOffset(b, start + len(behind))
            tflite.BufferAddSize(b, len(data))
            behind += data + bytes(-len(data) % 16)
        if vector is not None:
            tflite.BufferAddData(b, vector)
        made.append(tflite.BufferEnd(b))
    vectors = [_vector(b, v) for v in (codes, subgraphs, made)]
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    for add, v in zip(
        (tflite.ModelAddOperatorCodes, tflite.ModelAddSubgraphs, tflite.ModelAddBuffers), vectors, strict=True
    ):
        add(b, v)
    b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
    return bytes(b.Output()).ljust(start, b"\0") + behind


def _bytes(b: Any, data: bytes) -> int:
    b.StartVector(1, len(data), 16)
    b.head -= len(data)
    b.Bytes[b.head : b.head + len(data)] = data
    return b.EndVector()


def _vector(b: Any, offsets: list[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for o in reversed(offsets):
        b.PrependUOffsetTRelative(o)
    return b.EndVector()


def _subgraph(b: Any, g: Subgraph, names: list[str], buffers: list[bytes]) -> int:
    tensors = [_tensor(b, i, t, buffers) for i, t in enumerate(g.tensors)]
    operators = []
    for name, inputs, outputs, table, options in g.operators:
        made = _options(b, table, options) if table else None
        sides = [b.CreateNumpyVector(np.asarray(side, np.int32)) for side in (inputs, outputs)]
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, names.index(name))
        tflite.OperatorAddInputs(b, sides[0])
        tflite.OperatorAddOutputs(b, sides[1])
        if made is not None:
            field = "BuiltinOptions" if hasattr(tflite.BuiltinOptions, table) else "BuiltinOptions2"
            getattr(tflite, f"OperatorAdd{field}Type")(b, getattr(getattr(tflite, field), table))
            getattr(tflite, f"OperatorAdd{field}")(b, made)
        operators.append(tflite.OperatorEnd(b))
    vectors = [_vector(b, tensors), _vector(b, operators)]
    ends = [b.CreateNumpyVector(np.asarray(v, np.int32)) for v in (g.inputs, g.outputs)]
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, vectors[0])
    tflite.SubGraphAddOperators(b, vectors[1])
    tflite.SubGraphAddInputs(b, ends[0])
    tflite.SubGraphAddOutputs(b, ends[1])
    return tflite.SubGraphEnd(b)


def _options(b: Any, table: str, options: dict[str, Any]) -> int:
    apart = {str: b.CreateString, bytes: b.CreateByteVector}
    options = {name: apart[type(v)](v) if type(v) in apart else v for name, v in options.items()}
    getattr(tflite, f"{table}Start")(b)
    for name, value in options.items():
        getattr(tflite, f"{table}Add{name}")(b, value)
    return getattr(tflite, f"{table}End")(b)


def _tensor(b: Any, i: int, tensor: tuple[Any, ...], buffers: list[bytes]) -> int:
    shape, dtype, data, q = tensor
    place, varies = 0, isinstance(data, tuple)
    if data is not None and not varies:
        place = len(buffers)
        buffers.append(np.ascontiguousarray(data).tobytes())
    name = b.CreateString(f"t{i}")
    dims = b.CreateNumpyVector(np.abs(np.asarray(shape, np.int32)))
    signature = b.CreateNumpyVector(np.asarray(shape, np.int32)) if -1 in shape else None  # -1 is open
    quantised = None
    if q is not None:
        scale = b.CreateNumpyVector(np.atleast_1d(np.asarray(q[0], np.float32)))
        zero = b.CreateNumpyVector(np.atleast_1d(np.asarray(q[1], np.int64)))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, zero)
        tflite.QuantizationParametersAddQuantizedDimension(b, q[2] if len(q) > 2 else 0)
        quantised = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, dims)
    if signature is not None:
        tflite.TensorAddShapeSignature(b, signature)
    tflite.TensorAddType(b, TYPES[dtype])
    tflite.TensorAddBuffer(b, place)
    tflite.TensorAddName(b, name)
    tflite.TensorAddIsVariable(b, varies)
    if quantised is not None:
        tflite.TensorAddQuantization(b, quantised)
    return tflite.TensorEnd(b)


def windows(table: str, stride: int = 1, padding: int = 0, **more: Any) -> dict[str, Any]:
    """The options of an operator whose windows move by as much in rows and columns."""
    return {"table": f"{table}Options", "StrideH": stride, "StrideW": stride, "Padding": padding, **more}


RNG = np.random.default_rng(5)
f32 = floats(RNG)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def check(graphs: list[Subgraph] | Subgraph, given: list[np.ndarray], steps: float = 0, start: int = 0) -> None:
    """Compare with TFLite's runtime; quantised results may differ by steps."""
    data = write(*(graphs if isinstance(graphs, list) else [graphs]), start=start)
    runtime = litert.Interpreter(
        model_content=data, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    for detail, x in zip(runtime.get_input_details(), given, strict=True):
        if tuple(detail["shape"]) != x.shape:
            runtime.resize_tensor_input(detail["index"], x.shape, strict=True)
    runtime.allocate_tensors()
    for detail, x in zip(runtime.get_input_details(), given, strict=True):
        runtime.set_tensor(detail["index"], x)
    runtime.invoke()
    want = [runtime.get_tensor(d["index"]) for d in runtime.get_output_details()]
    got = evaluate(from_tflite(data), *given)
    got = got if isinstance(got, list) else [got]
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=steps or 2e-5)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)
