"""Models of ``ai.onnx.ml``: linear ones and support vectors, what is done to features, labels and maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.ir import constant
from weft.runtime.host import Kind

_ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _f32(values: Any) -> Any:
    return constant(np.asarray(values, np.float32))


# --- scores and classes -----------------------------------------------------------------------------------------------


def transformed(node: Node, x: ir.Expr, transform: str) -> Any:
    """Apply a transformation of scores (rows, classes)."""
    dtype = x.ty.dtype
    if transform == "NONE":
        return x
    if transform == "LOGISTIC":
        return node.op("sigmoid", x)
    if transform == "SOFTMAX":
        return node.op("nn.softmax", x, axis=-1)
    if transform == "SOFTMAX_ZERO":  # zeros stay and count as nothing
        some = node.op("not_equal", x, node.scalar(0, dtype))
        zero = node.scalar(0, dtype)
        top = node.op("max", x, axis=(1,), keepdims=True)
        e = node.op("where", some, node.op("exp", node.op("subtract", x, top)), zero)
        total = node.op("sum", e, axis=(1,), keepdims=True)
        return node.op("where", some, node.op("divide", e, total), zero)
    if transform == "PROBIT":
        return _probit(node, x)
    node.error("an unknown transformation of scores", found=transform, expected=", ".join(TRANSFORMS))


def _probit(node: Node, x: Any) -> Any:
    """Compute ``sqrt(2) * erfinv(2 x - 1)``, the latter by Winitzki's formula."""
    z = node.emit(x * 2.0 - 1.0)
    log = node.op("log", node.emit((1.0 - z) * (1.0 + z)))
    half = node.emit(log * 0.5 + float(2 / (np.pi * 0.147)))
    root = node.op("sqrt", node.emit(half * half - log * (1 / 0.147)))
    size = node.op("sqrt", node.emit(root - half))
    return node.emit(node.op("sign", z) * size * float(np.sqrt(2.0)))


def class_labels(node: Node) -> Value:
    """Return a classifier's labels, int64 or strings."""
    texts = node.attr("classlabels_strings", [])
    if texts:
        return node.graph.texts_value(texts)
    numbers = node.attr("classlabels_ints") or node.attr("classlabels_int64s") or []
    if not numbers:
        node.error("it has no class labels")
    return Value.of_array(np.array(numbers, np.int64))


def classified(
    node: Node, scores: ir.Expr, labels: Value, transform: str, one_sided: bool = False, other: float | None = None
) -> Any:
    """Return the label of the greatest score, and transformed scores.

    One score for two classes is the second one's: greater than 0, or than a half where `one_sided` scores are shares.
    The first class's follows from it, or is `other`.
    """
    count = node.dims(scores)[-1]
    if count == 1 and labels.shape[0] == 2:
        dtype = scores.ty.dtype
        flat = node.reshape(scores, [node.dims(scores)[0]])
        index = node.astype(node.op("greater", flat, node.scalar(0.5 if one_sided else 0.0, dtype)), "int64")
        if other is not None:
            beside = node.full(node.dims(scores), other, dtype)
            scores = transformed(node, node.concat([beside, scores], 1), transform)
        elif transform == "PROBIT" and not one_sided:
            scores = transformed(node, scores, transform)
        else:
            scores = node.op("multiply", scores, constant(np.array([-1, 1], dtype)))
            if one_sided and transform != "LOGISTIC":
                scores = node.op("add", scores, constant(np.array([1, 0], dtype)))
            elif transform == "LOGISTIC":
                scores = transformed(node, scores, transform)
    else:
        if count != labels.shape[0]:
            node.error("as many scores as labels", expected=str(labels.shape[0]), found=str(count))
        index = node.op("argmax", scores, axis=1, keepdims=False, dtype="int64")
        scores = transformed(node, scores, transform)
    numbers = labels.array if labels.logical == "int64" else None
    if numbers is not None and np.array_equal(numbers, np.arange(len(numbers))):
        found = index  # labels that count from 0 on
    else:
        found = node.op("take", node.graph.expr(labels), index, axis=0, mode="clip")
    return Value.of_expr(found).as_kind(labels.logical), node.astype(scores, "float32")


def _rows(node: Node) -> Any:
    """Return features as float32 (rows, features)."""
    x = node.astype(node.x(), "float32")
    node.require_rank(0, 1, 2)
    return x if node.ndim() == 2 else node.reshape(x, [1, *node.shape()])


