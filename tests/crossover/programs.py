"""Programs that Weft and Apache TVM both read. As a script, with the package to use, it compiles or runs one.

``programs.py weft|tvm build NAME LIBRARY [EXEC_MODE]`` or ``weft|tvm run NAME LIBRARY ARRAYS``; the result goes to an
``.npz`` file.
"""

import importlib
import sys
from pathlib import Path

import numpy as np

LENGTH = -1  # stands for the symbolic length
SOURCES = {
    "mlp": """
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 16), "float32"), b: R.Tensor((16,), "float32"),
             v: R.Tensor((16, 4), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.add(R.matmul(x, w), b))
            y = R.nn.softmax(R.matmul(h, v), axis=-1)
            R.output(y)
        return y
""",
    "cnn": """
    @R.function
    def main(x: R.Tensor((1, 3, 12, 12), "float32"), w: R.Tensor((8, 3, 3, 3), "float32"),
             v: R.Tensor((8, 5), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.nn.conv2d(x, w, strides=(1, 1), padding=(1, 1)))
            p = R.nn.max_pool2d(h, pool_size=(2, 2), strides=(2, 2))
            y = R.matmul(R.mean(p, axis=[2, 3]), v)
            R.output(y)
        return y
""",
    "transformer": """
    @R.function
    def main(x: R.Tensor((1, "n", 8), "float32"), wq: R.Tensor((8, 8), "float32"), wk: R.Tensor((8, 8), "float32"),
             wv: R.Tensor((8, 8), "float32"), g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            q = R.matmul(x, wq)
            k = R.permute_dims(R.matmul(x, wk), axes=[0, 2, 1])
            s = R.nn.softmax(R.multiply(R.matmul(q, k), R.const(0.35, "float32")), axis=-1)
            a = R.add(x, R.matmul(s, R.matmul(x, wv)))
            y = R.nn.layer_norm(a, g, b, axes=[-1])
            R.output(y)
        return y
""",
    "if": """
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
        if c:
            y = R.add(x, x)
        else:
            y = R.multiply(x, x)
        return y
""",
    "closure": """
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
        @R.function
        def inner(z: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
            s: R.Tensor((3, 4), "float32") = R.add(z, x)
            return s

        r: R.Tensor((3, 4), "float32") = inner(y)
        return r
""",
    "tuples": """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            c = R.const([1.0, 2.0, 3.0, 4.0], "float32")
            b = R.multiply(a, c)
            R.output(a, b)
        return (a, (R.const([1.0, 2.0, 3.0, 4.0], "float32"), b), x, b)
""",
}
SHAPES = {
    "mlp": [(LENGTH, 8), (8, 16), (16,), (16, 4)],
    "cnn": [(1, 3, 12, 12), (8, 3, 3, 3), (8, 5)],
    "transformer": [(1, LENGTH, 8), (8, 8), (8, 8), (8, 8), (8,), (8,)],
    "if": [(), (3, 4)],
    "closure": [(3, 4), (3, 4)],
    "tuples": [(LENGTH, 4)],
}
CASES = 3  # calls of each program, at changing lengths and conditions


def arguments(name: str, case: int) -> list[np.ndarray]:
    """Random arguments of a program, the same in each process."""
    rng = np.random.default_rng(case)
    length = (7, 1, 12)[case]
    shapes = [tuple(length if d == LENGTH else d for d in s) for s in SHAPES[name]]
    return [rng.standard_normal(s).astype(np.float32) if s else np.array(case % 2 == 0) for s in shapes]


def softmax(x: np.ndarray) -> np.ndarray:
    """Normalized exponentials of the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp(x, w, b, v):
    """Two layers."""
    return (softmax(np.maximum(x @ w + b, 0) @ v),)


def cnn(x, w, v):
    """Convolution of 3 by 3, largest of 2 by 2, mean, product."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    h = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w), 0)
    return (h.reshape(1, 8, 6, 2, 6, 2).max((3, 5)).mean((2, 3)) @ v,)


def transformer(x, wq, wk, wv, g, b):
    """Attention with one head, and a norm."""
    scores = softmax((x @ wq) @ (x @ wk).transpose(0, 2, 1) * np.float32(0.35))
    a = x + scores @ (x @ wv)
    return ((a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * g + b,)


COLUMNS = np.float32([1, 2, 3, 4])
REFERENCES = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "if": lambda c, x: (x + x if c else x * x,),
    "closure": lambda x, y: (y + x,),
    "tuples": lambda x: (x + x, COLUMNS, (x + x) * COLUMNS, x, (x + x) * COLUMNS),
}


def flat(value) -> list[np.ndarray]:
    """Arrays of a result, those in tuples in order."""
    return [value.numpy()] if hasattr(value, "numpy") else [a for v in value for a in flat(v)]


def main(package: str, action: str, name: str, library: str, option: str = "bytecode") -> None:
    """Compile a program to a library, or call the one in a library and save what it returns."""
    root = importlib.import_module(package)
    if action == "build":
        source = Path(library).with_suffix(f".{package}.py")
        head = f"from {package}.script import ir as I, relax as R\n@I.ir_module\nclass M:"
        source.write_text(head + SOURCES[name])
        sys.path.insert(0, str(source.parent))
        scope: dict[str, object] = {}
        exec(compile(source.read_text(), str(source), "exec"), scope)
        options = {"host": "tvm"} if package == "weft" else {}
        module = scope["M"]
        if package == "tvm":  # its pipeline leaves this to whoever writes closures
            module = importlib.import_module("tvm.relax").transform.LambdaLift()(module)
        relax = importlib.import_module(f"{package}.relax")
        relax.build(module, "llvm", exec_mode=option).export_library(library, **options)
        return
    relax = importlib.import_module(f"{package}.relax")
    module = root.runtime.load_module(library)
    machine = relax.VirtualMachine(module, root.cpu())
    results = {}
    for case in range(CASES):
        out = machine["main"](*[root.runtime.tensor(a) for a in arguments(name, case)])
        results |= {f"{case}.{i}": a for i, a in enumerate(flat(out))}
    executable = relax.VMExecutable(module)
    np.savez(option, text=executable.as_text(), stats=executable.stats(), **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
