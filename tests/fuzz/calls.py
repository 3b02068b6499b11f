"""Calls of every operator with inputs that need not fit together: each gives what its reference gives, or is refused.

A subject is a case of the operators' tables. It is compiled once with a variable of its own for each dimension of each
input, so that nothing is known to agree, and called through the virtual machine with shapes, values and data types that
are mostly wrong. Where an operator cannot be compiled so, dimensions become constant step by step, and inputs that
differ from those constants must be refused.
"""

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np

import weft
from tests.fuzz.driver import Outcome
from tests.op import cases  # noqa: F401 - registers the cases
from tests.op.contract import (
    CASES,
    SIZES,
    Array,
    Case,
    Dim,
    Fixed,
    Maker,
    Shape,
    Sizes,
    compare,
    compile_call,
    expected_of,
    with_cases,
)
from weft import ir, relax, runtime
from weft.error import WeftError, is_defect
from weft.op import Fusion, get_op_def, make_call

EXTENTS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33)
OUTSIDE = (-1, -2, 0, 1, 5, 9, 17, 100, -100, 2**31, 2**40, -(2**40))
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38, 65520.0, 300.0, -1e10)
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
FAMILIES = (
    ("float32", "float64", "float16", "bfloat16"),
    tuple(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
)
"""Data types that stand for each other: a case of one is a subject in each of the others, too."""
MOST_ELEMENTS = 200_000
LEVELS = ("every dimension", "no fixed input", "named dimensions", "as in the case")
"""Which dimensions are variables of their own; in the last, dimensions of one name are one variable."""
LAXER: dict[str, tuple[str, str]] = {
    "einsum": ("dimension '", "NumPy takes the only row of a dimension of 1 for all"),
    "gather_nd": ("IndexOutOfRange.*found -", "NumPy counts negative indices from the end; importers add the length"),
    "multinomial_from_uniform": ("one for each row|choices", "NumPy broadcasts, and chooses the first of nothing"),
    "nn.(batch|layer|rms|instance|group)_norm": (
        "'(gamma|beta|weight|bias|moving_\\w+)'",
        "NumPy broadcasts parameters",
    ),
    "nn.prelu": ("length of 'alpha'", "NumPy broadcasts parameters"),
    "nn.conv.*": ("channels", "the references take the channels that they need"),
    "nn.matmul_packed": ("columns of", "the reference takes the columns that it needs"),
    "reverse_sequence": (
        "'seq_lengths'",
        "NumPy cuts ranges that reach outside, and never looks at sequences of nothing",
    ),
    "squeeze": ("which no axis names", "the rank of the result is known when it is compiled"),
    "split": ("size of part", "NumPy cuts ranges that reach outside"),
}
"""Operators (patterns) whose reference answers what they refuse: the refusal, and why NumPy is laxer."""
FINITE: dict[str, tuple[str, str]] = {
    "image.resize.*": (
        "data",
        "an axis that keeps its size is left alone, or each element meets its neighbour with weight 0",
    ),
    "einsum": ("operands", "three operands are multiplied two at a time, in the order that costs least"),
    "ewise_fma": ("x1 x2 x3", "a product that overflows meets the infinity of the other sign"),
    "nn.lstm_recurrence": ("p initial_h initial_c", "infinity meets gates that narrower numbers round to 0"),
    "nn.(cached_)?attention.*": ("value", "keys that are not seen are left out, or have weight 0, as have small ones"),
    "vision.non_max_suppression": ("data", "the greatest of scores that are no numbers hangs on their order"),
    "nn.matmul_compressed": ("x", "weights in the list are zeros among the others, and meet infinity there, too"),
    "nn.matmul_nbits_.*": (
        "x x_scale scale offset",
        "the half of a field is taken off before the scale is applied, or after",
    ),
    "nn.conv.*_transpose": (
        "weight",
        "weights meet the zeros between elements or do not, as the schedule divides the windows; to guard the products "
        "in place of the elements makes kernels a hundred times slower",
    ),
}
"""Operators (patterns) of which infinity and NaN are not compared if these operands have some: why they spread so."""
STEADY = {("bucketize", "boundaries"), ("image.resize_placed", "placement")}
"""Operands that have a meaning for some numbers only, ascending ones or places: they stay those of the case."""
TRUSTED = {"tree_scores": "its tables of nodes are made by the importer, which checks them"}
"""Operators whose kernels believe an operand, and why."""
OUTWEIGHS = 1e8
"""Where such a number meets others, its rounding is greater than they are."""
GREAT = 1e18
"""About the root of the greatest float32: squares and products of more than that may overflow."""
REFUSALS = (WeftError, ValueError, TypeError, IndexError, MemoryError)


@dataclasses.dataclass
class Leaf:
    """An input as it will be given: a tensor (values drawn from a pool), a shape, a number, or nothing."""

    kind: str
    shape: tuple[int, ...]
    dtype: str = ""
    pool: Any = None
    specials: tuple[Any, ...] = ()
    strided: bool = False

    def value(self, rng: np.random.Generator) -> Any:
        """The value that the operator's reference takes."""
        if self.kind == "shape":
            return tuple(self.shape)
        if self.kind != "tensor":
            return self.pool
        count = int(np.prod(self.shape))
        if self.pool.shape == self.shape:
            flat = self.pool.flatten()
        elif self.pool.size:
            flat = rng.choice(self.pool.flatten(), count)
        else:
            flat = rng.integers(0, 3, count).astype(self.pool.dtype)
        with np.errstate(all="ignore"):
            for special in self.specials if count else ():
                flat[int(rng.integers(count))] = np.asarray(special).astype(flat.dtype)
            out = flat.astype(np.dtype(self.dtype)).reshape(self.shape)
        return out.repeat(2, axis=-1)[..., ::2] if self.strided and out.ndim else out

    def words(self, value: Any) -> str:
        """Data type and shape, and the values if they are few and of interest."""
        few = 0 < value.size <= 6 and (value.dtype.kind in "iu" or self.specials)
        return f"{self.dtype}{list(self.shape)}" + (f"={value.tolist()}" if few else "") + " strided" * self.strided


def leaves_of(value: Any) -> Any:
    """Leaves in the nesting of a case's inputs."""
    if isinstance(value, tuple):
        return tuple(leaves_of(v) for v in value)
    if isinstance(value, Fixed):
        return leaves_of(value.array)
    if isinstance(value, Array):
        return Leaf("tensor", tuple(map(int, value.value.shape)), value.value.dtype.name, value.value)
    if isinstance(value, Shape):
        return Leaf("shape", tuple(map(int, value.values)))
    return Leaf("none" if value is None else "number", (), pool=int(value) if isinstance(value, Dim) else value)


def extremes(dtype: str) -> list[Any]:
    """What a data type has at its ends and beyond: of floats the least, the greatest and those that are none."""
    kind = ir.numpy_dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return [*OUTSIDE, info.min, info.max, info.min + 1, info.max - 1, info.bits - 1, info.bits, info.max >> 1]
    ends = ml_dtypes.finfo(kind)
    return [*SPECIAL, *map(float, (ends.max, ends.min, ends.tiny, -ends.tiny, ends.smallest_subnormal))]


def specialize(leaf: Leaf, rate: float, rng: np.random.Generator) -> None:
    """Give a tensor some of the numbers at the ends of its type, at a rate."""
    if leaf.dtype in itertools.chain(*FAMILIES) and rng.random() < rate:
        leaf.specials = tuple(rng.choice(np.array(extremes(leaf.dtype), object), int(rng.integers(1, 9))))


def arrays_in(value: Any) -> Iterator[Array]:
    if isinstance(value, tuple):
        yield from itertools.chain(*map(arrays_in, value))
    elif isinstance(value, (Array, Fixed)):
        yield value.array if isinstance(value, Fixed) else value


def cast_data(value: Any, source: np.dtype, dtype: str) -> Any:
    """The same input with its tensors of one data type in another."""
    if isinstance(value, tuple):
        return tuple(cast_data(v, source, dtype) for v in value)
    if isinstance(value, Fixed):
        return dataclasses.replace(value, array=cast_data(value.array, source, dtype))
    same = not isinstance(value, Array) or value.value.dtype != source
    return value if same else dataclasses.replace(value, value=value.value.astype(ir.numpy_dtype(dtype)))


def in_dtype(make: Maker, dtype: str) -> Maker:
    """The same case whose data, the first tensor and those of its data type, are of another one of its family."""

    def made(s: Sizes) -> Case | None:
        case = make(s)
        first = next(arrays_in(case.inputs), None) if case is not None else None
        if case is None or first is None:
            return case
        source = first.value.dtype
        attrs = {k: dtype if v == str(source) else v for k, v in case.attrs.items()}
        least = 0.0 if dtype == "float64" else 1e-5  # tolerances of float64 are not those of other types
        near = {"rtol": case.rtol and max(case.rtol, least), "atol": max(case.atol, least / 10)}
        return dataclasses.replace(case, inputs=cast_data(case.inputs, source, dtype), attrs=attrs, **near)

    return made


def flat(nested: Any) -> Iterator[Leaf]:
    for leaf in nested:
        yield from flat(leaf) if isinstance(leaf, tuple) else (leaf,)


def furthest(values: np.ndarray) -> float:
    """The greatest exponent, up or down, that a product of some of the elements may have."""
    moves = np.log2(np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64)))
    return max(moves[moves > 0].sum(), -moves[moves < 0].sum())