def _matrix(node: Node, values: Any, rows: int, what: str) -> Any:
    if rows < 1 or len(values) % rows:
        node.error(f"{what} do not make {rows} rows", found=f"{len(values)} numbers")
    return np.asarray(values, np.float32).reshape(rows, -1)


@converter("LinearRegressor", domain=_ML)
def _linear_regressor(node: Node) -> Any:
    weight = _matrix(node, node.attr("coefficients", []), node.attr("targets", 1), "coefficients")
    out = node.op("matmul", _rows(node), constant(weight.T.copy()))
    intercepts = node.attr("intercepts", [])
    out = node.op("add", out, _f32(intercepts)) if intercepts else out
    return transformed(node, out, node.attr("post_transform", "NONE"))


@converter("LinearClassifier", domain=_ML)
def _linear_classifier(node: Node) -> Any:
    labels, intercepts = class_labels(node), node.attr("intercepts", [])
    rows = len(intercepts) or labels.shape[0]
    weight = _matrix(node, node.attr("coefficients"), rows, "coefficients")
    scores = node.op("matmul", _rows(node), constant(weight.T.copy()))
    scores = node.op("add", scores, _f32(intercepts)) if intercepts else scores
    transform = node.attr("post_transform", "NONE")
    if rows == 1 and labels.shape[0] == 2:
        index = node.astype(node.op("greater", scores, node.scalar(0.0, "float32")), "int64")
        index = node.reshape(index, [node.dims(scores)[0]])
        found = node.op("take", node.graph.expr(labels), index, axis=0, mode="clip")
        one = transformed(node, scores, transform) if transform in ("LOGISTIC", "PROBIT") else scores
        both = node.concat([node.emit(1.0 - one), one], 1)
        return Value.of_expr(found).as_kind(labels.logical), both
    return classified(node, scores, labels, transform)


# --- support vectors --------------------------------------------------------------------------------------------------


def _kernel(node: Node, x: Any, vectors: Any) -> Any:
    """Compute the kernel of rows and support vectors, (rows, vectors)."""
    kind = node.attr("kernel_type", "LINEAR")
    gamma, offset, degree = (*node.attr("kernel_params", []), 0.0, 0.0, 0.0)[:3]
    product = node.op("matmul", x, constant(vectors.T.copy()))
    if kind == "LINEAR":
        return product
    if kind == "RBF":
        own = node.op("sum", node.op("multiply", x, x), axis=(1,), keepdims=True)
        distance = node.emit(own - product * 2.0 + _f32((vectors.astype(np.float64) ** 2).sum(1)))
        return node.op("exp", node.emit(distance * float(-gamma)))
    inner = node.emit(product * float(gamma) + float(offset))
    if kind == "POLY":
        return node.op("power", inner, node.scalar(degree, "float32"))
    if kind == "SIGMOID":
        return node.op("tanh", inner)
    node.error("an unknown kernel", expected="LINEAR, POLY, RBF or SIGMOID", found=kind)


@converter("SVMRegressor", domain=_ML)
def _svm_regressor(node: Node) -> Any:
    x, count, coefficients = _rows(node), node.attr("n_supports", 0), node.attr("coefficients", [])
    rho = node.attr("rho", [0.0])[0]
    if count:
        x = _kernel(node, x, _matrix(node, node.attr("support_vectors", []), count, "support vectors"))
    scores = node.op("matmul", x, constant(np.asarray(coefficients, np.float32).reshape(-1, 1)))
    scores = node.emit(scores + float(rho))
    if node.attr("one_class", 0):
        positive = node.op("greater", scores, node.scalar(0.0, "float32"))
        return node.op("where", positive, node.scalar(1.0, "float32"), node.scalar(-1.0, "float32"))
    return transformed(node, scores, node.attr("post_transform", "NONE"))


