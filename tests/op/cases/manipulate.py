"""Moving, joining, cutting and making tensors."""

from __future__ import annotations

from tests.op.contract import Case, Dim, Shape, Sizes, call, cases


@cases("reshape")
def _reshape(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, 6), Shape((s.a, s.b, 2, 3)))


@cases("reshape")
def _reshape_rest(s: Sizes) -> Case | None:
    return None if s.b == 0 else call(s.real(s.a, s.b, 6), Shape((3, -1, s.b)))


@cases("reshape")
def _reshape_merge(s: Sizes) -> Case:
    return call(
        s.integer(s.a, s.b, s.c), Shape((s.a, -1)) if 0 not in (s.b,) else Shape((s.a, 0 * s.b)), symbolic=s.b > 0
    )


@cases("reshape")
def _reshape_value(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), Shape((Dim("rows", s.a * s.b), 1)), symbolic=False)


@cases("flatten")
def _flatten(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c))


@cases("permute_dims")
def _permute(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c, 2), axes=[2, 0, -1, 1])


@cases("permute_dims")
def _transpose(s: Sizes) -> Case:
    return call(s.integer(s.a, s.b))


@cases("expand_dims")
def _expand(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), axis=[0, -1])


@cases("squeeze")
def _squeeze(s: Sizes) -> Case:
    return call(s.real(s.a, 1, s.b, 1), axis=(1, -1))


@cases("squeeze")
def _squeeze_all(s: Sizes) -> Case:
    return call(s.real(1, 3, 1))


@cases("concat")
def _concat(s: Sizes) -> Case:
    return call((s.real(s.a, s.b), s.real(s.a, s.c), s.real(s.a, 2)), axis=1)


@cases("concat")
def _concat_many(s: Sizes) -> Case:
    return call(tuple(s.integer(s.d, s.a) for _ in range(5)), axis=-2)


@cases("concat")
def _concat_one(s: Sizes) -> Case:
    return call((s.real(s.a, s.b),), axis=0)


@cases("split")
def _split(s: Sizes) -> Case:
    return call(s.real(s.a, 7, s.b), indices_or_sections=3, axis=1)


@cases("split")
def _split_points(s: Sizes) -> Case:
    return call(s.real(9, s.b), indices_or_sections=[2, 5, 5], axis=0)


@cases("split")
def _split_symbolic(s: Sizes) -> Case | None:
    return None if s.c < 3 else call(s.real(s.a, s.c), indices_or_sections=(1, 3), axis=-1)


@cases("stack")
def _stack(s: Sizes) -> Case:
    return call((s.real(s.a, s.b), s.real(s.a, s.b), s.real(s.a, s.b)), axis=1)


@cases("stack")
def _stack_last(s: Sizes) -> Case:
    return call((s.real(s.b), s.real(s.b)), axis=-1)


@cases("broadcast_to")
def _broadcast_to(s: Sizes) -> Case:
    return call(s.real(s.b, 1), Shape((s.a, s.b, s.c)))


@cases("broadcast_to")
def _broadcast_to_maybe(s: Sizes) -> Case | None:
    return None if s.d not in (1, s.a) else call(s.real(s.d, s.b), Shape((s.a, s.b)))


@cases("tile")
def _tile(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), repeats=(2, 1, 3))


@cases("tile")
def _tile_short(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), repeats=[2])


@cases("repeat")
def _repeat(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), repeats=3, axis=1)


@cases("repeat")
def _repeat_flat(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), repeats=2)


@cases("flip")
def _flip(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), axis=-2)


@cases("strided_slice")
def _slice(s: Sizes) -> Case:
    return call(s.real(s.a, 9, 8), axes=[1, 2], begin=[1, -5], end=[7, 100], strides=[2, 1])


@cases("strided_slice")
def _slice_backwards(s: Sizes) -> Case:
    return call(s.real(7, s.b), axes=[0], begin=[-1], end=[-(2**31)], strides=[-2])


@cases("strided_slice")
def _slice_symbolic(s: Sizes) -> Case | None:
    return None if s.c < 3 else call(s.real(s.a, s.c), axes=[1], begin=[1], end=[-1])


@cases("strided_slice")
def _slice_reverse_symbolic(s: Sizes) -> Case | None:
    return None if s.c < 2 else call(s.real(s.a, s.c), axes=[1], begin=[-1], end=[-(2**63)], strides=[-1])


@cases("strided_slice")
def _slice_past_the_end(s: Sizes) -> Case:
    """Constant bounds of a symbolic dimension follow NumPy's rules, also where the dimension is shorter."""
    return call(s.real(s.a, s.c), axes=[1], begin=[2], end=[6])


@cases("strided_slice")
def _slice_past_the_start(s: Sizes) -> Case:
    return call(s.real(s.a, s.c), axes=[1], begin=[-4], end=[2**63 - 1])


