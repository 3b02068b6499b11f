"""Bags of embeddings, triangles, distances, windows that are put back."""

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.frontend.torch.programs import Call, check
from weft.error import ModelImportError

OPEN = ({i: Dim.AUTO for i in range(4)},)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_number(mode):
    """Two bags are empty, and one index is the padding's."""
    weight, offsets = torch.randn(10, 5), torch.tensor([0, 2, 2, 5])
    function = Call(lambda i, o: F.embedding_bag(i, weight, o, mode=mode, padding_idx=3))
    first = (torch.tensor([1, 3, 3, 3, 3, 9, 0]), offsets)
    second = (torch.randint(0, 10, (9,)), torch.tensor([0, 2, 9]))
    check(function, first, second, dynamic=({0: Dim("n")}, ({0: Dim("bags")},)))


def test_bags_with_weights_and_a_last_offset():
    weight = torch.randn(10, 5)
    function = Call(
        lambda i, o, p: F.embedding_bag(i, weight, o, mode="sum", per_sample_weights=p, include_last_offset=True)
    )
    check(function, (torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 7]), torch.randn(7)))


def test_triangles():
    call = Call(lambda x: x[tuple(torch.triu_indices(*x.shape, 1))] + torch.tril_indices(6, 5, -2)[0, 3])
    check(call, (torch.randn(5, 6),))


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 2.5, float("inf")])
def test_distances(order):
    call = Call(lambda a, b: (torch.cdist(a, b, order), F.pdist(b[0], order)))
    check(call, (torch.randn(2, 5, 6), torch.randn(1, 3, 6)))


def test_windows_are_put_back():
    shape = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    check(Call(lambda x: F.fold(F.unfold(x, **shape), (7, 8), **shape)), (torch.randn(2, 3, 7, 8),))
    put_back = Call(lambda x: F.fold(x, (7, 8), **shape))
    check(put_back, (torch.randn(2, 18, 24),), (torch.randn(5, 18, 24),), dynamic=({0: Dim("n")},))


@pytest.mark.parametrize("how", ["amax", "amin", "sum", "prod"])
def test_truth_is_gathered_with_and_and_or(how):
    x, places = torch.rand(4, 5) > 0.5, torch.randint(0, 4, (3, 5))
    check(Call(lambda x, i, y: x.scatter_reduce(0, i, y, how, include_self=False)), (x, places, torch.rand(3, 5) > 0.5))


def test_arguments_that_say_nothing_of_a_scalar():
    """`keepdim` is an argument that the converter knows, also where it does not matter; no index has any rank."""
    check(Call(lambda x: x.min(0, True).values), (torch.tensor(3.0),))
    check(Call(lambda x, i: x.gather(0, i)), (torch.randn(3, 4), torch.zeros(0, dtype=torch.int64)))


def test_a_normalisation_in_training_mode():
    """It normalises by the batch, and says what the running statistics become."""

    def normalise(x, mean, spread):
        return torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, spread, True, 0.1, 1e-5)

    check(Call(normalise), (torch.randn(4, 3, 5), torch.randn(3), torch.rand(3)))


def test_gradients_of_the_greatest_elements():
    def back(x, grad, places):
        return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, [2, 2], [1, 1], [0, 0], [1, 1], False, places)

    x = torch.randn(2, 3, 5, 6)
    out, places = F.max_pool2d(x, 2, 1, return_indices=True)
    check(Call(back), (x, torch.randn_like(out), places))


def test_operators_by_their_other_names():
    def logic(x, y):
        return (x > 0) & (y > 0) | (x < y) ^ (y < 0), (x.int() & 3 | 8 ^ y.int()).type_as(x)

    check(Call(logic), (torch.randn(4, 5) * 9, torch.randn(5) * 9))


