"""Types of random programs: drawing them, comparing them, and drawing values of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from weft import relay
from weft.ir import as_int
from weft.relay.backend.interpreter import ConstructorValue

SCALARS = ("int32", "float32", "bool", "int64")
SHAPES = ((2,), (3,), (0,), (2, 3), (1, 3), (3, 2), (2, 1), (0, 3), (2, 2))
UNIT = relay.TupleType(())


def scalar(dtype="int32"):
    """The type of a scalar."""
    return relay.scalar_type(dtype)


def is_tensor(ty):
    return isinstance(ty, relay.TensorType)


def has_any(ty):
    """Whether a dimension of a tensor is not known."""
    return is_tensor(ty) and any(isinstance(d, relay.Any) for d in ty.shape)


def shape_of(ty):
    """The dimensions of a tensor whose dimensions are known."""
    return tuple(as_int(d) for d in ty.shape)


def same(a, b):
    """Whether two types are one. A tensor of unknown dimensions has them in common only with itself."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, relay.TypeVar):
        return False
    if is_tensor(a):
        return not has_any(a) and not has_any(b) and a == b
    pairs = zip(parts(a), parts(b), strict=False)
    return head(a) == head(b) and len(parts(a)) == len(parts(b)) and all(same(x, y) for x, y in pairs)


def parts(ty):
    """The types that a type is made of."""
    if isinstance(ty, relay.TupleType):
        return tuple(ty.fields)
    if isinstance(ty, relay.FuncType):
        return (*ty.arg_types, ty.ret_type)
    if isinstance(ty, relay.RefType):
        return (ty.value,)
    return tuple(ty.args) if isinstance(ty, relay.TypeCall) else ()


def head(ty):
    """What distinguishes types of equal parts."""
    return ty.func if isinstance(ty, relay.TypeCall) else None


def is_data(ty):
    """Whether values of a type hold no functions and no cells."""
    return not isinstance(ty, (relay.FuncType, relay.RefType)) and all(map(is_data, parts(ty)))


def replace(ty, known):
    """Replace type variables, given as a list of (variable, type)."""
    for v, t in known:
        if v is ty:
            return t
    if is_tensor(ty) or isinstance(ty, (relay.TypeVar, relay.GlobalTypeVar)):
        return ty
    new = [replace(p, known) for p in parts(ty)]
    if isinstance(ty, relay.TupleType):
        return relay.TupleType(tuple(new))
    if isinstance(ty, relay.FuncType):
        return relay.FuncType(tuple(new[:-1]), new[-1])
    return relay.RefType(new[0]) if isinstance(ty, relay.RefType) else ty.func(*new)


def fit(pattern, ty, variables, known):
    """Extend `known` so that the pattern becomes the type; whether it can."""
    if any(v is pattern for v in variables):
        for v, t in known:
            if v is pattern:
                return same(t, ty)
        known.append((pattern, ty))
        return True
    if is_tensor(pattern) or isinstance(pattern, relay.TypeVar):
        return same(pattern, ty)
    if type(pattern) is not type(ty) or head(pattern) != head(ty) or len(parts(pattern)) != len(parts(ty)):
        return False
    return all(fit(p, t, variables, known) for p, t in zip(parts(pattern), parts(ty), strict=True))


def tensor_types():
    """Types of tensors of known dimensions, scalars first."""
    dtypes = st.sampled_from(SCALARS)
    return st.builds(lambda s, d: relay.TensorType(s, d), st.just(()) | st.sampled_from(SHAPES), dtypes)


def data_types(lib, leaves=None, depth=2):
    """Types of values that can be compared: tensors, tuples, data types."""
    leaves = tensor_types() if leaves is None else leaves
    if depth == 0:
        return leaves
    inner = data_types(lib, leaves, depth - 1)
    one = st.sampled_from(("List", "Option", "Tree", "Rose"))
    return st.one_of(
        leaves,
        st.lists(inner, max_size=3).map(lambda f: relay.TupleType(tuple(f))),
        st.builds(lib.type_of, one, inner),
        st.builds(lambda a, b: lib.type_of("Pair", a, b), inner, inner),
    )


def tuple_types(leaves):
    """Tensors, and tuples of them."""
    return leaves | st.lists(leaves, max_size=3).map(lambda f: relay.TupleType(tuple(f)))


def any_types(lib, leaves=None):
    """Types of any value: functions and references too. A reference holds data, so that recursion is what it seems."""
    data = data_types(lib, leaves, 1)
    functions = function_types(data, data)
    cells = data.map(relay.RefType)
    inner = st.one_of(functions, cells)
    return st.one_of(
        data,
        functions,
        cells,
        function_types(data | functions | cells, data | functions),
        st.builds(lib.type_of, st.sampled_from(("Option", "List")), inner),
        st.tuples(data, inner).map(relay.TupleType),
        constructor_types(lib, data),
    )


@st.composite
def constructor_types(draw, lib, data):
    """Types of constructors as functions."""
    name = draw(st.sampled_from(("Option", "List", "Pair")))
    header, ctors = lib.types[name]
    ty = header(*(draw(data) for _ in lib.mod.type_definitions[header].type_vars))
    known = list(zip(lib.mod.type_definitions[header].type_vars, ty.args, strict=True))
    return relay.FuncType(tuple(replace(t, known) for t in ctors[-1].inputs), ty)


def function_types(params, result):
    """Types of functions."""
    return st.builds(lambda p, r: relay.FuncType(tuple(p), r), st.lists(params, max_size=2), result)


@st.composite
def arrays(draw, ty, dims=None):
    """Arrays of a type; dimensions that are not known come from `dims`, else are drawn."""
    shape = tuple(
        draw(st.integers(0, 3)) if as_int(d) is None else as_int(d) for d in ty.shape
    ) if dims is None else dims  # fmt: skip
    n = int(np.prod(shape))
    if ty.dtype == "bool":
        element = st.booleans()
    elif ty.dtype == "float32":
        element = st.sampled_from((0.0, 1.0, -1.0, 0.5, 2.0, -1.5, 3.0))
    else:
        element = st.integers(-4, 5)
    return np.array(draw(st.lists(element, min_size=n, max_size=n)), ty.dtype).reshape(shape)


@st.composite
def values(draw, lib, ty, size=3):
    """Values of a data type, as arguments of a program."""
    if is_tensor(ty):
        return draw(arrays(ty))
    if isinstance(ty, relay.TupleType):
        return tuple(draw(values(lib, f, size)) for f in ty.fields)
    header, ctors = lib.types[ty.func.name_hint]
    known = list(zip(lib.mod.type_definitions[header].type_vars, ty.args, strict=True))
    ctor = ctors[0] if size <= 0 else draw(st.sampled_from(ctors))
    fields = [draw(values(lib, replace(t, known), size - 1)) for t in ctor.inputs]
    return ConstructorValue(ctor.tag, fields, ctor)
