"""Programs that Weft and Apache TVM both read. As a script, with the package to use, it compiles or runs one.

``programs.py weft|tvm build NAME LIBRARY [EXEC_MODE]`` or ``weft|tvm run NAME LIBRARY ARRAYS``; the result goes to an
``.npz`` file.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np

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
}
SHAPES = {
    "mlp": [(5, 8), (8, 16), (16,), (16, 4)],
    "cnn": [(1, 3, 12, 12), (8, 3, 3, 3), (8, 5)],
    "transformer": [(1, 7, 8), (8, 8), (8, 8), (8, 8), (8,), (8,)],
    "if": [(), (3, 4)],
    "closure": [(3, 4), (3, 4)],
}


def arguments(name: str) -> list[np.ndarray]:
    """Random arguments of a program, the same in each process."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(s).astype(np.float32) if s else np.array(True) for s in SHAPES[name]]


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
    machine = relax.VirtualMachine(root.runtime.load_module(library), root.cpu())
    np.savez(option, machine["main"](*[root.runtime.tensor(a) for a in arguments(name)]).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
