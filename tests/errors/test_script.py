"""Errors in TVMScript point at the user's line and say what to do."""

import pytest

from tests.errors.check import check_error
from tests.refusals import refuses
from weft.error import ParseError, ShapeMismatch, TypeInferenceError, WeftError
from weft.script import from_source, ir_module
from weft.script import relax as R
from weft.script import tir as T

TIR = [
    ("T.evaluate(undefined)", 12, "name 'undefined' is not defined"),
    ("T.evaluate(Aa[0])", 12, "did you mean A"),
    ("x = T.no_such_thing(1)", 5, "T has no 'no_such_thing'"),
    ("x = T.sqr(1.0)", 5, "did you mean T.sqrt"),
    ("A[0, 0, 0] = 1.0", 1, "buffer 'A' has another number of dimensions\n  --> "),
    ("x = A[0]", 5, "expected 2, found 1 indices"),
    ("n[0] = 1", 1, "only elements of buffers can be assigned"),
    ("A[0, 0] = 'text'", 1, "a scalar expression must stand after '='"),
    ("for i, j in T.grid(4): pass", 5, "variables and loops differ in number"),
    ("for i in 3.5: pass", 10, "a loop is expected"),
    ("with T.sblock('b'):\n        vi = T.axis.remap('SS', [n])", 9, "one letter, S or R, for each loop variable"),
    ("with T.sblock('b'):\n        vi = T.axis.remap('S', [n])", 9, "takes loops around the block"),
    ("vi = T.axis.spatial(4, n)", 1, "iteration variables stand at the beginning of a block"),
    ("with T.sblock('b'):\n        T.reads(A[0, 0])\n        T.reads(A[0, 1])", 9, "T.reads stands twice in one block"),
    ("with T.sblock('b'):\n        v = T.axis.S(4, 0)\n        v = T.axis.S(4, 1)", 9, "the block has a 'v' already"),
    ("with T.sblock('b'):\n        C = T.alloc_buffer((4,))\n        C = T.alloc_buffer((4,))", 9, "has a 'C' already"),
    ("with T.sblock('b'):\n        v = T.axis.S(4, A[0, 0])", 9, "'v' is no integer"),
    ("with T.sblock('b'):\n        C = T.match_buffer(A[0:2, 0:4], (2, 5))", 9, "has another shape"),
    ("with T.sblock('b') as b: pass", 23, "a block gives no value to a name"),
    ("T.reads(A[0, 0])", 1, "T.reads stands in a block"),
    ("for i in T.serial('1', '4'): pass", 10, "a loop counts integers"),
    ("for i in T.thread_binding(4, 4): pass", 10, "needs a thread"),
    ("A[0, 0] = A[0, 0:2] + 1.0", 1, "as many elements as a vector has"),
    ("with T.init(): pass", 6, "T.init stands once, inside a block"),
    ("with 3: pass", 6, "'with' needs a block"),
    ("with T.grid(3): pass", 6, "a loop is written with 'for'"),
    ("T.sblock('b')", 1, "the result of 'T.sblock' is not used"),
    ("import os", 1, "a TIR program has no 'import' statement"),
    ("x = y = 3", 1, "several targets in one assignment"),
    ("x, y = 1, 2, 3", 1, "names and values differ in number"),
    ("B = T.match_buffer(A, (4,), 'float32')", 1, "takes a handle parameter"),
    ("x = n // 0", 5, "division by zero"),
    ("if n > 0 and undefined: pass", 14, "name 'undefined' is not defined"),
    ("x = T.Buffer((3,), 'flot33')", 5, "unknown data type 'flot33'"),
    ("T.launch_thread('threadIdx.x', 3)", 1, "has no name"),
    ("for i in T.serial(0, 8, step=-2): pass", 10, "loops count up in constant steps"),
    ("for i in T.serial(0, 8, step=n): pass", 10, "loops count up in constant steps"),
    ("with T.If(n > 0):\n        A[0, 0] = 1.0", 9, "T.If holds one T.Then and after it at most one T.Else"),
    ("with T.Then(): pass", 6, "'with' needs a block, T.init or a scope"),
    ("A[0, 0:n] = A[1, 0:n] + 1.0", 13, "a slice of elements has a constant length"),
    ("A[0, 0] = A + 1.0", 11, "unsupported operand type"),
    ("p = T.allocate([4], 'float32', condition=n > 0)", 5, "memory is allocated without conditions"),
    ("A[0, 0] = T.Select(n > 0, 1.0)", 11, "missing 1 required positional argument"),
    ("A[0, 0] = T.exp(A[0, 0], 2)", 11, "exp takes another number of arguments"),
    ("with T.realize(A[0:1, 0:1], 'shared'): pass", 6, "the buffer lives in another scope"),
    ("return", 1, "'return' needs a value"),
    ("def inner(): pass", 1, "a TIR program has no inner functions"),
    ("x = True if n > 0 else undefined", 24, "name 'undefined' is not defined"),
    ("lambda: 3", 1, "the statement has no effect"),
    ("if A: pass", 1, "a Buffer is neither true nor false"),
    ("x = not A", 5, "a Buffer is neither true nor false"),
    ("x = A and 1", 5, "a Buffer is neither true nor false"),
    ("while A: pass", 1, "cannot make a scalar expression"),
    ("x = T.uint8(300)", 5, "uint8 does not hold 300"),
    ("B = T.Buffer((-3,), 'float32')", 5, "expected an integer, not negative, found -3"),
    ("x = [i for i in undefined]", 5, "NameError"),
    ("x = 1 +", 8, "invalid syntax"),
]


