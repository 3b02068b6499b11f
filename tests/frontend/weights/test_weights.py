"""GGUF and safetensors: each block format as its specification draws it, damaged files, models bound to weights."""

import json
import struct

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax
from weft.frontend import nn
from weft.frontend.nn import spec
from weft.frontend.weights import FORMATS, bind_weights, load_gguf, load_safetensors, quantize_matrix
from weft.ir import walk
from weft.relax.transform import pack_nbits

RNG = np.random.default_rng(77)


# --- the formats, one weight at a time --------------------------------------------------------------------------------


def half(b, at):
    return float(np.frombuffer(bytes(b[at : at + 2]), np.float16)[0])


def small(b, i, nibbles, bits=None, base=0.0, units=(0,)):
    """A weight of the formats with 32 weights."""
    q = nibble(b, nibbles, i)
    if bits is not None:
        q |= (int.from_bytes(bytes(b[bits : bits + 4]), "little") >> i & 1) << 4
    return q * half(b, 0) + (half(b, 2) if units == (0, 2) else base * half(b, 0))


def six_bits(b, j):
    s = b[4:16]
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4


def q2_k(b, i):
    q = b[16 + i // 128 * 32 + i % 32] >> 2 * (i % 128 // 32) & 3
    s = b[i // 16]
    return half(b, 80) * (s & 15) * q - half(b, 82) * (s >> 4)


def q3_k(b, i):
    q = b[32 + i // 128 * 32 + i % 32] >> 2 * (i % 128 // 32) & 3
    high = b[i % 32] >> i // 32 & 1
    j = i // 16
    low = b[96 + j % 8] >> 4 * (j // 8) & 15
    scale = low | (b[104 + j % 4] >> 2 * (j // 4) & 3) << 4
    return half(b, 108) * (scale - 32) * (q - (0 if high else 4))


def q45_k(b, i, fifth):
    j = i // 32
    q = b[(48 if fifth else 16) + i // 64 * 32 + i % 32] >> 4 * (j % 2) & 15
    if fifth:
        q |= (b[16 + i % 32] >> j & 1) << 4
    scale, least = six_bits(b, j)
    return half(b, 0) * scale * q - half(b, 2) * least


def q6_k(b, i):
    n, line, at = i // 128, i % 128 // 32, i % 32
    low = b[n * 64 + at + 32 * (line % 2)] >> 4 * (line // 2) & 15
    q = low | (b[128 + n * 32 + at] >> 2 * line & 3) << 4
    return half(b, 208) * int(np.int8(np.uint8(b[192 + i // 16]))) * (q - 32)


def signed(b, at):
    return int(np.uint8(b[at]).view(np.int8))


IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def nibble(b, at, i):
    """Weight `i` of 32 whose 16 low nibbles come first."""
    return b[at + i % 16] >> 4 * (i // 16) & 15


def iq4_xs(b, i):
    j = i // 32
    scale = b[4 + j // 2] >> 4 * (j % 2) & 15 | (b[2 + j // 4] >> 2 * (j % 4) & 3) << 4
    return half(b, 0) * (scale - 32) * IQ4[nibble(b, 8 + 16 * j, i % 32)]


def mxfp4(b, i):
    q = nibble(b, 1, i)
    mantissa, exponent = q & 1, q >> 1 & 3
    value = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
    return (-value if q & 8 else value) * 2.0 ** (b[0] - 127)


WEIGHT = {
    "Q4_0": lambda b, i: small(b, i, 2, base=-8),
    "Q4_1": lambda b, i: small(b, i, 4, units=(0, 2)),
    "Q5_0": lambda b, i: small(b, i, 6, 2, base=-16),
    "Q5_1": lambda b, i: small(b, i, 8, 4, units=(0, 2)),
    "Q8_0": lambda b, i: half(b, 0) * signed(b, 2 + i),
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": lambda b, i: q45_k(b, i, False),
    "Q5_K": lambda b, i: q45_k(b, i, True),
    "Q6_K": q6_k,
    "Q8_K": lambda b, i: np.frombuffer(bytes(b[:4]), np.float32)[0] * signed(b, 4 + i),
    "IQ4_NL": lambda b, i: half(b, 0) * IQ4[nibble(b, 2, i)],
    "IQ4_XS": iq4_xs,
    "MXFP4": mxfp4,
}
HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "MXFP4": (),
}


def blocks(form, count):
    """Random blocks whose scales are ordinary numbers; some are zero."""
    b = RNG.integers(0, 256, (count, form.size)).astype(np.uint8)
    for at in HALVES.get(form.name, (0,)):
        values = RNG.uniform(-0.02, 0.02, count)
        values[:: 5 + at % 3] = 0
        b[:, at : at + 2] = values.astype(np.float16).view(np.uint8).reshape(count, 2)
    if form.name == "MXFP4":
        b[:, 0] = RNG.integers(110, 130, count)
    if form.name == "Q8_K":
        b[:, :4] = RNG.uniform(-0.02, 0.02, count).astype(np.float32).view(np.uint8).reshape(count, 4)
    return b


# --- files ------------------------------------------------------------------------------------------------------------


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(path, tensors, version=3):
    """Write a file of tensors (name, shape, type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 4)
    head += text("general.alignment") + struct.pack("<II", 4, 64)
    head += text("name") + struct.pack("<I", 8) + text("small")
    head += text("flags") + struct.pack("<IIQ3?", 9, 7, 3, True, False, True)
    head += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
    body = b""
    for name, shape, number, data in tensors:
        body += b"\0" * (-len(body) % 64)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], number, len(body))
        body += data
    path.write_bytes(head + b"\0" * (-len(head) % 64) + body)
    return path


@pytest.mark.parametrize("number", FORMATS)
def test_each_format(number, tmp_path):
    form = FORMATS[number]
    rows, columns = 3, 2 * form.elements
    made = blocks(form, rows * 2)
    stored = load_gguf(gguf(tmp_path / "w.gguf", [("w", (rows, columns), number, made.tobytes())]))["w"]
    assert (stored.type, stored.shape, stored.is_quantized) == (form.name, (rows, columns), True)
    whole = made.tolist()
    expected = np.array([[WEIGHT[form.name](b, i) for i in range(form.elements)] for b in whole]).reshape(rows, columns)
    np.testing.assert_allclose(stored.numpy(), expected, rtol=1e-5, atol=1e-5)
    q, scale, zero, group = stored.groups()
    again = (q - np.repeat(zero, group, 1)) * np.repeat(scale, group, 1)
    np.testing.assert_allclose(again, expected, rtol=1e-4, atol=2e-5)


def test_gguf(tmp_path):
    x = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    file = load_gguf(
        gguf(
            tmp_path / "w.gguf",
            [
                ("x", x.shape, 0, x.tobytes()),
                ("h", (7,), 1, np.arange(7, dtype=np.float16).tobytes()),
                ("none", (0, 32), 2, b""),
            ],
        )
    )
    assert file.metadata == {
        "general.alignment": 64,
        "name": "small",
        "flags": [True, False, True],
        "words": ["a", "bc"],
    }
    assert list(file) == ["x", "h", "none"]
    np.testing.assert_array_equal(file["x"].numpy(), x)
    assert np.shares_memory(file["x"].numpy(), file["x"].data) and not file["x"].numpy().flags.writeable
    assert file["h"].numpy().tolist() == list(range(7)) and file["none"].numpy().shape == (0, 32)


def test_damaged_gguf_files(tmp_path):
    form = FORMATS[2]
    whole = gguf(tmp_path / "w.gguf", [("w", (2, 32), 2, blocks(form, 2).tobytes())]).read_bytes()
    path = tmp_path / "cut.gguf"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        refuses(error.InvalidArgument, "cut.gguf", load_gguf, path)
    for tensors, version, message in (
        ([(n, (32,), t, b"") for n, t in (("w", 99), ("v", 16), ("u", 99))], 3, r"16 \('v', 1x\), type 99 \('w', 2x\)"),
        ([("w", (2, 33), 2, b"")], 3, "parts of blocks"),
        ([], 7, "unknown version"),
        ([("w", (1 << 40, 32), 2, b"")], 3, "outside of the file"),
        ([("w", (0, 1 << 60, 32), 2, b"")], 3, "no array has"),
    ):
        refuses(error.InvalidArgument, message, load_gguf, gguf(path, tensors, version))
    refuses(error.InvalidArgument, "no such file", load_gguf, tmp_path / "none")


def safetensors(path, entries, body=b""):
    head = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)
    return path


def test_safetensors(tmp_path):
    x, y = RNG.standard_normal((3, 4)).astype(np.float32), np.arange(6, dtype=np.int64)
    entries = {
        "__metadata__": {"format": "pt"},
        "x": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
        "y": {"dtype": "I64", "shape": [2, 3], "data_offsets": [48, 96]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [96, 98]},
        "e": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]},
    }
    found = load_safetensors(safetensors(tmp_path / "w.st", entries, x.tobytes() + y.tobytes() + b"\x80\x3f"))
    np.testing.assert_array_equal(found["x"].numpy(), x)
    assert found["e"].numpy().view(np.uint8).tolist() == list(x.tobytes()[:2])
    assert found["y"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]] and float(found["b"].numpy()) == 1
    for entry, message in (
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, "another size"),
        ({"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}, "unknown type"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "outside of the file"),
        ({"dtype": "F32", "shape": [2]}, "cannot be read"),
    ):
        refuses(error.InvalidArgument, message, load_safetensors, safetensors(tmp_path / "bad.st", {"x": entry}))


class Gated(nn.Module):
    def __init__(self):
        self.up, self.down = nn.Linear(256, 48, bias=False), nn.Linear(48, 7)

    def forward(self, x: nn.Tensor):
        return self.down(nn.op.silu(self.up(x)))


def test_a_model_reads_the_blocks(tmp_path):
    """Weights in blocks stay in few bits in the compiled program, which computes what the file says."""
    made = blocks(FORMATS[12], 48)
    made[:, :2] = np.float16(0.01).tobytes()[0], np.float16(0.01).tobytes()[1]
    down, bias = RNG.standard_normal((7, 48)).astype(np.float16), RNG.standard_normal(7).astype(np.float32)
    file = load_gguf(
        gguf(
            tmp_path / "w.gguf",
            [
                ("up.weight", (48, 256), 12, made.tobytes()),
                ("down.weight", (7, 48), 1, down.tobytes()),
                ("down.bias", (7,), 0, bias.tobytes()),
            ],
        )
    )
    mod, _ = Gated().export_tvm({"forward": {"x": spec.Tensor(["n", 256], "float32")}})
    bound = bind_weights(mod, file, "forward")
    names = {
        n.op.name for n in walk(pack_nbits()(bound)["forward"].body) if isinstance(getattr(n, "op", None), weft.ir.Op)
    }
    assert "relax.nn.matmul_nbits_packed" in names
    machine = relax.VirtualMachine(relax.build(bound, "llvm"), weft.cpu())
    x = RNG.standard_normal((3, 256)).astype(np.float32)
    h = x.astype(np.float64) @ file["up.weight"].numpy().T
    expected = h / (1 + np.exp(-h)) @ down.astype(np.float64).T + bias
    np.testing.assert_allclose(machine["forward"](weft.runtime.tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-3)
    refuses(error.InvalidArgument, "another shape", bind_weights, mod, {"up.weight": down}, "forward")
    refuses(error.InvalidArgument, "no such parameters", bind_weights, mod, {"weight": down}, "forward")


@pytest.mark.parametrize(("bits", "group"), [(2, 8), (4, 32), (8, 16)])
def test_matrices_are_quantised_to_within_a_step(bits, group):
    w = RNG.standard_normal((7, 64)).astype("float32")
    w[2], w[3, :group] = 0, 1.5
    q, scale, zero, size = quantize_matrix(w, bits, group)
    assert size == group and q.max() < 1 << bits and (zero == 1 << bits - 1).all()
    real = (q - np.repeat(zero, group, 1)) * np.repeat(scale, group, 1)
    steps = np.abs(real - w) / np.maximum(np.repeat(np.abs(scale), group, 1), 1e-9)
    highest = (q == (1 << bits) - 1) | (q == 0)  # the end that has one number less, and the scale's own rounding
    assert (steps <= np.where(highest, 1 + (1 << bits) / 2048, 0.501)).all() and (real[2] == 0).all()
    np.testing.assert_allclose(real[3, :group], 1.5, rtol=1e-3)


def test_matrices_that_cannot_be_quantised():
    for shape, bits, group in (((3, 33), 4, 32), ((64,), 4, 32), ((2, 32), 3, 32)):
        refuses(error.InvalidArgument, "groups of few bits", quantize_matrix, np.ones(shape, "float32"), bits, group)
    refuses(error.InvalidArgument, "finite", quantize_matrix, np.full((1, 32), np.inf, "float32"))


def test_quantised_matrices_bind():
    class Product(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(64, 5, bias=False)

        def forward(self, x):
            return self.layer(x)

    mod, _ = Product().export_tvm({"forward": {"x": spec.Tensor(["n", 64], "float32")}})
    made = quantize_matrix(RNG.standard_normal((5, 64)).astype("float32"))
    bound = bind_weights(mod, {"layer.weight": made}, "forward", rows="int8")
    calls = [n for n in walk(pack_nbits()(bound)["forward"].body) if isinstance(getattr(n, "op", None), weft.ir.Op)]
    assert [(c.op.name, c.attrs.get("rows")) for c in calls] == [("relax.nn.matmul_nbits_packed", "int8")]
    with pytest.raises(error.InvalidArgument, match="another shape"):
        bind_weights(mod, {"layer.weight": quantize_matrix(np.ones((4, 64), "float32"))}, "forward")