def numbers_of(nested: Any) -> list[int]:
    """The dimensions of shapes and the whole numbers among the leaves."""
    given = {"shape": lambda leaf: leaf.shape, "number": lambda leaf: (leaf.pool,)}
    values = [v for leaf in flat(nested) for v in given.get(leaf.kind, lambda leaf: ())(leaf)]
    return [v for v in values if type(v) is int]


def nest(nested: Any, values: Iterator[Any]) -> Any:
    """Values in the nesting of the leaves."""
    return tuple(nest(leaf, values) if isinstance(leaf, tuple) else next(values) for leaf in nested)


class Params:
    """Parameters of a function around one call: a tensor each, and one shape that holds all other numbers."""

    def __init__(self, level: int) -> None:
        self.level, self.numbers, self.names = level, itertools.count(), {}
        self.tensors: list[ir.ExprVar] = []
        self.scalars: list[ir.SizeVar] = []
        self.places: list[Any] = []
        """What stands for each number of the inputs in turn: a variable, or itself."""

    def variable(self, d: int) -> ir.SizeVar:
        if self.level == 3:
            return self.names.setdefault(d.name, ir.SizeVar(d.name, "int64"))
        return ir.SizeVar(f"d{next(self.numbers)}", "int64")

    def dim(self, d: int, fixed: bool) -> Any:
        constant = (fixed and self.level > 0) or (self.level > 1 and not isinstance(d, Dim))
        return int(d) if constant else self.variable(d)

    def scalar(self, d: int) -> Any:
        constant = int(d) < 0 or (self.level > 1 and not isinstance(d, Dim))
        self.places.append(d if constant else self.variable(d))
        if not constant and self.places[-1] not in self.scalars:
            self.scalars.append(self.places[-1])
        return self.places[-1]

    def expr(self, value: Any, name: str, fixed: bool = False) -> Any:
        if value is None:
            return None
        if isinstance(value, Fixed):
            return self.expr(value.array, name, fixed=True)
        if isinstance(value, Array):
            ty = ir.tensor_type([self.dim(d, fixed) for d in value.dims], str(value.value.dtype))
            self.tensors.append(ir.ExprVar(f"{name}_{len(self.tensors)}", ty))
            return self.tensors[-1]
        if isinstance(value, Shape):
            return ir.shape_expr([self.scalar(d) for d in value.values])
        if isinstance(value, tuple):
            fields = tuple(self.expr(v, name, fixed) for v in value)
            return ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))
        return ir.prim_value(self.scalar(value) if isinstance(value, int) and not isinstance(value, bool) else value)

    def shapes(self) -> list[tuple[Any, ...]]:
        """The shapes of the tensors: variables and numbers."""
        return [tuple(getattr(d, "value", d) for d in t.ty.shape) for t in self.tensors]