@pytest.mark.parametrize(("statement", "column", "message"), TIR, ids=[s for s, _, _ in TIR])
def test_tir(statement, column, message):
    head = "@T.prim_func\ndef f(A: T.Buffer((4, 4), 'float32'), n: T.int32):\n"
    lines = statement.splitlines()
    program = head + "    " + "\n".join(lines) + "\n"
    inner = len(lines) > 1
    check_error(program, 2 + len(lines), column if inner else column + 4, message)


RELAX = [
    ("y = undefined", 5, "name 'undefined' is not defined"),
    ("y = R.add(x)", 5, "missing input"),
    ("y = R.no_such(x)", 5, "R has no operator 'no_such'"),
    ("y = R.nn.softmax(x, axes=1)", 5, "unknown argument 'axes'"),
    ("y: R.Tensor((2,), 'int32') = R.exp(x)", 1, "the annotation differs from the type of the value"),
    ("y: R.Tensor((3,), 'float32') = R.exp(x)", 1, "the annotation differs"),
    ("y = x[0]", 5, "the tuple has no such element"),
    ("y = R.match_cast(x, R.Tensor(('n',)))", 5, "the dimension 'n' is given as text"),
    ("y = R.match_cast(x, 3)", 5, "a type is expected"),
    ("R.output(x)", 1, "R.output stands inside a dataflow block"),
    (
        "with R.dataflow():\n        y = R.exp(x)\n        R.output(z)",
        9,
        "R.output names 'z', which the block does not define",
    ),
    ("with R.dataflow():\n        R.output(x)\n        y = R.exp(x)", 9, "R.output ends a dataflow block"),
    ("with x: pass", 1, "'with' opens a dataflow block"),
    ("while x: pass", 1, "a Relax program has no 'while' statement"),
    ("for i in x: pass", 10, "a Relax program has no loops at run time"),
    ("if x:\n        y = x", 5, "needs an 'else'"),
    ("y, z = x, x, x", 1, "names and values differ in number"),
    ("y = R.call_tir(cls.missing, (x,), R.Tensor((2,), 'float32'))", 16, "name 'cls' is not defined"),
    ("y = R.call_tir(R.ExternFunc('f'), (x,))", 5, "the type of the result is missing"),
    ("x.y = 3", 1, "a name must stand before '='"),
    ("y = R.Prim()", 5, "a dtype or a value is needed"),
    ("y = R", 5, "no value"),
    ("return R", 8, "no value"),
    ("def inner(z: R.Tensor): return z", 1, "inner function 'inner' is no Relax function"),
]


@pytest.mark.parametrize(("statement", "column", "message"), RELAX, ids=[s for s, _, _ in RELAX])
def test_relax(statement, column, message):
    lines = statement.splitlines()
    program = "@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n    " + "\n".join(lines) + "\n    return x\n"
    inner = len(lines) > 1
    at = 3 if "needs an 'else'" in message else 2 + len(lines) if "ends a dataflow" not in message else 4
    check_error(program, at, column if inner else column + 4, message)


