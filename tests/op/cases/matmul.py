"""Matrix products."""

from tests.op.contract import Array, Case, Cases, Fixed, Sizes, call, case, cases
from weft.relax.transform.compress_weights import compress

RANKS = (
    lambda s: ((s.a, s.b), (s.b, s.c)),
    lambda s: ((s.b,), (s.b, s.c)),
    lambda s: ((s.a, s.b), (s.b,)),
    lambda s: ((s.b,), (s.b,)),
    lambda s: ((s.d, s.a, s.b), (s.b, s.c)),
    lambda s: ((s.a, s.b), (s.d, s.b, s.c)),
    lambda s: ((s.d, 1, s.a, s.b), (3, s.b, s.c)),
    lambda s: ((s.d, s.a, s.b), (s.d, s.b, s.c)),
    lambda s: ((s.b,), (s.d, s.b, s.c)),
    lambda s: ((s.d, s.a, s.b), (s.b,)),
)


def _product(ranks) -> None:
    @cases("matmul")
    def make(s: Sizes) -> Case:
        x, y = ranks(s)
        return call(s.real(*x), s.real(*y), rtol=1e-4, atol=1e-4)


for _ranks in RANKS:
    _product(_ranks)


@cases("matmul")
def _integers(s: Sizes) -> Case:
    return call(s.integer(s.a, s.b, dtype="int8"), s.integer(s.b, s.c, dtype="int8"), out_dtype="int32")


@cases("matmul")
def _half(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.b, dtype="float16"), s.real(s.b, s.c, dtype="float16"), out_dtype="float32", rtol=1e-3, atol=1e-3
    )


@cases("matmul", when=lambda s: s.a == s.d or 1 in (s.a, s.d))
def _maybe_broadcast(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), s.real(s.d, s.c, s.b), rtol=1e-4, atol=1e-4)


case("linear", make=lambda s: call(s.real(s.a, s.d, s.b), s.real(s.c, s.b), s.real(s.c), rtol=1e-4, atol=1e-4))
case("linear", make=lambda s: call(s.real(s.a, s.b), s.real(s.c, s.b), rtol=1e-4, atol=1e-4))


@cases("linear")
def _linear_of_one_row(s: Sizes) -> Case:
    return call(s.real(1, 1, 53), s.real(s.c, 53), s.real(s.c), rtol=1e-4, atol=1e-4, symbolic=False)


case("linear", make=lambda s: call(s.real(32), s.real(s.b, 32), rtol=1e-4, atol=1e-4))
case("outer", make=lambda s: call(s.real(s.a), s.real(s.b)))


@cases("nn.matmul_packed")
def _packed(s: Sizes) -> Cases:
    yield call(s.real(s.d, s.a, s.b), s.real(3, s.b, 16), n=37, rtol=1e-4, atol=1e-4)
    yield call(s.real(s.a, 9), Fixed(s.real(1, 9, 32)), n=32, rtol=1e-4, atol=1e-4)


@cases("nn.matmul_packed")
def _packed_in_groups(s: Sizes) -> Case:
    w = s.real(3, -(-s.b // 2), 32)
    return call(s.real(s.d, s.a, s.b), w, n=37, group=2, rtol=1e-4, atol=1e-4, symbolic=False)


@cases("nn.matmul_packed")
def _packed_in_groups_for_any_rows(s: Sizes) -> Case:
    return call(s.real(s.d, s.a, 9), Fixed(s.real(3, 5, 32)), n=37, group=2, rtol=1e-4, atol=1e-4)


def _compressed(s: Sizes, shape: tuple, n: int) -> Case:
    weights = s.real(n // 16 + 1, shape[-1], 16).value
    weights[:, ::20, ::3] *= 1e-7
    made = compress(weights)
    assert made is not None
    return call(s.real(*shape), *(Fixed(Array(a, a.shape)) for a in made), n=n, rtol=1e-4, atol=1e-4)


case("nn.matmul_compressed", make=lambda s: _compressed(s, (1, 1, 40), 37))
case("nn.matmul_compressed", make=lambda s: _compressed(s, (s.d, s.a, 16), 21))


EINSUMS = (
    ("ij,jk->ik", lambda s: ((s.a, s.b), (s.b, s.c))),
    ("ij->ji", lambda s: ((s.a, s.b),)),
    ("ij->", lambda s: ((s.a, s.b),)),
    ("i,i", lambda s: ((s.b,), (s.b,))),
    ("bij, bjk -> bik", lambda s: ((s.d, s.a, s.b), (s.d, s.b, s.c))),
    ("...ij,...jk->...ik", lambda s: ((s.d, 2, s.a, s.b), (2, s.b, s.c))),
    ("ii->i", lambda s: ((s.b, s.b),)),
    ("...ii", lambda s: ((s.a, s.b, s.b),)),
    ("i,j->ij", lambda s: ((s.a,), (s.b,))),
    ("abc,cd,de->abe", lambda s: ((s.a, 2, s.b), (s.b, s.c), (s.c, 3))),
    ("bhqd,bhkd->bhqk", lambda s: ((s.d, 2, s.a, 4), (s.d, 2, s.b, 4))),
    ("ba", lambda s: ((s.a, s.b),)),
)


def _einsum(text: str, dims) -> None:
    @cases("einsum")
    def make(s: Sizes) -> Case:
        return call(tuple(s.real(*d) for d in dims(s)), subscripts=text, rtol=1e-4, atol=1e-4)


for _text, _dims in EINSUMS:
    _einsum(_text, _dims)