def compiled(name: str, case: Case, level: int) -> tuple[Any, Params]:
    """A function of the virtual machine that calls the operator."""
    definition, params = get_op_def(name), Params(level)
    exprs = [params.expr(v, i.name) for v, i in zip(case.inputs, definition.inputs, strict=False)]
    node = make_call(name)(*exprs, **case.attrs)
    given = [*params.tensors]
    if params.scalars:
        given.append(ir.ExprVar("numbers", ir.ShapeType(tuple(params.scalars), len(params.scalars))))
    builder = relax.BlockBuilder()
    with builder.function("main", given):
        builder.emit_func_output(builder.emit(node))
    return runtime.VirtualMachine(weft.compile(builder.get(), "llvm"), weft.cpu())["main"], params


class Call:
    """One case, compiled with as many variables as the operator takes."""

    def __init__(self, name: str, index: int, dtype: str = "") -> None:
        self.name, self.definition = name, get_op_def(name)
        self.makers = in_dtype(CASES[name][index], dtype) if dtype else CASES[name][index]
        self.case = next(c for s in SIZES if (c := self.makers(Sizes(s, f"{name}{index}{s}"))) is not None)
        self.nested = leaves_of(self.case.inputs)
        self.function, self.level, self.complaints = None, 0, []
        refusal = ""
        for self.level in range(len(LEVELS)):
            try:
                self.function, self.params = compiled(name, self.case, self.level)
                break
            except Exception as e:
                refusal = f"{type(e).__name__}: {e}"
                if not isinstance(e, WeftError) or is_defect(e):
                    self.complaints.append(Outcome("foreign error when compiled", f"[{LEVELS[self.level]}] {refusal}"))
        if self.function is None:
            raise Outcome("skipped" if dtype else "refused when compiled", refusal)
        self.compiled_shapes = self.params.shapes()
        self.dtypes = [leaf.dtype for leaf in flat(self.nested) if leaf.kind == "tensor"]

    # --- inputs

    def draw(self, rng: np.random.Generator) -> tuple[Any, int]:
        nested = self.base(rng)
        steady = [x for i, x in zip(self.definition.inputs, nested, strict=False) if (self.name, i.name) in STEADY]
        drawn = [leaf for leaf in flat(nested) if all(leaf is not x for x in steady)]
        tensors = [leaf for leaf in drawn if leaf.kind in ("tensor", "shape") and (leaf.shape or leaf.dtype)]
        extents = [d for leaf in tensors for d in leaf.shape] or [1]
        for _ in range(int(rng.choice(4, p=(0.25, 0.4, 0.25, 0.1))) if tensors else 0):
            mutate(tensors[int(rng.integers(len(tensors)))], extents, rng)
        for leaf in tensors:
            specialize(leaf, 0.3, rng)
        return nested, int(rng.integers(1 << 30))

    def base(self, rng: np.random.Generator) -> Any:
        """Inputs that fit, of sizes of their own."""
        for _ in range(4):
            sizes = {n: int(rng.choice(EXTENTS)) for n in "abcd"} if rng.random() < 0.6 else rng.choice(SIZES)
            try:
                case = self.makers(Sizes(sizes, str(rng.integers(1 << 30))))
            except (ValueError, IndexError, ZeroDivisionError, AssertionError, np.linalg.LinAlgError):
                continue  # the case cannot be made of these sizes
            if case is not None:
                nested = leaves_of(case.inputs)
                if [leaf.kind for leaf in flat(nested)] == [leaf.kind for leaf in flat(self.nested)]:
                    return nested
        return copy.deepcopy(self.nested)

    def smaller(self, drawn: tuple[Any, int]) -> Iterator[tuple[Any, int]]:
        return smaller_leaves(*drawn)

    def show(self, drawn: tuple[Any, int]) -> str:
        nested, seed = drawn
        rng = np.random.default_rng(seed)
        words = []
        for leaf in flat(nested):
            value = leaf.value(rng)
            if leaf.kind != "none":
                words.append(leaf.words(value) if leaf.kind == "tensor" else str(value))
        attrs = ", ".join(f"{k}={v!r}" for k, v in self.case.attrs.items())
        return f"{self.name}({', '.join([*words, attrs] if attrs else words)}) [{LEVELS[self.level]}]"

    # --- outcomes

    def check(self, drawn: tuple[Any, int]) -> Outcome:
        nested, seed = drawn
        rng = np.random.default_rng(seed)
        elements = sum(int(np.prod(leaf.shape)) for leaf in flat(nested) if leaf.kind == "tensor")
        if elements > MOST_ELEMENTS or not self.can_be_told(nested):
            return Outcome("skipped")
        values = [leaf.value(rng) for leaf in flat(nested)]
        mismatch = self.mismatch(nested)
        expected: Any = None
        if not mismatch:
            try:
                with np.errstate(all="ignore"):
                    expected = self.definition.reference(*nest(nested, iter(values)), **self.case.attrs)
            except MemoryError:
                return Outcome("skipped")
            except Exception as e:  # whatever the reference raises is a refusal
                mismatch = f"{type(e).__name__}: {e}"
        try:
            found = self.run(nested, values)
        except REFUSALS as e:
            if is_defect(e):
                return Outcome("foreign error", f"InternalError: {e}")
            words = f"{type(e).__name__}: {e}"
            if mismatch:
                return Outcome("refused by both")
            documented = any(re.fullmatch(op, self.name) and re.search(said, words) for op, (said, _) in LAXER.items())
            return Outcome("refused as documented" if documented else "refused by Weft only", words)
        except Exception as e:
            return Outcome("foreign error", f"{type(e).__name__}: {e}")
        if mismatch:
            return Outcome("ANSWERED", f"the reference says {mismatch}")
        outcome = self.compared(found, expected, self.spreads(values))
        if outcome.kind == "different" and any(map(is_narrow, values)):
            outcome = self.compared(found, self.rounded_once(nested, values, found), self.spreads(values))
        excused = outcome.kind == "different" and (self.may_overflow(values) or self.spreads(values, OUTWEIGHS))
        return Outcome("overflow") if excused else outcome

    def spreads(self, values: list[Any], limit: float = np.inf) -> bool:
        """Whether an operand has infinity, NaN or a number beyond a limit that may be felt anywhere in the result."""
        operands = [o for op, (names, _) in FINITE.items() if re.fullmatch(op, self.name) for o in names.split()]
        given = zip(self.definition.inputs, values, strict=False)
        arrays = [a for i, v in given if i.name in operands for a in (v if isinstance(v, tuple) else (v,))]
        return any(a.dtype.kind in "fV" and not (np.abs(a) < limit).all() for a in arrays)

    def may_overflow(self, values: list[Any]) -> bool:
        """Whether finite inputs are so great that it hangs on the order of sums and products what becomes infinite."""
        floats = [(v, ml_dtypes.finfo(v.dtype)) for v in values if getattr(v, "dtype", np.dtype(int)).kind in "fV"]
        if self.name in ("prod", "cumprod"):
            return any(furthest(v) > 0.93 * of.maxexp for v, of in floats)
        great = any((np.isfinite(v) & (np.abs(v) > float(of.max) ** 0.47)).any() for v, of in floats)
        return great and self.definition.fusion not in (Fusion.ELEMENTWISE, Fusion.BROADCAST, Fusion.INJECTIVE)

    def can_be_told(self, nested: Any) -> bool:
        """Whether the numbers of shapes are those that were compiled, where they are no variables."""
        known: dict[Any, int] = {}
        pairs = zip(self.params.places, numbers_of(nested), strict=True)
        return all(known.setdefault(p, n) == n if isinstance(p, ir.SizeVar) else p == n for p, n in pairs)

    def mismatch(self, nested: Any) -> str:
        """Why inputs cannot be given to what was compiled, whatever the operator means."""
        known: dict[Any, int] = {}
        tensors = [leaf for leaf in flat(nested) if leaf.kind == "tensor"]
        for leaf, shape, dtype in zip(tensors, self.compiled_shapes, self.dtypes, strict=True):
            if leaf.dtype != dtype:
                return f"the data type is {dtype}"
            if len(leaf.shape) != len(shape):
                return f"there are {len(shape)} dimensions"
            for d, c in zip(leaf.shape, shape, strict=True):
                if known.setdefault(c, d) != d if isinstance(c, ir.SizeVar) else c != d:
                    return f"the compiled shape is {[str(c) for c in shape]}"
        numbers = zip(self.params.places, numbers_of(nested), strict=True)
        return "a dimension is negative" if any(isinstance(p, ir.SizeVar) and n < 0 for p, n in numbers) else ""

    def run(self, nested: Any, values: list[Any]) -> list[Any]:
        arrays = [v for leaf, v in zip(flat(nested), values, strict=True) if leaf.kind == "tensor"]
        numbers = dict(zip(self.params.places, numbers_of(nested), strict=True))
        given = [runtime.ShapeTuple([numbers[v] for v in self.params.scalars])] if self.params.scalars else []
        out = self.function(*arrays, *given)
        return (
            [o.numpy() for o in out] if isinstance(out, (tuple, list)) or not hasattr(out, "numpy") else [out.numpy()]
        )

    def rounded_once(self, nested: Any, values: list[Any], found: list[Any]) -> list[Any]:
        """What the reference gives where floats of 16 bits are of 64 until the end: it is free to round each step."""
        wide = (v.astype(np.float64) if is_narrow(v) else v for v in values)
        attrs = {k: "float64" if v in FAMILIES[0] else v for k, v in self.case.attrs.items()}
        with np.errstate(all="ignore"):
            exact = self.definition.reference(*nest(nested, wide), **attrs)
            exact = exact if isinstance(exact, (tuple, list)) else [exact]
            return [np.asarray(e).astype(f.dtype) for e, f in zip(exact, found, strict=True)]

    def compared(self, found: list[Any], expected: Any, only_finite: bool) -> Outcome:
        expected = [np.asarray(e) for e in (expected if isinstance(expected, (tuple, list)) else [expected])]
        for f, e in zip(found, expected, strict=True):
            if f.shape != e.shape or f.dtype != e.dtype:
                return Outcome("different", f"shape or type: {f.dtype}{f.shape}, the reference {e.dtype}{e.shape}")
            if only_finite:
                finite = np.isfinite(f) & np.isfinite(e)
                f, e = f[finite], e[finite]
            try:
                rtol = self.case.rtol or self.definition.rtol
                compare(f, e, 10 * rtol, 10 * self.case.atol, self.case.steps)
            except AssertionError as error:
                return Outcome("different", " ".join(str(error).split()[:40]))
        return Outcome("equal")