@converter("SVMClassifier", domain=_ML)
def _svm_classifier(node: Node) -> Any:
    """Each pair of classes has a score; the class that wins most of its pairs is the answer."""
    labels, per_class, x = class_labels(node), node.attr("vectors_per_class", []), _rows(node)
    rho, transform = node.attr("rho", []), node.attr("post_transform", "NONE")
    classes = labels.shape[0]
    if not per_class:  # a linear model in this form
        weight = _matrix(node, node.attr("coefficients"), classes, "coefficients")
        scores = node.emit(node.op("matmul", x, constant(weight.T.copy())) + float(rho[0]))
        return classified(node, scores, labels, transform)
    node.require_equal("vectors of each class", len(per_class), classes)
    node.require_between("vectors of a class", min(per_class), 0, None)
    total = sum(per_class)
    vectors = _matrix(node, node.attr("support_vectors", []), total, "support vectors")
    given = _matrix(node, node.attr("coefficients"), classes - 1, "coefficients")
    node.require_equal("coefficients of a class", given.shape[1], total)
    starts = np.cumsum([0, *per_class])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    a, b = node.attr("prob_a", []), node.attr("prob_b", [])
    for name, values in (("rho", rho), *((("prob_a", a), ("prob_b", b)) if a or b else ())):
        node.require_equal(f"'{name}': one for each pair of classes", len(values), len(pairs))
    table = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        mine, other = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        table[mine, p], table[other, p] = given[j - 1, mine], given[i, other]
    scores = node.op("add", node.op("matmul", _kernel(node, x, vectors), constant(table)), _f32(rho))
    first = node.astype(node.op("greater", scores, node.scalar(0.0, "float32")), "float32")
    wins = np.zeros((2, len(pairs), classes), np.float32)
    for p, (i, j) in enumerate(pairs):
        wins[0, p, i] = wins[1, p, j] = 1
    won = (node.op("matmul", x, constant(w)) for x, w in zip((first, node.emit(1.0 - first)), wins, strict=True))
    votes = node.op("add", *won)
    index = node.op("argmax", votes, axis=1, keepdims=False, dtype="int64")
    found = Value.of_expr(node.op("take", node.graph.expr(labels), index, axis=0, mode="clip"))
    if a:
        out = _shares(node, classes, pairs, node.emit(scores * _f32(a) + _f32(b)))
    else:
        out = node.concat([node.op("negative", scores), scores], 1) if classes == 2 else scores
    return found.as_kind(labels.logical), transformed(node, out, transform)


def _shares(node: Node, classes: int, pairs: list[tuple[int, int]], exponents: Any) -> Any:
    """Return the classes' probabilities: those of pairs by Platt's curve, coupled."""
    first = node.op("clip", node.op("sigmoid", node.op("negative", exponents)), 1e-7, 1 - 1e-7)
    table = np.zeros((classes, classes), np.int64)
    for p, (i, j) in enumerate(pairs):
        table[i, j], table[j, i] = p, len(pairs) + p
    wide = node.op("take", node.concat([first, node.emit(1.0 - first)], 1), constant(table), axis=1, mode="clip")
    return node.op("couple_pairs", wide)


# --- features ---------------------------------------------------------------------------------------------------------


@converter("Scaler", domain=_ML)
def _scaler(node: Node) -> Any:
    x = node.astype(node.x(), "float32")
    offset, scale = node.attr("offset", []), node.attr("scale", [])
    x = node.op("subtract", x, _f32(offset)) if offset else x
    return node.op("multiply", x, _f32(scale)) if scale else x


@converter("Normalizer", domain=_ML)
def _normalizer(node: Node) -> Any:
    norm, x = node.attr("norm", "MAX"), node.astype(node.x(), "float32")
    if norm not in ("MAX", "L1", "L2"):
        node.error("an unknown norm", expected="MAX, L1 or L2", found=norm)
    values = node.op("multiply", x, x) if norm == "L2" else x if norm == "MAX" else node.op("abs", x)
    total = node.op("max" if norm == "MAX" else "sum", values, axis=(-1,), keepdims=True)
    total = node.op("sqrt", total) if norm == "L2" else total
    zero = node.op("equal", total, node.scalar(0.0, "float32"))
    return node.op("divide", x, node.op("where", zero, node.scalar(1.0, "float32"), total))


@converter("Binarizer", domain=_ML)
def _binarizer(node: Node) -> Any:
    x = node.x() if node.is_float() else node.astype(node.x(), "float64")
    threshold = node.scalar(node.attr("threshold", 0.0), x.ty.dtype)
    return node.astype(node.op("greater", x, threshold), node.dtype())


