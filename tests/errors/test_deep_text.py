"""Text that nests without measure is refused by an error of Weft's within seconds, or read where it is only long."""

import pytest

from tests.refusals import refuses
from weft import error, ir, relay, script

N = 100_000
TIR = "from weft.script import tir as T\n@T.prim_func\ndef f(A: T.Buffer((8,), 'int32')):\n"
RELAX = "from weft.script import relax as R\n@R.function\ndef f(x: R.Tensor((8,), 'float32')):\n"
SCRIPTS = {
    "parentheses": f"{TIR}    A[0] = {'(' * N}1{')' * N}\n",
    "signs": f"{TIR}    A[0] = {'-' * N}1\n",
    "sum": f"{TIR}    A[0] = A[1]{' + A[2]' * N}\n",
    "calls": f"{TIR}    A[0] = {'T.abs(' * N}1{')' * N}\n",
    "attributes": f"{TIR}    A[0] = A{'.x' * N}\n",
    "zero": f"{TIR}    A[0] = \0\n",
    "ifs": TIR + "".join(" " * (i + 1) + "if A[0] > 1:\n" for i in range(3000)) + " " * 3001 + "A[0] = 1\n",
    "elifs": f"{TIR}    if A[0] > 1:\n        A[0] = 1\n" + "    elif A[0] > 1:\n        A[0] = 1\n" * 50_000,
    "relax": f"{RELAX}    return {'R.add(x, ' * N}x{')' * N}\n",
    "shape": f"{RELAX.replace('(8,)', repr(('(' * N + 'n' + ')' * N,)))}    return x\n",
}
RELAY = {
    "parentheses": f"def @main(%x: int32) {{ {'(' * N}%x{')' * N} }}",
    "types": f"def @main(%x: {'(' * N}int32{',)' * N}) {{ 1 }}",
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_scripts(case: str) -> None:
    refuses(error.WeftError, "", script.from_source, SCRIPTS[case])


@pytest.mark.parametrize("case", RELAY)
def test_relay(case: str) -> None:
    refuses(error.WeftError, "nests too deep", relay.parse, '#[version = "0.0.5"]\n' + RELAY[case])


def test_json() -> None:
    refuses(error.WeftError, "nests too deep", ir.load_json, "[" * N + "]" * N)
