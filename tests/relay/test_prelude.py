"""The standard library means what Python's lists do."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, ir, relay
from weft.relay.interpreter import Interpreter
from weft.relay.prelude import Prelude, StaticTensorArrayOps, get_tensor_array_shape, import_std
from weft.relay.values import ConstructorValue

P = Prelude()
P.get_type("tensor_t", "float32")


def python(value):
    """Turn a result into Python's values: lists, tuples, numbers, trees as (value, children), options."""
    if isinstance(value, ConstructorValue):
        match value.constructor.name_hint:
            case "Cons" | "Nil":
                items = []
                while len(value):
                    items.append(python(value[0]))
                    value = value[1]
                return items
            case "Rose":
                return (python(value[0]), *python(value[1]))
            case "None":
                return None
            case "Some":
                return ("some", python(value[0]))
        return value
    if isinstance(value, tuple):
        return tuple(python(v) for v in value)
    return value.numpy().tolist()


def run(text, mod=P.mod):
    return python(Interpreter(mod).evaluate(relay.parse_expr(text, mod=mod)))


def lst(values, write=str):
    text = "Nil"
    for v in reversed(values):
        text = f"Cons({write(v)}, {text})"
    return text


VALUES = [3, 1, 4, 1, 5]
XS = lst(VALUES)
SUB = "fn (%a, %b) { %a * 2 - %b }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"@hd({XS})", 3),
        (f"@tl({XS})", [1, 4, 1, 5]),
        (f"@nth({XS}, 2)", 4),
        (f"@update({XS}, 2, 7)", [3, 1, 7, 1, 5]),
        (f"@update({XS}, 0, 7)", [7, 1, 4, 1, 5]),
        (f"@length({XS})", 5),
        ("@length(Nil)", 0),
        (f"@sum({XS})", 14),
        (f"@map(fn (%x) {{ %x + 1 }}, {XS})", [4, 2, 5, 2, 6]),
        (f"@rev({XS})", VALUES[::-1]),
        (f"@concat({XS}, {lst([7, 8])})", [*VALUES, 7, 8]),
        (f"@concat(Nil, {XS})", VALUES),
        (f"@filter(fn (%x) {{ %x > 2 }}, {XS})", [3, 4, 5]),
        (f"@zip({XS}, {lst([1, 2, 3], '{}f'.format)})", [(3, 1.0), (1, 2.0), (4, 3.0)]),
        (f"@foldl({SUB}, 10, {XS})", ((((10 * 2 - 3) * 2 - 1) * 2 - 4) * 2 - 1) * 2 - 5),
        (f"@foldr({SUB}, 10, {XS})", 3 * 2 - (1 * 2 - (4 * 2 - (1 * 2 - (5 * 2 - 10))))),
        (f"@foldr1({SUB}, {XS})", 3 * 2 - (1 * 2 - (4 * 2 - (1 * 2 - 5)))),
        (f"@map_accuml(fn (%s, %x) {{ (%s + %x, %s) }}, 0, {XS})", (14, [9, 8, 4, 3, 0])),
        (f"@map_accumr(fn (%s, %x) {{ (%s + %x, %s) }}, 0, {XS})", (14, [11, 10, 6, 5, 0])),
        ("@unfoldr(fn (%s) { if (%s < 4) { Some((%s + 1, %s * %s)) } else { None } }, 0)", [0, 1, 4, 9]),
        ("@unfoldl(fn (%s) { if (%s < 4) { Some((%s + 1, %s * %s)) } else { None } }, 0)", [9, 4, 1, 0]),
        ("@id(5)", 5),
        ("@compose(fn (%x) { %x + 1 }, fn (%x) { %x * 10 })(3)", 31),
        ("@flip(fn (%a, %b) { %a - %b })(1, 10)", 9),
        ("@iterate(fn (%x) { %x * 2 }, 10)(1)", 1024),
        ("@iterate(fn (%x) { %x * 2 }, 0)(7)", 7),
        ("@size(Rose(1, Cons(Rose(2, Nil), Cons(Rose(3, Cons(Rose(4, Nil), Nil)), Nil))))", 4),
        ("@tmap(fn (%x) { %x * 2 }, Rose(1, Cons(Rose(2, Nil), Nil)))", (2, (4,))),
    ],
)
def test_functions(text, expected):
    assert run(text) == expected


def test_the_order_of_effects_is_that_of_the_list():
    text = f"""
    let %last = ref(0);
    let %seen = fn (%x: int32) -> int32 {{
      let %before = ref_read(%last);
      ref_write(%last, %x);
      %before
    }};
    @map(%seen, {XS})
    """
    assert run(text) == [0, *VALUES[:-1]]