@converter("Imputer", domain=_ML)
def _imputer(node: Node) -> Any:
    is_float, dtype = node.is_float(), node.dtype()
    values = node.attr("imputed_value_floats" if is_float else "imputed_value_int64s", [])
    missing = node.attr("replaced_value_float" if is_float else "replaced_value_int64", 0)
    if not values:
        node.error("it has no values to put in")
    if len(values) > 1:
        node.require_equal("one value for each feature", node.shape()[-1], len(values))
    x = node.x()
    absent = node.op("isnan", x) if missing != missing else node.op("equal", x, node.scalar(missing, dtype))
    return node.op("where", absent, constant(np.array(values if len(values) > 1 else values[0], dtype)), x)


@converter("FeatureVectorizer", domain=_ML)
def _feature_vectorizer(node: Node) -> Any:
    """Put features side by side, each cut off or filled up with zeros to the width that is said."""
    widths = node.attr("inputdimensions", [])
    parts = []
    for i in range(len(node.inputs)):
        x, shape = node.astype(node.x(i), "float32"), node.shape(i)
        x = node.reshape(x, [1, *shape]) if len(shape) == 1 else x
        size, width = node.dims(x)[-1], widths[i] if i < len(widths) else node.dims(x)[-1]
        kept = s.minimum(size, width)
        x = node.slice(x, [1], [0], [kept])
        rest = s.subtract(width, kept)
        parts.append(x if s.same(rest, 0) else node.concat([x, node.full([node.dims(x)[0], rest], 0, "float32")], 1))
    return node.concat(parts, 1)


@converter("ArrayFeatureExtractor", domain=_ML)
def _array_feature_extractor(node: Node) -> Any:
    last = node.ndim() - 1
    count = s.product(node.shape(1))
    node.require_indices("an index", node.x(1), 0, node.shape()[last])
    out = node.op("take", node.x(), node.reshape(node.x(1), [count]), axis=last, mode="clip")
    return node.reshape(out, [1, count]) if node.ndim() == 1 else out


@converter("OneHotEncoder", domain=_ML)
def _one_hot_encoder(node: Node) -> Any:
    texts = node.attr("cats_strings", [])
    known = node.graph.texts_value(texts) if texts else Value.of_array(np.array(node.attr("cats_int64s", []), np.int64))
    x = node.x() if texts else node.astype(node.x(), "int64")
    wide = node.reshape(x, [*node.shape(), 1])
    found = node.op("equal", wide, node.graph.expr(known))
    if not node.attr("zeros", 1):
        held = node.op("max", node.astype(found, "int64"), axis=(-1,), keepdims=False)
        node.require_indices("unknown categories", node.op("subtract", node.scalar(1, "int64"), held), 0, 1)
    return node.astype(found, "float32")


# --- labels and maps --------------------------------------------------------------------------------------------------


def _listed(node: Node, name: str, forms: tuple[str, ...]) -> Value | None:
    """Return one of several lists of values, or None where there is none."""
    for form, dtype in zip(forms, ("string", "int64", "float32", ""), strict=True):
        value = node.attr(f"{name}_{form}")
        if value is None or (isinstance(value, list) and not value):
            continue
        return node.graph.read(value) if form == "tensor" else constant_list(node, value, dtype)
    return None


def constant_list(node: Node, values: np.typing.ArrayLike, dtype: str) -> Value:
    """Return texts or numbers as a constant."""
    return node.graph.texts_value(values) if dtype == "string" else Value.of_array(np.array(values, dtype))


_LISTS = ("strings", "int64s", "floats", "tensor")
_ONES = ("string", "int64", "float", "tensor")
_DEFAULTS = {"string": "_Unused", "int64": -1, "float32": -0.0}


@converter("LabelEncoder", domain=_ML)
def _label_encoder(node: Node) -> Any:
    if node.opset < 2:
        texts = node.attr("classes_strings", [])
        return _mapped(node, texts, list(range(len(texts))))
    keys, values = (_listed(node, name, _LISTS) for name in ("keys", "values"))
    if keys is None or values is None:
        node.error("it has no keys or values")
    rest = _listed(node, "default", _ONES)
    if rest is None or rest.logical != values.logical:
        rest = constant_list(node, _DEFAULTS.get(values.logical, 0), values.logical)
    return encoded(node, keys, values, rest)


