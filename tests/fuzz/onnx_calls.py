"""The models of ONNX's own node cases with a name of its own for each dimension, called with inputs that need not fit.

A subject is a node case, ``Add:test_add_bcast``, or one in which input 1 is a constant, ``Add:test_add_bcast/1``. What
ONNX Runtime answers, Weft answers; what it refuses, Weft refuses, unless ONNX's reference gives Weft's answer.
"""

import pickle
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import weft
import weft.baseline
from tests.fuzz.calls import GREAT, MOST_ELEMENTS, REFUSALS, Leaf, mutate, smaller_leaves
from tests.fuzz.driver import Outcome, note
from tests.op.contract import compare
from weft.error import UnsupportedOperator, WeftError, is_defect
from weft.session import TensorInfo

KEPT = Path(__file__).parents[2] / "build" / f"fuzz-onnx-{onnx.__version__}.pickle"
"""The node cases: ONNX computes them anew each time, which takes half a minute."""
NOISE = re.compile(
    r"\[ONNXRuntimeError\].*(Status Message: |INVALID_ARGUMENT : )|/onnxruntime\S+ |onnxruntime::common::Status "
)
"""What ONNX Runtime puts around its messages."""
LAXER: dict[str, tuple[str, str]] = {
    "Attention": ("attn_mask", "ONNX broadcasts a mask; ONNX Runtime wants a row of it for each query"),
    "(Global)?(Average|Max|Lp)Pool": ("Only N can be zero", "no channels have no maxima"),
    "DeformConv": ("must be positive", "no output channels make an image without any"),
    "Compress": (
        "out of bounds for axis|non-empty take",
        "what lies beyond the data chooses nothing, as in ONNX Runtime",
    ),
    "GroupNormalization|LinearAttention|Reshape|SoftmaxCrossEntropyLoss": (
        "ReshapeHelper|cannot reshape array of size 0|Can broadcast 0 by 0 or 1",
        "-1 beside an empty dimension: Weft knows what it stands for where the same dimension is on both sides",
    ),
    "Resize": ("mode only supports", "ONNX resizes any dimension; ONNX Runtime those of images"),
    "ImageDecoder": ("Pillow", "an oracle without a decoder says nothing"),
    "Pad": (
        "exceeds maximum allowed|axis length >= 2|zero effective input extent|Unexpected mode of 3",
        "ONNX's reference reflects again and again, and edges of nothing matter only where they are copied",
    ),
    "Col2Im": ("must be a positive multiple", "no channels make no image"),
    "QLinearMatMul|MatMulInteger": ("IsScalarOr1ElementVector|IsBQuantParam", "ONNX has scales and zero points by row"),
    "TfIdfVectorizer": ("B > 0", "a batch of nothing has no counts"),
    "Range": ("Maximum allowed size exceeded", "NumPy has no range that counts up from infinity: it is empty"),
    "RoiAlign": ("cannot convert float NaN to integer", "a region of no numbers has none"),
    "Scan": (
        "dim0_offset < dim0_size|zero scan-input length|computed output shape for this run|inconsistent batch size",
        "a scan of nothing leaves its state as it was, and puts out nothing; what a body says of its shapes is a hint",
    ),
}
"""Operators (patterns) that answer what the oracle refuses: its refusal, and why that is accidental."""
OF_NOTHING = {
    ".*Loss": "the mean of no losses: 0 in ONNX Runtime, NaN in PyTorch and Weft, and where all are ignored",
    "Scan": "a scan of nothing leaves its state; ONNX Runtime gives what its memory holds",
    "LSTM|GRU|RNN": "a sequence of length 0 leaves its state; ONNX Runtime says 0",
}
OVERFLOWS = re.compile(
    ".*Normalization|Ada(grad|m)|LpPool|MatMul|Gemm|(Deform)?Conv.*|Einsum|LSTM|GRU|RNN|.*Attention|ReduceProd|CumProd"
)
"""Operators that sum products: near the greatest float it hangs on their order what becomes infinite."""
LEFT_OPEN = {
    "AffineGrid": "sums of huge products, which round by their order",
    "Cast": "numbers beyond an integer, and negative ones as E8M0, which ONNX leaves open",
    "CastLike": "as Cast",
    "ConvTranspose": "infinity times the zeros of a window, of which each implementation has others",
    "ScatterElements": "the least of numbers and NaN, which ONNX Runtime takes by their order",
    "ScatterND": "as ScatterElements",
    "STFT": "infinity times the zeros of a matrix or of an FFT",
    "DFT": "as STFT",
    "DynamicQuantizeLinear": "the range of what is no number: NumPy says NaN, ONNX Runtime leaves it out",
    "GridSample": "points that are out of reach of integers: oracles convert them as the machine happens to",
    "LRN": "running sums of squares, from which ONNX Runtime takes the huge ones away again",
    "LpPool": "powers that overflow, or do not in wider numbers",
    "MaxPool": "ONNX Runtime keeps or drops NaN by its place in the window; Weft keeps it",
    "QLinearMatMul": "an infinite scale: Weft multiplies each product by it, ONNX Runtime their sum",
    "QuantizeLinear": "the integer of NaN, which oracles convert as the machine happens to",
    "ReduceLogSumExp": "exponentials that vanish where the greatest is not taken out first",
    "Resize": "a region of which an end is out of any image's reach",
    "RoiAlign": "the greatest of numbers and NaN, which the oracle takes by their order",
    "Range": "ranges with an infinite end or step, which NumPy and ONNX Runtime count differently",
}
"""Operators whose oracles differ from each other, or from themselves, where an input is not finite, or huge."""
TRANSFORMS = ("DFT", "STFT")
"""Operators whose rounding goes by the greatest number along an axis."""
RANDOM = ("Bernoulli",)
"""Operators of which the shape is compared."""
CANCELS = ("MeanVarianceNormalization",)
"""Operators whose oracles take the square of the mean from that of the squares: NumPy is asked instead."""
WIDER = ("Adam",)
"""Operators whose results the oracle forgets to round to the type of a tensor."""
HUGE = 1e9
MOST_TRIPS = 1000
MOST_COMPARED = 4_000_000
"""Elements of a result: factors and sizes that are drawn may ask for gigabytes."""
MOST_GROWN = 8
"""Elements of an image that factors may meet."""
LEVELS = ("every dimension", "lengths of index vectors fixed", "as in the file")


