"""Factors of matrices, which JAX asks LAPACK for by custom calls."""

from typing import Any

from weft.frontend.complex_arithmetic import Complex
from weft.frontend.lapack import call_lapack
from weft.frontend.stablehlo.importer import CONVERTERS, Node

_NAMES = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd"}
_REAL = "getrf potrf trsm geqrf geqp3 orgqr ormqr syevd gesdd geev gees gehrd sytrd gtsv".split()


@CONVERTERS.on(*(f"stablehlo.custom_call @lapack_{t}{name}_ffi" for name in (*_REAL, *_NAMES) for t in "sdcz"))
def _lapack(node: Node) -> Any:
    """A routine for each matrix of a stack; letters of options are numbers in the text."""
    name = str(node.attr("callee")).split("_")[1][1:]
    name, options = _NAMES.get(name, name), node.attr("mhlo.backend_config", node.attr("backend_config", {}))
    options = {k: chr(v) if type(v) is int and k not in ("low", "high") else v for k, v in options.items()}
    dims, types = node.dims(node.x), node.source.types
    batch = len(dims) - (1 if name == "gtsv" else 2)
    if batch < 0:
        node.error("is of matrices", expected="two dimensions at least", found=str(dims))
    if name == "gesdd":
        options["full"] = all(t.shape[-1] == t.shape[-2] for t in types[2:4])
    if name == "ormqr":
        turned = "C" if isinstance(node.x, Complex) else "T"
        options = {"side": "L" if options["left"] else "R", "trans": turned if options["transpose"] else "N"}
    shapes = [[dims[i] if n < 0 and i < batch else n for i, n in enumerate(ty.shape)] for ty in types]
    if any(isinstance(n, int) and n < 0 for shape in shapes for n in shape):
        node.unsupported("matrices of open sizes", expected="open sizes of stacks alone")
    results = [(shape, t.dtype, t.is_complex) for shape, t in zip(shapes, types, strict=True)]
    return call_lapack(node.graph, name, node.operands, results, batch, **options)