def encoded(node: Node, keys: Value, values: Value, default: Value) -> Value:
    """The value whose key an element of the first input is, or the default; all of them are constants."""
    table, found, rest = (np.asarray(v.array).reshape(-1) for v in (keys, values, default))
    if (keys.logical == "string") != (node.logical() == "string"):
        node.error("keys of another type", expected=node.logical(), found=keys.logical)
    span = table.max(initial=0).item() - table.min(initial=0).item()  # of texts, some of the model's
    dense = keys.logical == "string" or (table.dtype.kind == "i" and span <= 4 * len(table) + 1024)
    find = _found_in_table if dense else _found_by_order
    return Value.of_expr(find(node, table, found, rest)).as_kind(values.logical)


def _found_in_table(node: Node, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> ir.Expr:
    """Take the value from a table of all numbers between the least key and the greatest, and of those beside them."""
    low, high = keys.min(initial=0).item() - 1, keys.max(initial=0).item() + 1
    table = np.full(high - low + 1, default, values.dtype)
    table[keys[::-1] - low] = values[::-1]
    place = node.op("clip", node.astype(node.x(), "int64"), min=low, max=high)
    return node.op("take", constant(table), node.emit(place - low), axis=0, mode="clip")


def _found_by_order(node: Node, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> ir.Expr:
    """Look where an element would lie among the keys in order, and whether that one is it."""
    x, rest = node.x(), constant(default.reshape(()))
    ordered, first = np.unique(keys, return_index=True)  # NaN comes last
    known = ~np.isnan(ordered)
    out = node.full(node.shape(), default.item(), default.dtype.name)
    if known.any():
        places = node.op("bucketize", x, constant(ordered[known]))
        tables = values[first[known]], ordered[known]
        out, key = (node.op("take", constant(t), places, axis=0, mode="clip") for t in tables)
        out = node.op("where", node.op("equal", x, key), out, rest)
    if node.opset >= 4 and not known.all():
        out = node.op("where", node.op("isnan", x), constant(values[first[-1]].reshape(())), out)
    return out


def _mapped(node: Node, texts: list[str], numbers: list[int]) -> Any:
    """The number of each text, or the text of each number, as two lists have them."""
    names, places = (constant_list(node, v, d) for v, d in ((texts, "string"), (numbers, "int64")))
    if node.logical() == "string":
        return encoded(node, names, places, constant_list(node, node.attr("default_int64", -1), "int64"))
    return encoded(node, places, names, constant_list(node, node.attr("default_string", "_Unused"), "string"))


@converter("CategoryMapper", domain=_ML)
def _category_mapper(node: Node) -> Any:
    return _mapped(node, node.attr("cats_strings", []), node.attr("cats_int64s", []))


@converter("ZipMap", domain=_ML)
def _zip_map(node: Node) -> Any:
    texts = node.attr("classlabels_strings", [])
    keys = tuple(texts or node.attr("classlabels_int64s", []))
    rows = node.x() if node.ndim() == 2 else node.reshape(node.x(), [1, *node.shape()])
    node.require_equal("as many columns as there are labels", node.dims(rows)[1], len(keys))
    of = Kind("map", "string" if texts else "int64", of=Kind("tensor", "float32"))
    return Value.of_expr(rows, Kind("sequence", of=of, keys=keys))


@converter("DictVectorizer", domain=_ML)
def _dict_vectorizer(node: Node) -> Any:
    keys = node.attr("string_vocabulary", []) or node.attr("int64_vocabulary", [])
    of = node.value(0).full_kind.of
    dtype = of.dtype if of is not None else "float32"
    return node.host("DictVectorizer", node.inputs, [Kind("tensor", dtype, 2)], keys=keys, dtype=dtype)


_CASTS = {"TO_FLOAT": "float32", "TO_STRING": "string", "TO_INT64": "int64"}


@converter("CastMap", domain=_ML)
def _cast_map(node: Node) -> Any:
    dtype = _CASTS.get(node.attr("cast_to", "TO_FLOAT"))
    form = node.attr("map_form", "DENSE")
    if dtype is None or form not in ("DENSE", "SPARSE"):
        node.error("an unknown form", expected=", ".join(_CASTS), found=node.attr("cast_to", ""))
    attrs = {"map_form": form, "dtype": dtype, "max_map": node.attr("max_map", 1)}
    return node.host("CastMap", node.inputs, [Kind("tensor", dtype, 2)], **attrs)