SIGNATURES = [
    ("@T.prim_func\ndef f(A): pass", 2, 7, "parameter 'A' has no type"),
    ("@T.prim_func\ndef f(A: 3): pass", 2, 10, "parameter 'A' has no TIR type"),
    ("@T.prim_func(privat=True)\ndef f(): pass", 2, 1, "T.prim_func has no option 'privat'"),
    ("@R.function\ndef f(x): return x", 2, 7, "parameter 'x' has no type"),
    ("@R.function\ndef f(x: R.Tensor(('n +',))): return x", 2, 10, "the dimension 'n +' is no expression"),
    ("@R.function\ndef f(x: R.Tensor((2,), 'flot')): return x", 2, 10, "unknown data type 'flot'"),
    ("@R.function\ndef f(x: R.Tensor((2,), ndim=3)): return x", 2, 10, "ndim differs from the shape"),
    ("@R.function\ndef f(x: R.Tensor(('n', R))): return x", 2, 10, "'"),
    ("@R.function\ndef f(x: R.Tensor): pass", 2, 1, "function 'f' returns nothing"),
    ("@R.function\ndef f(*x: R.Tensor): pass", 2, 1, "parameters of a program have no defaults"),
    ("def f(): pass", 1, 1, "function 'f' has no decorator that names its dialect"),
    ("@I.ir_module\nclass M:\n    def f(): pass", 3, 5, "function 'f' has no decorator"),
    ("@I.ir_module\nclass M:\n    for i in x: pass", 3, 5, "a module's class holds functions"),
    ("@R.function\ndef f(x: R.Tensor):\n    return R.add(x,\n", 3, 17, "invalid syntax"),
]


@pytest.mark.parametrize(("program", "line", "column", "message"), SIGNATURES, ids=[m for *_, m in SIGNATURES])
def test_signatures(program, line, column, message):
    check_error(program, line, column, message)


def test_types_that_do_not_fit_keep_their_class():
    program = """
    @R.function
    def f(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 5), "float32")):
        y = R.exp(x)
        z = R.nn.relu(R.matmul(y, w))
        return z
    """
    text = check_error(program, 4, 19, "matmul", (ShapeMismatch, TypeInferenceError))
    assert "^" * len("R.matmul(y, w)") in text


def test_all_functions_of_a_module_are_reported():
    with pytest.raises(WeftError) as e:
        from_source("""
        @I.ir_module
        class M:
            @R.function
            def f(x: R.Tensor):
                return R.a(x)
            @R.function
            def g(x: R.Tensor):
                return cls.h(x)
        """)
    assert "2 functions of 'M' have errors" in str(e.value)
    assert "R has no operator 'a'" in str(e.value) and "the module has no function 'h'; it has f, g" in str(e.value)


def test_places_in_files_are_the_users():
    with pytest.raises(ParseError) as e:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = missing  # noqa: F821

    assert e.value.where.file == __file__
    assert "A[0] = missing" in str(e.value)


def test_places_in_classes_are_the_users():
    with pytest.raises(ParseError) as e:

        @ir_module
        class M:
            @R.function
            def f(x: R.Tensor((4,), "float32")):
                return misspelt  # noqa: F821

    assert e.value.where.file == __file__ and "return misspelt" in str(e.value)


def test_no_source():
    namespace = {"T": T}
    exec("def f(A: T.int32): pass", namespace)
    refuses(ParseError, "weft.script.from_source", T.prim_func, namespace["f"])


def test_empty_text():
    refuses(ParseError, "defines no function and no module", from_source, "x = 3")


def test_columns_count_characters():
    text = "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    T.evaluate(T.call_packed('é', undefined))\n"
    check_error(text, 3, 35, "undefined")


def test_macros():
    @T.macro
    def store(a, b):
        a[0] = b

    with pytest.raises(ParseError, match="(?s)macro 'store': too many.*takes a, b"):

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            store(A, 1, 2)


def test_relax_names_are_listed():
    assert R.nn.relu is not None
    refuses(AttributeError, "R has no operator 'nn.reluu'.*R.nn.relu", getattr, R.nn, "reluu")
