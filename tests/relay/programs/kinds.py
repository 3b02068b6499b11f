"""Types of random programs: drawing them, comparing them, and drawing values of them.

`d` is what draws: it has ``number``, ``pick`` and ``chance``, and the library as ``lib``. What is simplest comes first.
"""

import numpy as np

from weft import ir, relay
from weft.relay.backend.interpreter import ConstructorValue

SCALARS = ("int32", "float32", "bool", "int64")
SHAPES = ((2,), (2, 3), (0,), (1, 3), (2, 2))
FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, -1.5, 3.0)
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
    return tuple(ir.as_int(d) for d in ty.shape)


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


def holds_function(ty):
    """Whether a function is among the values of a type."""
    return isinstance(ty, relay.FuncType) or any(map(holds_function, parts(ty)))


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


def tensor_type(d, variables=(), dynamic=()):
    """A type of tensors of known dimensions, scalars first; else a type variable, or a type of unknown dimensions."""
    rules = [
        lambda: scalar(d.pick(SCALARS)),
        lambda: relay.TensorType(d.pick(SHAPES), d.pick(("float32", "int32"))),
        *([lambda: d.pick(variables)] if variables else []),
        *([lambda: d.pick(dynamic)] if dynamic else []),
    ]
    return d.pick(rules)()


def tuple_type(d, leaf):
    """A tensor, or a tuple of tensors."""
    return leaf() if d.number(0, 2) < 2 else _tuple_of(d, leaf)


def _tuple_of(d, field):
    return relay.TupleType(tuple(field() for _ in range(d.number(0, 3))))


def data_type(d, leaf):
    """A type of values that can be compared: tensors, tuples, data types."""
    rules = (
        leaf,
        leaf,
        lambda: _tuple_of(d, leaf),
        lambda: d.lib.type_of(d.pick(("List", "Option", "Tree", "Rose")), leaf()),
        lambda: d.lib.type_of("Pair", leaf(), leaf()),
    )
    return d.pick(rules)()


def any_type(d, leaf):
    """A type of any values, functions and references too. References hold data, so that recursion is what it seems."""
    rules = (
        *(lambda: data_type(d, leaf),) * 5,
        lambda: _plain_function(d, leaf),
        lambda: relay.RefType(data_type(d, leaf)),
        lambda: _function_type(d, lambda: _holding(d, leaf, True), lambda: _holding(d, leaf, False)),
        lambda: d.lib.type_of(d.pick(("Option", "List")), _inner(d, leaf)),
        lambda: relay.TupleType((data_type(d, leaf), _inner(d, leaf))),
        lambda: _constructor_type(d, leaf),
    )
    return d.pick(rules)()


def _function_type(d, param, result):
    return relay.FuncType(tuple(param() for _ in range(d.number(0, 2))), result())


def _plain_function(d, leaf):
    """A type of functions of data."""
    return _function_type(d, lambda: data_type(d, leaf), lambda: data_type(d, leaf))


def _inner(d, leaf):
    """A type of functions or references."""
    return relay.RefType(data_type(d, leaf)) if d.chance(2) else _plain_function(d, leaf)


def _holding(d, leaf, cells):
    """A type of what functions of functions take and return."""
    which = d.number(0, 6 if cells else 5)
    if which < 5:
        return data_type(d, leaf)
    return _plain_function(d, leaf) if which == 5 else relay.RefType(data_type(d, leaf))


def _constructor_type(d, leaf):
    """A type of constructors as functions."""
    header, ctors = d.lib.types[d.pick(("Option", "List", "Pair"))]
    ty = header(*(data_type(d, leaf) for _ in d.lib.mod.type_definitions[header].type_vars))
    known = list(zip(d.lib.mod.type_definitions[header].type_vars, ty.args, strict=True))
    return relay.FuncType(tuple(replace(t, known) for t in ctors[-1].inputs), ty)


def array(d, ty):
    """An array of a type; dimensions that are not known are drawn."""
    shape = tuple(d.number(0, 3) if ir.as_int(n) is None else ir.as_int(n) for n in ty.shape)
    draw = {"bool": lambda: d.chance(2), "float32": lambda: d.pick(FLOATS)}.get(ty.dtype, lambda: d.number(-4, 5))
    return np.array([draw() for _ in range(int(np.prod(shape)))], ty.dtype).reshape(shape)


def value(d, ty, size=3):
    """A value of a data type, as an argument of a program."""
    if is_tensor(ty):
        return array(d, ty)
    if isinstance(ty, relay.TupleType):
        return tuple(value(d, f, size) for f in ty.fields)
    header, ctors = d.lib.types[ty.func.name_hint]
    known = list(zip(d.lib.mod.type_definitions[header].type_vars, ty.args, strict=True))
    ctor = ctors[0] if size <= 0 else d.pick(ctors)
    return ConstructorValue(ctor.tag, [value(d, replace(t, known), size - 1) for t in ctor.inputs], ctor)