def test_long_lists_need_no_stack():
    many = "@unfoldr(fn (%s) { if (%s < 3000) { Some((%s + 1, %s)) } else { None } }, 0)"
    assert run(f"@foldr(fn (%x, %s) {{ %s + 1 }}, 0, @map(fn (%x) {{ %x + 1 }}, @concat({many}, Nil)))") == 3000


def test_types_are_inferred():
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    assert P.mod[P.length].checked_type == relay.FuncType([P.l(a)], relay.scalar_type("int32"), [a])
    arrow = relay.FuncType([a], b)
    assert P.mod[P.map].checked_type == relay.FuncType([arrow, P.l(a)], P.l(b), [a, b])


def test_the_text_of_a_prelude_is_a_program():
    ir.assert_structural_equal(relay.parse(P.mod.astext()), P.mod)
    ir.assert_structural_equal(ir.load_json(ir.save_json(P.mod)), P.mod)


def test_it_goes_into_modules():
    mod = ir.IRModule()
    mod.import_from_std("prelude.rly")
    listed = dict(mod.items())
    p = Prelude(mod)
    again = len(mod)
    assert all(mod[v] is f for v, f in listed.items()) and "tensor_concatenate_int64" in mod
    assert len(Prelude(mod).mod) == again and p.mod is mod and p.mod.get_type("List") == (p.l, p.cons, p.nil)
    assert p.get_ctor("List", "Cons") is p.cons and p.get_type("List")[0] is p.l
    from_text = relay.parse(mod.astext())
    Prelude(from_text)
    assert len(from_text) == again


def test_mistakes():
    with pytest.raises(error.InvalidArgument, match=r"(?s)no standard text 'none.rly'.*prelude.rly"):
        import_std(ir.IRModule(), "none.rly")
    with pytest.raises(error.InvalidArgument, match="another data type 'List'"):
        Prelude(relay.parse("type List[A] { Cons(List[A], A), Nil }"))
    refuses(error.InvalidArgument, "no constructor 'Snoc'", P.get_ctor, "List", "Snoc")
    refuses(error.InvalidArgument, "no such data type", P.get_global_var, "tensor_array_read", "flaot32")
    refuses(AttributeError, "the prelude has no 'mpa'", getattr, P, "mpa")


# --- arrays of tensors ------------------------------------------------------------------------------------------------


def tensors(*arrays):
    """Arguments that are a list of tensors of any ranks."""
    value = Interpreter(P.mod).evaluate(relay.parse_expr("Nil", mod=P.mod))
    for a in reversed(arrays):
        ctor = P.get_tensor_ctor(f"tensor{np.ndim(a)}", str(a.dtype))
        value = ConstructorValue(P.cons.tag, [ConstructorValue(ctor.tag, [a], ctor), value], P.cons)
    return value


def call(canonical, *args, dtype="float32"):
    return Interpreter(P.mod).evaluate(P.get_global_var(canonical, dtype))(*args)


def elements(value):
    """Turn a list of tensors into NumPy arrays; what has no value is None."""
    found = []
    while len(value):
        found.append(value[0][0].numpy() if len(value[0]) else None)
        value = value[1]
    return found


def same(got, expected):
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)


RNG = np.random.default_rng(0)


def rand(*shape, dtype="float32"):
    return (RNG.standard_normal(shape) * 10).astype(dtype)


def test_arrays_are_lists_of_tensors():
    assert elements(call("tensor_array", np.int32(3))) == [None] * 3
    x, y = rand(2, 3), rand(1, 3)
    same(elements(call("tensor_array_write", tensors(x, x, y), np.int32(1), tensors(y)[0])), [x, y, y])
    same([call("tensor_array_read", tensors(x, y), np.int32(1))[0].numpy()], [y])


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_concat_stack_and_gather(rank, dtype):
    tail = (3, 2)[: rank - 1]
    x, y, z = (rand(n, *tail, dtype=dtype) for n in (2, 1, 4))
    same([call("tensor_array_concat", tensors(x, y, z), dtype=dtype)[0].numpy()], [np.concatenate([x, y, z])])
    rows = [rand(3, *tail, dtype=dtype) for _ in range(3)]
    same([call("tensor_array_stack", tensors(*rows), dtype=dtype)[0].numpy()], [np.stack(rows)])
    at = np.array([2, 0], "int32")
    same([call("tensor_array_gather", tensors(*rows), at, dtype=dtype)[0].numpy()], [np.stack(rows)[at]])


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_unstack_and_split(rank):
    x = rand(5, *(2, 3, 1)[: rank - 1])
    same(elements(call(f"tensor_array_unstack_tensor{rank}", x)), list(x))
    lengths = np.array([2, 0, 3], "int32")
    empty = call("tensor_array", np.int32(3))
    same(elements(call("tensor_array_split", empty, tensors(x)[0], lengths)), [x[:2], x[2:2], x[2:]])