def is_narrow(value: Any) -> bool:
    return getattr(value, "dtype", None) in (np.float16, ml_dtypes.bfloat16)


def mutate(leaf: Leaf, extents: list[int], rng: np.random.Generator) -> None:
    """Change an extent, the rank, the data type, values or the strides of one input."""
    kind = rng.random()
    if kind < 0.62 and leaf.shape:
        at = int(rng.integers(len(leaf.shape)))
        d = leaf.shape[at]
        choices = (0, 1, 2, 3, d + 1, max(d - 1, 0), 2 * d, int(rng.choice(extents)), int(rng.choice(EXTENTS)))
        leaf.shape = (*leaf.shape[:at], max(0, choices[int(rng.integers(len(choices)))]), *leaf.shape[at + 1 :])
    elif kind < 0.67 and leaf.shape:
        leaf.shape = tuple(int(d) for d in rng.permutation(leaf.shape))
    elif leaf.kind != "tensor":
        return
    elif kind < 0.71:
        leaf.shape = leaf.shape[1:] if rng.random() < 0.5 else (*leaf.shape, 1)
    elif kind < 0.74:
        leaf.dtype = str(rng.choice(DTYPES))
    elif kind < 0.80:
        leaf.strided = True
    else:
        of = extremes(leaf.dtype) if leaf.dtype in itertools.chain(*FAMILIES) else SPECIAL
        leaf.specials = tuple(of[int(rng.integers(len(of)))] for _ in range(int(rng.integers(1, 3))))


