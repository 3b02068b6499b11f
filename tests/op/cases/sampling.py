"""Drawing the next token."""

from typing import Any

from tests.op.contract import Case, Sizes, call, case, cases


@cases("uniform_at")
def _numbers(s: Sizes) -> Case:
    low, high = -(1 << 62), 1 << 62
    return call(s.integer(s.b, 1, low=low, high=high), s.integer(s.b, 1, low=0, high=high), atol=0, rtol=0)


def _parameters(s: Sizes) -> list[Any]:
    heat = s.real(s.b, 1, low=0.1, high=2.0)
    heat.value[::3] = 0
    return [
        s.real(s.b, 1, low=0.0, high=0.999, dtype="float64"),
        heat,
        s.integer(s.b, 1, low=0, high=9, dtype="int32"),
        s.real(s.b, 1, low=0.0, high=1.4),
    ]


case("sample_token", make=lambda s: call(s.real(s.b, s.c), *_parameters(s), dtype="int32"))


@cases("sample_token")
def _ties_and_history(s: Sizes) -> Case:
    logits = s.real(s.b, s.c)
    logits.value[:] = logits.value.round()
    history = s.integer(s.b, s.d, low=-1, high=int(s.c))
    return call(logits, *_parameters(s), s.real(s.b, 1, low=0.5, high=1.5), history)


def _generator(s: Sizes) -> Any:
    gen = s.integer(10, low=0, high=1 << 62, dtype="uint64")
    if s.b % 2:
        gen.value[8:] = 0  # the path is full
    return gen


case("threefry_split", make=lambda s: call(_generator(s), atol=0, rtol=0))


@cases("threefry_generate")
def _words(s: Sizes) -> Case:
    gen = _generator(s)
    if s.c % 2:
        gen.value[7] = (1 << 64) - 1 - int(s.d)  # the counter is exhausted
    return call(gen, out_shape=(int(s.d), 3), atol=0, rtol=0, symbolic=False)