def cases() -> dict[str, tuple[bytes, list[Any], float, float]]:
    """Models by name, with their inputs and tolerances; those that repeat another are left out."""
    if not KEPT.exists():
        from onnx.backend.test.loader import load_model_tests  # takes seconds, and is needed once

        with warnings.catch_warnings(action="ignore"):
            found = {}
            for case in load_model_tests(kind="node"):
                arrays = [
                    numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in case.data_sets[0][0]
                ]
                plain = all(isinstance(a, np.ndarray) and a.dtype != object for a in arrays)
                if plain and "_expanded" not in case.name and case.model.graph.node:
                    found[case.name] = (case.model.SerializeToString(), arrays, case.rtol, case.atol)
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_bytes(pickle.dumps(found))
    return pickle.loads(KEPT.read_bytes())


def known_dims(arrays: list[Any], variant: str) -> set[tuple[int, int]]:
    """The dimensions that stay numbers, as inputs and axes: those of 1, or some, where a variant says so."""
    places = [(n, axis) for n, array in enumerate(arrays) for axis in range(array.ndim)]
    if variant == "ones":
        return {(n, axis) for n, axis in places if arrays[n].shape[axis] == 1}
    drawn = np.random.default_rng([a.size for a in arrays]).random(len(places)) < 0.5
    return {place for place, kept in zip(places, drawn, strict=True) if kept} if variant == "some" else set()


def opened(
    data: bytes, arrays: list[Any], constant: int | None, level: int, known: set[tuple[int, int]]
) -> onnx.ModelProto:
    """The model with dimensions made symbolic but those that are known, and one input turned into a constant."""
    model = onnx.load_from_string(data)
    graph = model.graph
    inputs = list(graph.input)
    for n, (info, array) in enumerate(zip(inputs, arrays, strict=True)):
        if n == constant:
            graph.input.remove(info)
            graph.initializer.append(numpy_helper.from_array(array, info.name))
        elif level < 2 and not (level == 1 and array.ndim == 1 and array.dtype.kind in "iu"):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if (n, axis) not in known:
                    dim.dim_param = f"d{n}_{axis}"
    for info in graph.output:
        if level < 2 and info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    return model


