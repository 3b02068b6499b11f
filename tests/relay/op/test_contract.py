"""The contract of every operator of Relay's registry."""

from typing import Any

import numpy as np
import pytest

from tests.op.contract import compare
from tests.relay.op import cases  # noqa: F401 - registers the cases
from tests.relay.op.contract import CASES, Case, arguments, drawn, expected, typed_call, unknown, values
from weft import relay
from weft.error import WeftError
from weft.ir import as_int
from weft.relay.op import declaration, evaluate, infer_call, list_ops, op_call
from weft.relay.types import TensorType, TupleType

OPERATORS = [n for n in list_ops() if declaration(n).infer is None]  # others are the compiler's
ALL = [(name, i) for name in OPERATORS for i in range(len(CASES.get(name, ())))]


def test_every_operator_has_cases_and_words() -> None:
    assert sorted(set(OPERATORS) - set(CASES)) == []
    assert sorted(set(CASES) - set(OPERATORS)) == []
    for name in OPERATORS:
        assert declaration(name).doc.endswith("."), name


def flat(value: Any) -> list[Any]:
    return [v for f in value for v in flat(f)] if isinstance(value, tuple) else [value]


def types_of(ty: Any) -> list[TensorType]:
    return [t for f in ty.fields for t in types_of(f)] if isinstance(ty, TupleType) else [ty]


@pytest.mark.parametrize(("name", "index"), ALL)
def test_type_and_value(name: str, index: int) -> None:
    """The inferred type is the type of the value, and the value is NumPy's."""
    for case in drawn(name, index):
        node = typed_call(name, case)
        found = evaluate(node, values(case))
        types, arrays = types_of(infer_call(node)), flat(found)
        assert len(types) == len(arrays)
        for ty, array in zip(types, arrays, strict=True):
            assert type(ty) is TensorType
            if any(i.kind == "values" for i in declaration(name).inputs):
                assert len(ty.shape) == array.ndim
                assert all(as_int(d) in (None, n) for d, n in zip(ty.shape, array.shape, strict=True))
            else:
                assert ty.concrete_shape == array.shape
            assert ty.dtype == array.dtype.name
        if case.expect is not None:
            wanted = flat(expected(case))
            assert len(wanted) == len(arrays)
            for f, e in zip(arrays, wanted, strict=True):
                assert f.shape == np.shape(e)
                compare(f, np.asarray(e).astype(f.dtype), case.rtol, case.atol)


@pytest.mark.parametrize(("name", "index"), ALL)
@pytest.mark.parametrize("dim", [unknown, lambda d: relay.Any()], ids=["named", "all"])
def test_unknown_dimensions(name: str, index: int, dim: Any) -> None:
    """With unknown dimensions the type says what it can; with all unknown it may ask for a number."""
    for case in drawn(name, index):
        arrays = flat(evaluate(typed_call(name, case), values(case)))
        try:
            found = types_of(infer_call(typed_call(name, case, dim)))
        except WeftError as e:
            assert dim is not unknown, f"{name} refuses unknown dimensions: {e}"
            continue
        for ty, array in zip(found, arrays, strict=True):
            assert ty.dtype == array.dtype.name
            assert len(ty.shape) == array.ndim
            assert all(isinstance(d, relay.Any) or as_int(d) == n for d, n in zip(ty.shape, array.shape, strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_wrong_arguments(name: str) -> None:
    """A wrong number of arguments, a tuple for a tensor and an unknown attribute are errors that name the operator."""
    case = drawn(name, 0)[0]
    args = arguments(case, int)
    x = relay.var("x", shape=(2, 3))
    if args and not declaration(name).variadic:
        least = [i for i in declaration(name).inputs if not i.optional]
        with pytest.raises(WeftError) as e:
            infer_call(op_call(name, *args[: len(least) - 1], **case.attrs))
        assert name in str(e.value)
        assert e.value.expected
        assert e.value.found
    with pytest.raises(WeftError) as e:
        infer_call(op_call(name, *args, *[x] * (len(declaration(name).inputs) + 1 - len(args)), **case.attrs))
    assert name in str(e.value)
    with pytest.raises(WeftError, match="nonsense"):
        op_call(name, *args, nonsense=1)
    for i, spec in enumerate(declaration(name).inputs[: len(args)]):
        if spec.kind == "tensor":
            wrong = relay.Tuple((x, x), ty=TupleType((x.ty, x.ty)))
            with pytest.raises(WeftError) as e:
                infer_call(op_call(name, *args[:i], wrong, *args[i + 1 :], **case.attrs))
            assert name in str(e.value)


@pytest.mark.parametrize("name", OPERATORS)
def test_other_ranks_and_types_are_taken_or_refused(name: str) -> None:
    """An argument of another rank or data type gives a type, or an error that names the operator; nothing else."""
    case = drawn(name, 0)[0]
    args = arguments(case, int)
    for i, arg in enumerate(args):
        if not isinstance(getattr(arg, "ty", None), TensorType):
            continue
        for ty in others(arg.ty):
            try:
                infer_call(op_call(name, *args[:i], relay.Var("wrong", ty), *args[i + 1 :], **case.attrs))
            except WeftError as e:
                assert name.removeprefix("dyn.") in str(e), str(e)  # noqa: PT017 - any other error fails


def others(ty: TensorType) -> list[TensorType]:
    shapes = [(), (3,), (*ty.shape, 2), (2, *ty.shape), tuple(as_int(d) + 1 for d in ty.shape)]
    return [TensorType(s, ty.dtype) for s in shapes] + [TensorType(ty.shape, d) for d in ("bool", "int8", "float16")]


def test_a_case_that_is_wrong_fails() -> None:
    case = Case((np.float32([1, 2]),), {}, lambda x: x + 1)
    assert not np.allclose(evaluate(typed_call("negative", case), values(case)), expected(case))
