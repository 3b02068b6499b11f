"""What kernels do with their elements: the classes that Apache TVM gives, and reshapes."""

import pytest

import weft
from weft import op, relax
from weft.relax.analysis import has_reshape_pattern, tir_op_pattern
from weft.script import from_source
from weft.tir import PrimFunc

HEAD = "@I.ir_module\nclass Module:\n    @R.function\n    def main("
X, Y = 'x: R.Tensor((4, 6), "float32")', 'y: R.Tensor((6,), "float32")'
W, IDX = 'w: R.Tensor((6, 4), "float32")', 'i: R.Tensor((3,), "int64")'
IM, K = 'im: R.Tensor((1, 3, 8, 8), "float32")', 'k: R.Tensor((4, 3, 3, 3), "float32")'

PATTERNS = [
    ("R.exp(x)", op.Fusion.ELEMENTWISE, X),
    ("R.add(x, y)", op.Fusion.ELEMENTWISE, X, Y),
    ("R.broadcast_to(y, (4, 6))", op.Fusion.BROADCAST, Y),
    ("R.permute_dims(x)", op.Fusion.INJECTIVE, X),
    ("R.flip(x, axis=0)", op.Fusion.INJECTIVE, X),
    ("R.concat([x, x])", op.Fusion.INJECTIVE, X),
    ("R.strided_slice(x, [0], [1], [3])", op.Fusion.INJECTIVE, X),
    ("R.nn.pad(x, (1, 1, 1, 1))", op.Fusion.INJECTIVE, X),
    ("R.take(x, i, axis=0)", op.Fusion.OPAQUE, X, IDX),
    ("R.sum(x, axis=1)", op.Fusion.REDUCTION, X),
    ("R.max(x, axis=0)", op.Fusion.REDUCTION, X),
    ("R.mean(x, axis=0)", op.Fusion.ANCHOR, X),
    ("R.argmax(x, axis=1)", op.Fusion.ANCHOR, X),
    ("R.matmul(x, w)", op.Fusion.ANCHOR, X, W),
    ("R.nn.softmax(x)", op.Fusion.ANCHOR, X),
    ("R.nn.layer_norm(x, y, y, axes=[-1])", op.Fusion.ANCHOR, X, Y),
    ("R.nn.conv2d(im, k)", op.Fusion.ANCHOR, IM, K),
    ("R.nn.max_pool2d(im, pool_size=(2, 2))", op.Fusion.ANCHOR, IM),
]


def legalized(call, *params):
    return relax.transform.LegalizeOps()(
        from_source(f"{HEAD}{', '.join(params)}):\n        out = {call}\n        return out\n")
    )


@pytest.mark.parametrize("case", PATTERNS, ids=[c[0] for c in PATTERNS])
def test_patterns(case):
    call, expected, *params = case
    mod = legalized(call, *params)
    (kernel,) = [f for _, f in mod.items() if isinstance(f, PrimFunc)]
    assert tir_op_pattern(kernel) == expected
    bare = weft.IRModule({v: f.without_attr("op_pattern") if isinstance(f, PrimFunc) else f for v, f in mod.items()})
    annotated = relax.transform.AnnotateTIROpPattern()(bare)
    (kernel,) = [f for _, f in annotated.items() if isinstance(f, PrimFunc)]
    assert kernel.attrs["op_pattern"] == int(expected)
    assert not has_reshape_pattern(kernel)


def kernel(source):
    return from_source("@T.prim_func\ndef f(" + source)


def copy(a, b, loops, write, read):
    names = ", ".join("ijkl"[: len(loops)])
    values = ", ".join("vwyz"[: len(loops)])
    spatial = "S" * len(loops)
    grid = f"{loops[0]}" if len(loops) == 1 else ", ".join(map(str, loops))
    return kernel(f"""A: T.Buffer({a}, "float32"), B: T.Buffer({b}, "float32")):
    for {names} in T.grid({grid}):
        with T.sblock("B"):
            {values} = T.axis.remap("{spatial}", [{names}])
            B[{write}] = A[{read}]
""")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (copy((4, 6), (24,), [24], "v", "v // 6, v % 6"), True),
        (copy((24,), (4, 6), [4, 6], "v, w", "v * 6 + w"), True),
        (copy((4, 6), (2, 12), [2, 12], "v, w", "(v * 12 + w) // 6, (v * 12 + w) % 6"), True),
        (copy((4, 6), (4, 1, 6), [4, 6], "v, 0, w", "v, w"), True),
        (copy((4, 6), (6, 4), [6, 4], "v, w", "w, v"), False),
        (copy((4, 6), (12,), [12], "v", "v // 6, v % 6"), True),  # the first half
        (copy((4, 6), (24,), [24], "23 - v", "v // 6, v % 6"), False),
        (copy((4, 6), (24,), [24], "v", "0, 0"), False),
    ],
)
def test_reshapes(program, expected):
    assert has_reshape_pattern(program) is expected


def test_reshapes_of_symbolic_sizes():
    program = kernel("""a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n * 4,), "float32")
    for i in range(n * 4):
        with T.sblock("B"):
            v = T.axis.spatial(n * 4, i)
            B[v] = A[v // 4, v % 4]
""")
    assert has_reshape_pattern(program)
    assert tir_op_pattern(program) == op.Fusion.INJECTIVE