def test_scatter():
    x, y = rand(2), rand(3, 1)
    empty = call("tensor_array", np.int32(3))
    a, b, c = elements(call("tensor_array_scatter", empty, np.array([2, 0], "int32"), tensors(x, y)))
    same([a, c], [y, x])
    assert b is None


@pytest.mark.parametrize("shape", [[], [3], [2, 0], [relay.Any(), 2]])
def test_static_tensor_arrays_stack_and_gather(shape: list) -> None:
    p = Prelude()
    ops = StaticTensorArrayOps(p, "float32", shape)
    ops.register()
    sizes = [2 if isinstance(d, relay.Any) else d for d in shape]
    a, b = relay.var("a", shape=sizes), relay.var("b", shape=sizes)
    make, write, tensor = (
        ops.get_global_var("tensor_array"),
        ops.get_global_var("tensor_array_write"),
        ops.get_ctor("tensor_constructor"),
    )
    array = write(write(make(relay.const(2)), relay.const(0), tensor(a)), relay.const(1), tensor(b))
    gathered = ops.get_global_var("tensor_array_gather")(array, relay.const(np.array([1, 0, 1], "int32")))
    stacked = StaticTensorArrayOps(p, "float32", [relay.Any(), *shape]).get_global_var("tensor_get_data")(gathered)
    p.mod["main"] = relay.Function([a, b], stacked)
    x, y = (np.random.default_rng(i).random(sizes, "float32") for i in range(2))
    for kind in ("debug", "vm"):
        got = relay.create_executor(kind, mod=p.mod).evaluate()(x, y)
        np.testing.assert_array_equal(got.numpy(), np.stack([y, x, y]))
    assert get_tensor_array_shape(array, "float32", p) is not None
    assert len(get_tensor_array_shape(array, "float32", p) or ()) == len(shape)


def test_static_tensor_arrays_split_unstack_scatter_and_concat() -> None:
    p = Prelude()
    ops, rows = StaticTensorArrayOps(p, "int32", [4, 3]), StaticTensorArrayOps(p, "int32", [relay.Any(), 3])
    ops.register()
    rows.register()
    ops.define_tensor_array_scatter([1], True)
    v, n = relay.var("v", shape=(4, 3), dtype="int32"), relay.var("n", shape=(2,), dtype="int32")
    empty = rows.get_global_var("tensor_array")(relay.const(2))
    pieces = ops.get_global_var("tensor_array_split")(empty, ops.get_ctor("tensor_constructor")(v), n)
    first = rows.get_global_var("tensor_array_read")(pieces, relay.const(0))
    swapped = rows.get_global_var("tensor_array_scatter")(
        pieces, relay.const(np.array([1], "int32")), p.cons(first, p.nil())
    )
    p.mod["main"] = relay.Function(
        [v, n], rows.get_global_var("tensor_get_data")(rows.get_global_var("tensor_array_concat")(swapped))
    )
    x = np.arange(12, dtype="int32").reshape(4, 3)
    for kind in ("debug", "vm"):
        got = relay.create_executor(kind, mod=p.mod).evaluate()(x, np.array([1, 3], "int32"))
        np.testing.assert_array_equal(got.numpy(), np.concatenate([x[:1], x[:1]]))
    p.mod["main"] = relay.Function([v], p.length(ops.get_global_var("tensor_array_unstack")(v)))
    assert relay.create_executor("debug", mod=p.mod).evaluate()(x).numpy() == 4
    assert p.get_name_static("tensor_array_scatter", "int32", [4, 3], None, {"indices": [1]}) in p.mod


def test_static_tensor_arrays_of_one_element_have_names_of_their_own() -> None:
    p = Prelude()
    ops = StaticTensorArrayOps(p, "float32", [2], 1)
    ops.register()
    assert ops.get_name("tensor_array_stack") == "tensor_array_stack_float32_batch1_2"
    v = relay.var("v", shape=(2,))
    made = ops.get_global_var("tensor_array_stack")(p.cons(ops.get_ctor("tensor_constructor")(v), p.nil()))
    p.mod["main"] = relay.Function([v], p.get_global_var_static("tensor_get_data", "float32", [1, 2])(made))
    got = relay.create_executor("debug", mod=p.mod).evaluate()(np.ones(2, "float32"))
    assert got.numpy().shape == (1, 2)
