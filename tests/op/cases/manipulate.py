"""Moving, joining, cutting and making tensors."""

from tests.op.contract import Case, Dim, Shape, Sizes, call, case, cases

case("reshape", make=lambda s: call(s.real(s.a, s.b, 6), Shape((s.a, s.b, 2, 3))))
case("reshape", make=lambda s: None if s.b == 0 else call(s.real(s.a, s.b, 6), Shape((3, -1, s.b))))


@cases("reshape")
def _reshape_merge(s: Sizes) -> Case:
    return call(
        s.integer(s.a, s.b, s.c), Shape((s.a, -1)) if 0 not in (s.b,) else Shape((s.a, 0 * s.b)), symbolic=s.b > 0
    )


case("reshape", make=lambda s: call(s.real(s.a, s.b), Shape((Dim("rows", s.a * s.b), 1)), symbolic=False))
case("flatten", make=lambda s: call(s.real(s.a, s.b, s.c)))
case("permute_dims", make=lambda s: call(s.real(s.a, s.b, s.c, 2), axes=[2, 0, -1, 1]))
case("permute_dims", make=lambda s: call(s.integer(s.a, s.b)))
case("permute_dims", make=lambda s: call(s.real()))
case("expand_dims", make=lambda s: call(s.real(s.a, s.b), axis=[0, -1]))
case("squeeze", make=lambda s: call(s.real(s.a, 1, s.b, 1), axis=(1, -1)))
case("squeeze", make=lambda s: call(s.real(1, 3, 1)))
case("concat", make=lambda s: call((s.real(s.a, s.b), s.real(s.a, s.c), s.real(s.a, 2)), axis=1))
case("concat", make=lambda s: call(tuple(s.integer(s.d, s.a) for _ in range(5)), axis=-2))
case("concat", make=lambda s: call((s.real(s.a, s.b),), axis=0))
case("split", make=lambda s: call(s.real(s.a, 7, s.b), indices_or_sections=3, axis=1))
case("split", make=lambda s: call(s.real(9, s.b), indices_or_sections=[2, 5, 5], axis=0))
case("split", make=lambda s: None if s.c < 3 else call(s.real(s.a, s.c), indices_or_sections=(1, 3), axis=-1))
case("stack", make=lambda s: call((s.real(s.a, s.b), s.real(s.a, s.b), s.real(s.a, s.b)), axis=1))
case("stack", make=lambda s: call((s.real(s.b), s.real(s.b)), axis=-1))
case("broadcast_to", make=lambda s: call(s.real(s.b, 1), Shape((s.a, s.b, s.c))))
case("broadcast_to", make=lambda s: None if s.d not in (1, s.a) else call(s.real(s.d, s.b), Shape((s.a, s.b))))
case("broadcast_to", make=lambda s: call(s.real(), Shape(())))
case("tile", make=lambda s: call(s.real(s.a, s.b), repeats=(2, 1, 3)))
case("tile", make=lambda s: call(s.real(s.a, s.b), repeats=[2]))
case("repeat", make=lambda s: call(s.real(s.a, s.b), repeats=3, axis=1))
case("repeat", make=lambda s: call(s.real(s.a, s.b), repeats=2))
case("flip", make=lambda s: call(s.real(s.a, s.b, s.c), axis=-2))
case("strided_slice", make=lambda s: call(s.real(s.a, 9, 8), axes=[1, 2], begin=[1, -5], end=[7, 100], strides=[2, 1]))
case("strided_slice", make=lambda s: call(s.real(), axes=[], begin=[], end=[]))
case("strided_slice", make=lambda s: call(s.real(7, s.b), axes=[0], begin=[-1], end=[-(2**31)], strides=[-2]))
case("strided_slice", make=lambda s: None if s.c < 3 else call(s.real(s.a, s.c), axes=[1], begin=[1], end=[-1]))


@cases("strided_slice")
def _slice_reverse_symbolic(s: Sizes) -> Case | None:
    return None if s.c < 2 else call(s.real(s.a, s.c), axes=[1], begin=[-1], end=[-(2**63)], strides=[-1])


@cases("strided_slice")
def _slice_past_the_end(s: Sizes) -> Case:
    """Constant bounds of a symbolic dimension follow NumPy's rules, also where the dimension is shorter."""
    return call(s.real(s.a, s.c), axes=[1], begin=[2], end=[6])


