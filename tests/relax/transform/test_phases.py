"""Convolutions of every rank as ConvertLayout computes them, against the operators' references in float64."""

import numpy as np
import pytest

import weft
from tests.arrays import floats
from tests.relax_models import computed, computing, model
from weft import machine, op, relax
from weft.ir import Call, Op, walk
from weft.relax import transform
from weft.relax.transform.phases import phases_of

random = floats(np.random.default_rng(5))
SIZES = {1: (11,), 2: (7, 5), 3: (3, 4, 5)}


def run(name, x, w, constant=True, symbolic=False, **attrs):
    """Compile `name` and then bias and ReLU; return its result and the program that was compiled."""
    dims = [f"d{i}" if symbolic and i != 1 else n for i, n in enumerate(x.shape)]
    channels = w.shape[1] * attrs.get("groups", 1) if "transpose" in name else w.shape[0]
    bias = np.linspace(-1, 1, channels, dtype=np.float32).reshape(-1, *[1] * (x.ndim - 2))

    def layers(data, *weight):
        y = op.make_call(name)(data, *weight or [relax.const(w)], **attrs)
        return relax.op.nn.relu(relax.op.add(y, relax.const(bias)))

    mod = model(layers, dims, *([] if constant else [w.shape]))
    return computing(mod)(*((x,) if constant else (x, w))), bias, mod


def check(name, x, w, **options):
    found, bias, mod = run(name, x, w, **options)
    attrs = {k: v for k, v in options.items() if k not in ("constant", "symbolic")}
    wanted = np.maximum(computed(name, x, w, **attrs) + bias, 0)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-5 * abs(wanted).max(initial=1.0))
    return mod


TRANSPOSED = [
    # kernel, stride, padding before and after, output padding, dilation, groups, weights (in, out / groups)
    (4, 2, 1, 1, 0, 1, 1, (16, 8)),
    (3, 2, 0, 2, 1, 1, 1, (4, 33)),
    (2, 2, 0, 0, 0, 1, 1, (8, 40)),
    (5, 3, 1, 2, 1, 1, 1, (3, 3)),
    (3, 1, 2, 2, 0, 2, 1, (8, 16)),
    (3, 2, 1, 1, 1, 2, 1, (4, 4)),
    (4, 2, 1, 0, 0, 1, 4, (8, 2)),
    (6, 2, 1, 0, 0, 1, 8, (8, 1)),
    (2, 3, 0, 0, 2, 1, 1, (4, 4)),
    (1, 2, 0, 0, 1, 1, 1, (4, 16)),
    (3, 2, 2, 3, 0, 1, 1, (4, 4)),
    (3, 2, 2, 1, 0, 2, 1, (4, 3)),  # phases that no element of the kernel meets: every other, the last ones
    (4, 2, 1, 1, 0, 1, 8, (8, 1)),
    (2, 4, 1, 0, 1, 1, 2, (8, 3)),
    (3, 6, 1, 2, 0, 2, 2, (6, 2)),
    (3, 3, 1, 1, 0, 2, 1, (4, 32)),  # stride and dilation without a common divisor
    (5, 2, 0, 5, 0, 3, 1, (4, 24)),
    (2, 3, 1, 0, 1, 1, 8, (8, 1)),
]


@pytest.mark.parametrize(("kernel", "lone"), [(2, True), (3, False)])
@pytest.mark.parametrize("height", [7, "h"])
def test_taps_of_one_channel_each_that_do_not_overlap_are_one_kernel(height, kernel, lone):
    weight = relax.const(random(8, 1, kernel, kernel))
    mod = model(lambda x: relax.op.nn.conv2d_transpose(x, weight, strides=2, groups=8), (1, 8, height, 5))
    steps = transform.normalize(), transform.convert_layout(machine=machine.Machine(vector_bits=256))
    ops = {n.op.name for n in walk(steps[1](steps[0](mod))["main"]) if isinstance(n, Call) and isinstance(n.op, Op)}
    assert (ops == {"relax.nn.conv2d_transpose"}) == lone


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("case", range(len(TRANSPOSED)))
def test_transposed(case, constant):
    rank = (2, 1, 3)[case % 3]
    k, stride, before, after, extra, dilation, groups, channels = TRANSPOSED[case]
    x, w = random(2, channels[0], *SIZES[rank]), random(*channels, *[k] * rank)
    attrs = {"strides": stride, "padding": (before,) * rank + (after,) * rank, "output_padding": extra}
    attrs |= {"dilation": dilation, "groups": groups}
    check(f"nn.conv{rank}d_transpose", x, w, symbolic=case % 4 == 0, constant=constant, **attrs)