@cases("nn.pad")
def _pad(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), pad_width=(1, 0, 2, 3), pad_value=0.5)


@cases("nn.pad")
def _pad_integers(s: Sizes) -> Case:
    return call(s.integer(s.a, s.b), pad_width=(0, 0, 0, 2), pad_value=7)


def _pad_mode(mode: str) -> None:
    @cases("nn.pad")
    def make(s: Sizes) -> Case | None:
        return None if s.c < 3 else call(s.real(s.a, s.c, 4), pad_width=(0, 0, 2, 1, 1, 3), pad_mode=mode)

    @cases("nn.pad")
    def wide(s: Sizes) -> Case | None:
        return call(s.real(s.a, 3), pad_width=(0, 0, 7, 8), pad_mode=mode)


for _mode in ("reflect", "edge", "replicate", "wrap", "circular"):
    _pad_mode(_mode)


@cases("full")
def _full(s: Sizes) -> Case:
    return call(Shape((s.a, s.b)), s.real())


@cases("full")
def _full_cast(s: Sizes) -> Case:
    return call(Shape((s.a, 3)), s.integer(1), dtype="float32")


@cases("full_like")
def _full_like(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), s.integer(), dtype="int32")


@cases("zeros", "ones")
def _make(s: Sizes, name: str) -> Case:
    return call(Shape((s.a, s.b, 2)), dtype="int64")


@cases("zeros_like", "ones_like")
def _make_like(s: Sizes, name: str) -> Case:
    return call(s.integer(s.a, s.b), dtype="float32")


@cases("zeros_like", "ones_like")
def _make_like_same(s: Sizes, name: str) -> Case:
    return call(s.boolean(s.a, s.b))


@cases("arange")
def _arange(s: Sizes) -> Case:
    return call(0, s.b, 1)


@cases("arange")
def _arange_step(s: Sizes) -> Case:
    return call(s.a, s.c, 2, dtype="float32")


@cases("arange")
def _arange_down(s: Sizes) -> Case:
    return call(s.c, 0, -3, dtype="int32")


@cases("arange")
def _arange_fraction(s: Sizes) -> Case:
    return call(0.5, 3.2, 0.4, dtype="float32", symbolic=False, rtol=1e-5)


@cases("tril", "triu")
def _triangle(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.b, s.c))


@cases("tril", "triu")
def _triangle_shifted(s: Sizes, name: str) -> Case:
    return call(s.integer(s.b, s.c), k=-2)


@cases("tril", "triu")
def _triangle_up(s: Sizes, name: str) -> Case:
    return call(s.boolean(s.b, s.c), k=1)


@cases("eye")
def _eye(s: Sizes) -> Case:
    return call(s.a, s.b, 1, dtype="int64")


@cases("eye")
def _eye_below(s: Sizes) -> Case:
    return call(s.b, s.a, -1)


@cases("eye_like")
def _eye_like(s: Sizes) -> Case:
    return call(s.real(s.a, s.b), k=-1)


@cases("space_to_depth")
def _space_to_depth(s: Sizes) -> Case:
    return call(s.real(s.a, 3, 4, 6), block_size=2)


@cases("space_to_depth")
def _space_to_depth_symbolic(s: Sizes) -> Case | None:
    return call(s.real(s.a, s.b, 4, 6), block_size=2)


@cases("depth_to_space")
def _depth_to_space(s: Sizes) -> Case:
    return call(s.real(s.a, 12, s.b, s.c), block_size=2)


@cases("depth_to_space")
def _depth_to_space_crd(s: Sizes) -> Case:
    return call(s.real(s.a, 8, s.b, s.c), block_size=2, mode="CRD")


@cases("nn.pixel_shuffle")
def _pixel_shuffle(s: Sizes) -> Case:
    return call(s.real(s.a, 18, s.b, s.c), upscale_factor=3)


@cases("meshgrid")
def _meshgrid(s: Sizes) -> Case:
    return call((s.real(s.a), s.real(s.b), s.real(s.c)))


@cases("meshgrid")
def _meshgrid_xy(s: Sizes) -> Case:
    return call((s.real(s.a), s.real(s.b)), indexing="xy")


@cases("layout_transform")
def _layout(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), src_layout="NCW", dst_layout="NWC")


@cases("layout_transform")
def _layout_blocks(s: Sizes) -> Case:
    return call(s.real(s.a, 8, s.b), src_layout="NCW", dst_layout="NCW4c")


@cases("layout_transform")
def _layout_back(s: Sizes) -> Case:
    return call(s.real(s.a, 2, s.b, 4), src_layout="NCW4c", dst_layout="NWC")


@cases("nn.batch_flatten")
def _batch_flatten(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, 3, s.c))


@cases("concat")
def _concat_without_axis(s: Sizes) -> Case:
    return call((s.real(s.a), s.real(s.b)), axis=None)