case("strided_slice", make=lambda s: call(s.real(s.a, s.c), axes=[1], begin=[-4], end=[2**63 - 1]))
case("nn.pad", make=lambda s: call(s.real(s.a, s.b), pad_width=(1, 0, 2, 3), pad_value=0.5))
case("nn.pad", make=lambda s: call(s.integer(s.a, s.b), pad_width=(0, 0, 0, 2), pad_value=7))


def _pad_mode(mode: str) -> None:
    @cases("nn.pad")
    def make(s: Sizes) -> Case | None:
        return None if s.c < 3 else call(s.real(s.a, s.c, 4), pad_width=(0, 0, 2, 1, 1, 3), pad_mode=mode)

    @cases("nn.pad")
    def wide(s: Sizes) -> Case | None:
        return call(s.real(s.a, 3), pad_width=(0, 0, 7, 8), pad_mode=mode)


for _mode in ("reflect", "edge", "replicate", "wrap", "circular"):
    _pad_mode(_mode)


case("full", make=lambda s: call(Shape((s.a, s.b)), s.real()))
case("full", make=lambda s: call(Shape((s.a, 3)), s.integer(1), dtype="float32"))
case("full_like", make=lambda s: call(s.real(s.a, s.b), s.integer(), dtype="int32"))
case("zeros", "ones", make=lambda s, name: call(Shape((s.a, s.b, 2)), dtype="int64"))
case("zeros_like", "ones_like", make=lambda s, name: call(s.integer(s.a, s.b), dtype="float32"))
case("zeros_like", "ones_like", make=lambda s, name: call(s.boolean(s.a, s.b)))
case("arange", make=lambda s: call(0, s.b, 1))
case("arange", make=lambda s: call(s.a, s.c, 2, dtype="float32"))
case("arange", make=lambda s: call(s.c, 0, -3, dtype="int32"))
case("arange", make=lambda s: call(0.5, 3.2, 0.4, dtype="float32", symbolic=False, rtol=1e-5))
case("size", make=lambda s: call(s.real(s.a, 3, s.b, s.c)))
case("size", make=lambda s: call(s.integer()))
case("tril", "triu", make=lambda s, name: call(s.real(s.a, s.b, s.c)))
case("tril", "triu", make=lambda s, name: call(s.integer(s.b, s.c), k=-2))
case("tril", "triu", make=lambda s, name: call(s.boolean(s.b, s.c), k=1))
case("eye", make=lambda s: call(s.a, s.b, 1, dtype="int64"))
case("eye", make=lambda s: call(s.b, s.a, -1))
case("hamming_window", make=lambda s: call(s.a, True, 0.54, 0.46, rtol=1e-5))
case("hamming_window", make=lambda s: call(s.b, False, 0.5, 0.5, dtype="float64"))
case("slice_scatter", make=lambda s: call(s.real(s.a, 7, s.b), s.real(s.a, 3, s.b), 1, -1, 2, axis=1))
case("slice_scatter", make=lambda s: call(s.integer(5, s.a), s.integer(4, s.a), 1, 1 << 40, 1))
case("eye_like", make=lambda s: call(s.real(s.a, s.b), k=-1))
case("space_to_depth", make=lambda s: call(s.real(s.a, 3, 4, 6), block_size=2))
case("space_to_depth", make=lambda s: call(s.real(s.a, s.b, 4, 6), block_size=2))
case("depth_to_space", make=lambda s: call(s.real(s.a, 12, s.b, s.c), block_size=2))
case("depth_to_space", make=lambda s: call(s.real(s.a, 8, s.b, s.c), block_size=2, mode="CRD"))
case("nn.pixel_shuffle", make=lambda s: call(s.real(s.a, 18, s.b, s.c), upscale_factor=3))
case("meshgrid", make=lambda s: call((s.real(s.a), s.real(s.b), s.real(s.c))))
case("meshgrid", make=lambda s: call((s.real(s.a), s.real(s.b)), indexing="xy"))
case("layout_transform", make=lambda s: call(s.real(s.a, s.b, s.c), src_layout="NCW", dst_layout="NWC"))
case("layout_transform", make=lambda s: call(s.real(s.a, 8, s.b), src_layout="NCW", dst_layout="NCW4c"))
case("layout_transform", make=lambda s: call(s.real(s.a, 2, s.b, 4), src_layout="NCW4c", dst_layout="NWC"))
case("nn.batch_flatten", make=lambda s: call(s.real(s.a, s.b, 3, s.c)))
case("concat", make=lambda s: call((s.real(s.a), s.real(s.b)), axis=None))