def smaller_leaves(nested: Any, seed: int) -> Iterator[tuple[Any, int]]:
    """The same inputs with one of them plainer or smaller."""
    for at, leaf in enumerate(flat(nested)):
        changes: list[dict[str, Any]] = [{"specials": ()}] if leaf.specials else []
        changes += [{"strided": False}] if leaf.strided else []
        for axis, d in enumerate(leaf.shape):
            for new in (n for n in (1, 2, 3, d // 2, d - 1) if 0 < n < d):
                changes.append({"shape": (*leaf.shape[:axis], new, *leaf.shape[axis + 1 :])})
        for change in changes:
            other = copy.deepcopy(nested)
            for key, value in change.items():
                setattr(next(itertools.islice(flat(other), at, None)), key, value)
            yield other, seed


class Kernel(Call):
    """One case's kernel alone, without what programs check before it: whatever is in its operands, it stays in them."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self.definition, self.complaints = name, get_op_def(name), []
        self.case = CASES[name][index](Sizes(SIZES[0], f"{name}{index}"))
        if self.case is None or self.definition.lower is None or name in TRUSTED:
            raise Outcome("skipped")
        self.level, self.expected = len(LEVELS) - 1, expected_of(name, self.case)
        self.kernel = compile_call(name, self.case, symbolic=False, scheduled=index % 2 == 1).kernel

    def draw(self, rng: np.random.Generator) -> tuple[Any, int]:
        nested = leaves_of(self.case.inputs)
        for leaf in flat(nested):
            specialize(leaf, 0.7, rng)
        return nested, int(rng.integers(1 << 30))

    def check(self, drawn: tuple[Any, int]) -> Outcome:
        rng = np.random.default_rng(drawn[1])
        given = [leaf.value(rng) for leaf in flat(drawn[0]) if leaf.kind == "tensor"]
        results = [np.empty_like(e) for e in self.expected]
        with suppress(*REFUSALS):
            self.kernel(*map(runtime.tensor, (*given, *results)))
        return Outcome("valid")


class Calls:
    """The suite of all operators' cases."""

    check_seconds = 5.0
    kind: type[Call] = Call

    def subjects(self) -> list[str]:
        return [f"{name}:{index}{dtype}" for name, index in with_cases() for dtype in ("", *self.others(name, index))]

    def others(self, name: str, index: int) -> list[str]:
        """The data types, behind a colon, that a case may be tried in besides its own."""
        case = next(c for s in SIZES if (c := CASES[name][index](Sizes(s, ""))) is not None)
        own = next((a.value.dtype.name for a in arrays_in(case.inputs)), "")
        wide = ("int32", "uint32", "int64", "uint64") if case.steps else ()  # rounded from float32
        return [f":{d}" for family in FAMILIES if own in family for d in family if d not in (own, *wide)]

    def open(self, subject: str) -> Call:
        name, index, *dtype = subject.split(":")
        return self.kind(name, int(index), *dtype)


class Kernels(Calls):
    """The suite of all operators' kernels."""

    kind = Kernel

    def subjects(self) -> list[str]:
        return [f"{name}:{index}" for name, index in with_cases()]