def test_phases_that_share_few_taps_are_convolutions_of_their_own():
    mod = check("nn.conv2d_transpose", random(2, 5, 7, 5), random(5, 64, 3, 3), symbolic=True, strides=2, padding=1)
    after = relax.transform.convert_layout(machine=machine.Machine())(relax.transform.normalize()(mod))
    made = [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.nn.conv2d")]
    assert sorted(np.prod(n.args[1].ty.shape[1:3]) for n in made) == [1, 2, 2, 4]


def test_transposed_of_a_point_and_of_nothing():
    check("nn.conv2d_transpose", random(1, 10, 1, 1), random(10, 12, 4, 4))
    check("nn.conv2d_transpose", random(2, 10, 1, 1), random(10, 12, 4, 4), strides=2, padding=1, output_padding=1)
    found, _, _ = run("nn.conv2d_transpose", random(0, 8, 3, 3), random(8, 4, 4, 4), symbolic=True, strides=2)
    assert found.shape == (0, 4, 8, 8)


def test_transposed_padded_by_more_than_its_kernel_reaches():
    check("nn.conv2d_transpose", random(1, 4, 7, 9), random(4, 4, 3, 3), strides=2, padding=4)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("ins", "outs", "kernel", "pad", "wide"),
    [(5, 1, 2, 0, 70), (5, 2, 4, 1, 65), (5, 1, 3, 1, 67), (13, 3, 2, 0, 70), (16, 4, 2, 1, 67)],
)
def test_few_channels_of_wide_images(ins, outs, kernel, pad, wide, symbolic):
    attrs = {"strides": 2, "padding": (pad,) * 4}
    check("nn.conv2d_transpose", random(2, ins, 3, wide), random(ins, outs, kernel, kernel), symbolic=symbolic, **attrs)


@pytest.mark.parametrize(("ins", "outs"), [(16, 16), (33, 7), (5, 9)])
def test_pixels_of_few_channels(ins, outs):
    """Channels that fit one vector and are no more than are read stay planes: nothing is transposed."""
    mod = check("nn.conv2d", random(2, ins, 9, 17), random(outs, ins, 1, 1), symbolic=True)
    after = relax.transform.convert_layout(machine=machine.Machine(vector_bits=512, vector_registers=32))(
        relax.transform.normalize()(mod)
    )
    moved = [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.permute_dims")]
    assert (not moved) == (outs <= ins)
    check("nn.conv3d", random(1, ins, 3, 5, 40), random(outs, ins, 1, 1, 1))


@pytest.mark.parametrize(
    ("shape", "weight", "attrs"),
    [
        ((1, 5, 4, 6, 7), (20, 5, 3, 3, 3), {"padding": 1}),
        ((2, 8, 5, 6, 7), (8, 1, 3, 3, 3), {"padding": 1, "groups": 8}),
        ((2, 8, 5, 6, 7), (8, 2, 3, 1, 3), {"groups": 4, "strides": 2}),
        ((1, 8, 9, 6, 7), (33, 8, 3, 1, 1), {"dilation": 2}),
        ((2, 64, 3, 14, 13), (64, 64, 1, 3, 3), {"padding": (0, 1, 1)}),
        ((2, 64, 0, 8, 8), (64, 64, 1, 3, 3), {"padding": (0, 0, 2, 0, 1, 0)}),
        ((1, 32, 4, 7, 6), (64, 32, 1, 3, 3), {"strides": (2, 1, 1)}),
    ],
)
def test_volumes(shape, weight, attrs):
    check("nn.conv3d", random(*shape), random(*weight), symbolic=attrs.get("groups", 1) == 1, **attrs)


@pytest.mark.parametrize(
    ("shape", "weight", "groups"),
    [
        ((1, 16, 9, 9), (20, 16, 3, 3), 1),
        ((1, 3, 9, 9), (16, 3, 3, 3), 1),
        ((2, 16, 9, 9), (16, 1, 3, 3), 16),
        ((1, 16, 9, 9), (16, 4, 3, 3), 4),
        ((1, 6, 11), (9, 6, 3), 1),
        ((1, 6, 4, 5, 6), (9, 6, 2, 2, 2), 1),
    ],
)
def test_weights_that_come_at_run_time(shape, weight, groups):
    check(f"nn.conv{len(shape) - 2}d", random(*shape), random(*weight), constant=False, groups=groups)


@pytest.mark.parametrize("stride", [1, 2])
def test_groups_that_end_inside_vectors(stride):
    check("nn.conv2d", random(2, 64, 5, 7), random(68, 16, 1, 1), groups=4, strides=stride, symbolic=stride == 1)
    check("nn.conv2d", random(1, 34, 6, 5), random(22, 17, 1, 1), groups=2, strides=stride, padding=1)


def test_phases_waste_nothing_where_the_stride_divides_the_kernel():
    attrs = weft.ir.Attrs.of(strides=(2, 2), padding=(1, 1), dilation=(1, 1), output_padding=(0, 0))
    sizes, outs = ([weft.ir.int64(n) for n in s] for s in ((16, 16), (32, 32)))
    plan = phases_of(attrs, (4, 4), sizes, outs)
    assert (plan.block, plan.taps, plan.padding) == ((2, 2), (2, 2), (1, 1, 1, 1))