def oracles_of(model: onnx.ModelProto, arrays: Iterable[np.ndarray]) -> list[tuple[str, Any]]:
    """Who else runs a model with such inputs, by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    oracles: list[tuple[str, Any]] = []
    with suppress(Exception):  # an operator or data type that ONNX Runtime has not, or does not take from Python
        for a in arrays:
            onnxruntime.OrtValue.ortvalue_from_numpy(a)
        theirs = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        oracles.append(("ONNX Runtime", theirs.run))
    with suppress(Exception):  # an operator that ONNX's reference has not
        oracles.append(("the ONNX reference", ReferenceEvaluator(model).run))
    return oracles


class OnnxCall:
    """One model, compiled."""

    judges: tuple[str, ...] = ("ONNX Runtime", "the ONNX reference", "NumPy")
    """The oracles whose errors are refusals."""

    def __init__(self, case: tuple[bytes, list[Any], float, float], variant: str) -> None:
        data, arrays, self.rtol, self.atol = case
        constant = int(variant) if variant.isdigit() else None
        known = known_dims(arrays, variant)
        refusal, self.complaints = "", []
        for self.level in range(len(LEVELS)):
            model = opened(data, arrays, constant, self.level, known)
            try:
                self.session = self.opened(model)
                break
            except Outcome:
                raise
            except UnsupportedOperator:
                raise Outcome("skipped", "not an operator of Weft") from None
            except Exception as e:
                refusal = f"{type(e).__name__}: {e}"
                if not isinstance(e, WeftError) or is_defect(e):
                    self.complaints.append(Outcome("foreign error when compiled", f"[{LEVELS[self.level]}] {refusal}"))
        else:
            raise Outcome("skipped" if "element type" in refusal else "a node case is refused", refusal)
        self.arrays = [a for n, a in enumerate(arrays) if n != constant]
        self.names = [i.name for i in model.graph.input]
        self.fixed = [
            [d.dim_value if d.HasField("dim_value") else None for d in i.type.tensor_type.shape.dim]
            for i in model.graph.input
        ]
        self.constant = "" if constant is None else f", input {constant} constant {arrays[constant].shape}"
        self.constant += f", known dimensions {self.fixed}" if known else ""
        self.node = model.graph.node[0]
        self.oracles = oracles_of(model, arrays)
        if self.node.op_type in CANCELS:
            axes = {a.name: list(a.ints) for a in self.node.attribute}.get("axes", [0, 2, 3])
            self.oracles = [("NumPy", lambda _, feeds: [normalized(*feeds.values(), tuple(axes))])]

    def opened(self, model: onnx.ModelProto) -> weft.Session:
        return weft.Session(model, "llvm -opt-level=0")  # compiling is most of the time

    def draw(self, rng: np.random.Generator) -> tuple[list[Leaf], int]:
        leaves = [Leaf("tensor", a.shape, a.dtype.name, a) for a in self.arrays]
        if rng.random() < 0.5:  # the same inputs with other sizes that fit, where equal sizes stand for one
            sizes = {d: int(rng.integers(0, 6)) for a in self.arrays for d in a.shape if rng.random() < 0.5}
            for leaf in leaves:
                leaf.shape = tuple(sizes.get(d, d) for d in leaf.shape)
        extents = [d for leaf in leaves for d in leaf.shape] or [1]
        for _ in range(int(rng.choice(4, p=(0.2, 0.45, 0.25, 0.1))) if leaves else 0):
            mutate(leaves[int(rng.integers(len(leaves)))], extents, rng)
        return leaves, int(rng.integers(1 << 30))

    def smaller(self, drawn: tuple[list[Leaf], int]) -> Iterator[tuple[list[Leaf], int]]:
        return smaller_leaves(*drawn)

    def show(self, drawn: tuple[list[Leaf], int]) -> str:
        rng = np.random.default_rng(drawn[1])
        words = [leaf.words(leaf.value(rng)) for leaf in drawn[0]]
        attrs = [f"{a.name}={str(onnx.helper.get_attribute_value(a))[:40]}" for a in self.node.attribute]
        return f"{self.node.op_type}({', '.join([*words, *attrs])}{self.constant}) [{LEVELS[self.level]}]"

    def check(self, drawn: tuple[list[Leaf], int]) -> Outcome:
        leaves, seed = drawn
        rng = np.random.default_rng(seed)
        if sum(int(np.prod(leaf.shape)) for leaf in leaves) > MOST_ELEMENTS:
            return Outcome("skipped")
        feeds = {name: leaf.value(rng) for name, leaf in zip(self.names, leaves, strict=True)}
        if self.takes_too_long(feeds):
            return Outcome("skipped", "it takes too long")
        found, refusal = None, ""
        try:
            found = list(arrays_of(self.session.run(feeds)))
        except Outcome as left:
            return left
        except REFUSALS as e:
            if is_defect(e):
                return Outcome("foreign error", f"InternalError: {e}")
            refusal = f"{type(e).__name__}: {e}"
        except Exception as e:
            return Outcome("foreign error", f"{type(e).__name__}: {e}")
        mismatch = self.mismatch(leaves)
        if mismatch:
            return Outcome("refused by both") if found is None else Outcome("ANSWERED", mismatch)
        return self.judged(feeds, found, refusal)

    def takes_too_long(self, feeds: dict[str, Any]) -> bool:
        """Whether numbers that are drawn ask for a loop without an end, or for an image of gigabytes."""
        if self.node.op_type == "Loop":
            return any(a.dtype == np.int64 and (a > MOST_TRIPS).any() for a in feeds.values())
        grown = [feeds[n].astype(np.float64) for n in ("scales", "sizes") if n in feeds]
        return any(np.isfinite(g).all() and np.prod(np.abs(g)) * MOST_GROWN > MOST_COMPARED for g in grown)

    def judged(self, feeds: dict[str, Any], found: list[Any] | None, refusal: str) -> Outcome:
        """Compare with the oracles; one that agrees is enough."""
        note("oracle")
        worst = None
        for name, oracle in self.oracles:
            try:
                with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                    expected = list(arrays_of(oracle(None, feeds)))
            except MemoryError:
                return Outcome("skipped")
            except Exception as e:  # whatever an oracle raises is a refusal, but that it has no name for a type
                if "No corresponding Numpy type" in str(e) or name not in self.judges:
                    continue
                if "bad_alloc" in str(e):
                    return Outcome("skipped")
                if found is None:
                    return Outcome("refused by both")
                words = f"{name} says {type(e).__name__}: {NOISE.sub('', str(e))}"
                accidental = any(
                    re.fullmatch(op, self.node.op_type) and re.search(said, str(e)) for op, (said, _) in LAXER.items()
                )
                worst = worst or Outcome("answered as documented" if accidental else "ANSWERED", words)
                continue
            if found is None:
                worst = worst or Outcome(
                    "refused by Weft only", f"{refusal}; {name} gives {[e.shape for e in expected]}"
                )
                continue
            try:
                differs = self.difference(found, expected)
            except MemoryError:
                return Outcome("skipped")
            if differs is None:
                return Outcome("equal")
            worst = worst or Outcome("different", f"from {name}: {differs}")
        note("")
        return self.excused(feeds, worst) if worst and worst.kind == "different" else worst or Outcome("skipped")

    def excused(self, feeds: dict[str, Any], worst: Outcome) -> Outcome:
        """Leave out differences where the oracles have no one answer."""
        op = self.node.op_type
        if reason := self.wrongly_known(feeds):
            return Outcome("skipped", reason)
        if op in LEFT_OPEN and is_extreme(feeds):
            return Outcome("skipped", LEFT_OPEN[op])
        for pattern, reason in OF_NOTHING.items():
            nothing = any(a.size == 0 or (n == "sequence_lens" and 0 in a) for n, a in feeds.items())
            if re.fullmatch(pattern, op) and nothing:
                return Outcome("skipped", reason)
        return Outcome("overflow") if OVERFLOWS.fullmatch(op) and is_great(feeds) else worst

    def wrongly_known(self, feeds: dict[str, Any]) -> str | None:
        """Tell where ONNX's interpreter, the only oracle, takes something else than ONNX says."""
        op = self.node.op_type
        if op == "Attention" and any(a.shape[-2:-1] == (1,) for n, a in feeds.items() if n == "attn_mask"):
            return "its causal mask is that of the first query for all, where the other mask has one row"
        if op == "QuantizeLinear" and any(n.endswith("zero_point") and a.dtype.kind == "V" for n, a in feeds.items()):
            return "it adds the zero points of floating types, which are not used"
        return None

    def mismatch(self, leaves: list[Leaf]) -> str:
        for leaf, fixed, array in zip(leaves, self.fixed, self.arrays, strict=True):
            if leaf.dtype != array.dtype.name or len(leaf.shape) != array.ndim:
                return f"the model declares {array.dtype} of rank {array.ndim}"
            if any(f is not None and f != d for f, d in zip(fixed, leaf.shape, strict=True)):
                return f"the model declares the shape {fixed}"
        return ""

    def difference(self, found: list[Any], expected: list[Any]) -> str | None:
        if len(found) != len(expected):
            return f"{len(found)} arrays instead of {len(expected)}"
        for f, e in zip(found, expected, strict=True):
            e = e.astype(f.dtype) if self.node.op_type in WIDER + CANCELS else e
            e = np.where(np.isnan(e), f, e) if self.node.op_type in CANCELS and e.shape == f.shape else e
            if f.shape != e.shape or f.dtype != e.dtype:
                return f"shape or type: {f.dtype}{f.shape} instead of {e.dtype}{e.shape}"
            if self.node.op_type in RANDOM:
                continue
            try:
                greatest = np.abs(e[np.isfinite(e)]).max(initial=0) if self.node.op_type in TRANSFORMS else 0
                compare(f, e, max(10 * self.rtol, 1e-3), max(10 * self.atol, 1e-4, 1e-6 * greatest))
            except AssertionError as error:
                return " ".join(str(error).split()[:40])
        return None


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Mean 0 and variance 1 over axes, in double precision; NaN where single precision sees no variance."""
    mean = x.astype(np.float64).mean(axes, keepdims=True)
    spread = np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True))
    return np.where(spread < 1e-5 * np.abs(mean), np.nan, (x - mean) / (spread + 1e-9))


def arrays_of(results: Any) -> Iterator[np.ndarray]:
    """The arrays of results, those in sequences one after another."""
    for x in results:
        if isinstance(x, list):
            yield from arrays_of(x)
        else:
            yield np.asarray(x.numpy() if isinstance(x, weft.runtime.Tensor) else x)


def is_extreme(feeds: dict[str, Any]) -> bool:
    """Whether a float that is given is not finite, or huge, or a scale next to 0."""
    floats = {name: a.astype(np.float64) for name, a in feeds.items() if a.dtype.kind in "fV"}
    return any(
        not (abs(a) < HUGE).all() or (name.endswith("scale") and (abs(a) < 1 / HUGE).any())
        for name, a in floats.items()
    )


def is_great(feeds: dict[str, Any]) -> bool:
    """Whether a finite float is so great that sums of squares may overflow."""
    floats = [a.astype(np.float64) for a in feeds.values() if a.dtype.kind in "fV"]
    return any((abs(a[np.isfinite(a)]) > GREAT).any() for a in floats)


class OnnxCalls:
    """The suite of all node cases: every input variable, each input constant, some dimensions known."""

    check_seconds = 5.0
    kind: type[OnnxCall] = OnnxCall

    def __init__(self) -> None:
        self.cases = cases()

    def subjects(self) -> list[str]:
        names = []
        for name, (data, arrays, _, _) in self.cases.items():  # of which some have sequences and optionals
            graph = onnx.load_from_string(data).graph
            if not all(i.type.HasField("tensor_type") for i in graph.input):
                continue
            op = graph.node[0].op_type
            names.append(f"{op}:{name}")
            names += [f"{op}:{name}/{k}" for k in range(len(arrays))] if len(arrays) > 1 else []
            names += [f"{op}:{name}/{variant}" for variant in ("ones", "some") if known_dims(arrays, variant)]
        return names

    def open(self, subject: str) -> OnnxCall:
        name, _, variant = subject.partition(":")[2].partition("/")
        return self.kind(self.cases[name], variant)


class FirstAnswer(OnnxCall):
    """One model, answered by its baseline program, which leaves to the compiled one what is not plain."""

    def opened(self, model: onnx.ModelProto) -> weft.Session:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                program = weft.baseline.BaselineProgram(path)
            except weft.baseline.NotInBaseline as e:
                raise Outcome("skipped", str(e)) from None

        def answer(*values: Any) -> list[Any]:
            results = program.try_run([v if isinstance(v, np.ndarray) else v.numpy() for v in values])
            if results is None:
                raise Outcome("left to the compiled program")
            return [weft.runtime.tensor(r) for r in results]

        session = weft.Session.__new__(weft.Session)  # as one is whose model another process compiles
        session._compiled, session._texts, session._shown = None, None, []
        session._expect([TensorInfo(*i) for i in program.inputs], program.output_names)
        session._call = session._plain = answer
        return session


class FirstAnswers(OnnxCalls):
    """The suite of first answers, over the same cases."""

    kind = FirstAnswer