def test_resizes_by_a_factor_of_open_dimensions():
    """The size of the result is computed in float64, and cut."""
    function = Call(lambda x: F.interpolate(x, scale_factor=(0.7, 1.3), mode="bilinear"))
    check(function, (torch.randn(2, 3, 13, 11),), (torch.randn(1, 2, 10, 30),), dynamic=OPEN)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizes_that_cover_what_they_shrink(mode):
    def function(x):
        return (
            F.interpolate(x, (5, 17), mode=mode, antialias=True),
            getattr(torch.ops.aten, f"_upsample_{mode}2d_aa")(x, [4, 6], False),
            F.interpolate(x, scale_factor=(0.4, 1.3), mode=mode, antialias=True),
            F.interpolate(x.double(), (3, x.shape[3] // 2), mode=mode, antialias=True),
        )

    check(Call(function), (torch.randn(2, 3, 13, 11),), (torch.randn(1, 2, 20, 9),), dynamic=OPEN)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_resizes_of_float64_are_computed_in_it(mode, antialias):
    call = Call(lambda x: F.interpolate(x, (31, 47), mode=mode, antialias=antialias))
    check(call, (torch.randn(1, 2, 200, 150, dtype=torch.float64),), tolerance=1e-11)


def test_greatest_elements_of_windows_of_several_lengths():
    """Equal ones among them, and one that is no number."""
    x = torch.randint(0, 3, (2, 3, 7, 11)).float()
    x[0, 0, 3, 4] = torch.nan
    in_planes = Call(lambda x: (*F.adaptive_max_pool2d(x, (3, 4), True), *F.adaptive_max_pool1d(x[0], 5, True)))
    for call in (in_planes, Call(lambda x: F.adaptive_max_pool3d(x, (2, 1, 6), True))):
        check(call, (x,), (torch.randn(1, 2, 9, 6),), dynamic=OPEN)


def test_pools_that_keep_a_dimension_of_the_images():
    def pooled(x):
        flat = F.adaptive_avg_pool2d(x, (None, 1)), F.adaptive_avg_pool2d(x, (None, None))
        return *flat, F.adaptive_avg_pool3d(x, (None, 2, None))

    check(Call(pooled), (torch.randn(2, 3, 7, 5),), (torch.randn(4, 2, 6, 9),), dynamic=OPEN)


@pytest.mark.parametrize("dynamic", [None, ({2: Dim.AUTO, 3: Dim.AUTO},)])
@pytest.mark.parametrize("given", [(7,), ((7, 6), 3, 3, True, False), (7, 1, 0, False, True, 7)])
def test_means_of_integers_are_rounded_towards_zero(given, dynamic):
    """Of 49 ones, too, where a float's part of 49 sums up to less than one."""
    check(Call(lambda x: F.avg_pool2d(x, *given)), (torch.ones(1, 2, 21, 22, dtype=torch.int64),), dynamic=dynamic)


def test_elements_by_strides():
    def written(x, y):
        x = x + 0
        torch.as_strided(x, (2, 3), (4, 1), 2).mul_(y)
        return x, torch.as_strided_scatter(x, y, (2, 3), (1, 2)), x[1:].as_strided((2, 2), (1, 3))

    check(Call(written), (torch.randn(3, 4), torch.randn(2, 3)))
    with pytest.raises(ModelImportError, match="beyond the elements"):
        check(Call(lambda x: x[1:].as_strided((2,), (1,), 0) + 1), (torch.randn(3, 4),))


def test_convolutions_with_weights_for_each_sample():
    """As many groups as samples, of which the run tells how many there are."""

    def convolved(x, w):
        n, c, rows, columns = x.shape
        y = F.conv2d(x.reshape(1, n * c, rows, columns), w.reshape(n * 4, c, 3, 2), None, (2, 1), (1, 0), (1, 2), n)
        z = F.conv1d(
            x[:, :, 0].reshape(1, n * c, columns), w[..., 0].reshape(n * 4, c, 3), w.flatten()[: n * 4], groups=n
        )
        return y.view(n, 4, *y.shape[2:]), z

    shapes = [((n, 3, 7, 8), (n, 4, 3, 3, 2)) for n in (2, 5, 1)]
    inputs = [tuple(map(torch.randn, pair)) for pair in shapes]
    check(Call(convolved), *inputs, dynamic=({0: Dim.AUTO}, ({0: Dim.AUTO},)))


def test_layers_of_two_inputs():
    layer = nn.Bilinear(4, 6, 3)
    call = Call(lambda x, y: layer(x, y))
    call.layer = layer
    inputs = [tuple(torch.randn(*sizes, n) for n in (4, 6)) for sizes in ((5, 2), (1, 7))]
    check(call, *inputs, dynamic=({0: Dim.AUTO, 1: Dim.AUTO}, ({0: Dim.AUTO, 1: Dim.AUTO},)))


@pytest.mark.parametrize(("dim", "start", "end"), [(0, 1, 3), (1, -3, 9), (-1, 2, -1), (1, 0, 9), (1, 7, 9), (0, 2, 2)])
def test_slices_are_set_without_looking_places_up(dim, start, end):
    x = torch.randn(3, 5, 7)
    length = len(range(*slice(start, end).indices(x.shape[dim])))
    src = torch.randn([length if d == dim % 3 else n for d, n in enumerate(x.shape)])
    mod = check(Call(lambda x, y: (x.slice_scatter(y, dim, start, end), F.pad(x, (2, 1), mode="circular"))), (x, src))
    assert "take" not in str(mod)
