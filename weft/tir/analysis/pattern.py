"""What a block computes and how it addresses memory: contractions, and the stride of an access along a variable."""

from __future__ import annotations

from weft import arith, ir
from weft.tir.analysis.access import loads_of, stores_of
from weft.tir.analysis.dependence import reduce_vars, spatial_vars
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.stmt import Block, BufferStore

_COSTLY = {
    "exp": 12,
    "exp2": 12,
    "log": 14,
    "tanh": 24,
    "erf": 36,
    "sigmoid": 20,
    "sin": 16,
    "cos": 16,
    "tan": 30,
    "sqrt": 4,
    "rsqrt": 5,
    "pow": 30,
    "atan": 20,
    "asin": 20,
    "acos": 20,
    "sinh": 30,
    "cosh": 30,
    "log1p": 20,
    "log2": 14,
    "log10": 14,
    "exp10": 14,
    "asinh": 40,
    "acosh": 40,
    "atanh": 40,
    "atan2": 40,
    "fmod": 20,
}


def element_cost(node: ir.Node) -> int:
    """Estimate the work of one element, in units of a simple vector operation; shapes of buffers are none."""
    cost = 0
    for n in ir.walk(node, leaf=Buffer):
        if isinstance(n, ir.CallIntrin):
            cost += _COSTLY.get(getattr(n.op, "name", "").removeprefix("tir."), 2)
        elif isinstance(n, ir.Div):
            cost += 3
        elif isinstance(n, BufferLoad):
            cost += 2
        elif isinstance(n, ir.PrimExpr) and type(n).__name__ in ("Add", "Sub", "Mul", "Max", "Min", "Select", "Cast"):
            cost += 1
    return max(cost, 1)


def is_costly(node: ir.Node) -> bool:
    """Whether computing a value again costs more than storing it once and loading it."""
    for n in ir.find(node, ir.CallIntrin, ir.Div):
        if isinstance(n, ir.Div):
            if not isinstance(n.b, (ir.FloatImm, ir.IntImm)):
                return True
        elif getattr(n.op, "name", "").removeprefix("tir.") in _COSTLY:
            return True
    return False


def stride_along(load: BufferLoad | BufferStore, var: ir.Var, analyzer: arith.Analyzer | None = None) -> int | None:
    """Return by how many elements an access moves when `var` grows by one; 0 if it stays, None if that is not constant.

    A last index such as ``v % 32`` counts as 1: the step inside one panel.
    """
    analyzer = analyzer or arith.Analyzer()
    total: int | None = 0
    factor: int | None = 1
    for index, extent in zip(reversed(load.indices), reversed(load.buffer.shape), strict=True):
        step = index_step(index, var, analyzer)
        if step is None:
            return None
        if step:
            if factor is None:
                return None
            assert total is not None
            total += step * factor
        factor = factor * extent.value if factor is not None and isinstance(extent, ir.IntImm) else None
    return total


def index_step(index: ir.PrimExpr, var: ir.Var, analyzer: arith.Analyzer) -> int | None:
    """Return by how much an index grows with `var`; None if that is not constant."""
    if index is var:
        return 1
    if var not in used_vars(index):
        return 0
    if loads_of(index):
        return None
    if isinstance(index, ir.FloorMod) and isinstance(index.b, ir.IntImm):
        return index_step(index.a, var, analyzer)
    if isinstance(index, ir.FloorDiv) and isinstance(index.b, ir.IntImm) and index.b.value > 1:
        inner = index_step(index.a, var, analyzer)
        return 0 if inner == 1 else None
    if isinstance(index, ir.Cast):
        return index_step(index.value, var, analyzer)
    if isinstance(index, (ir.Add, ir.Sub)):
        a, b = index_step(index.a, var, analyzer), index_step(index.b, var, analyzer)
        if a is not None and b is not None:
            return a + b if isinstance(index, ir.Add) else a - b
    if isinstance(index, ir.Mul) and isinstance(index.b, ir.IntImm):
        a = index_step(index.a, var, analyzer)
        return None if a is None else a * index.b.value
    moved = analyzer.simplify(ir.substitute(index, {var: var + 1}) - index)
    return moved.value if isinstance(moved, ir.IntImm) else None


def has_vector_axis(block: Block) -> bool:
    """Whether neighbouring lanes of some variable are neighbours in memory, or one element, in each access of a block.

    That variable is the output's contiguous one or a summed one; where there is none, vectors are gathered element by
    element.
    """
    stores = stores_of(block.body)
    if not isinstance(block.body, BufferStore) or not stores:
        return False
    loads = [x for x in loads_of(block.body) if x.buffer is not stores[0].buffer and x.indices]
    outputs = [v for v in spatial_vars(block) if stride_along(stores[0], v) == 1]
    along = [[stride_along(x, v) for x in loads] for v in [*outputs, *reduce_vars(block)]]
    whole = [not any(_breaks_vectors(x, v) for x in loads) for v in [*outputs, *reduce_vars(block)]]
    return not loads or any(
        w and all(s in (0, 1) for s in strides) and 1 in strides for w, strides in zip(whole, along, strict=True)
    )


def _breaks_vectors(load: BufferLoad, var: ir.Var) -> bool:
    """Whether an access jumps after fewer neighbours of a variable than a vector has, or after no whole vectors."""
    divisions = ir.find(load.indices, ir.FloorDiv, ir.FloorMod)
    return any(isinstance(n.b, ir.IntImm) and n.b.value % 8 and without_casts(n.a) is var for n in divisions)


def without_casts(value: ir.PrimExpr) -> ir.PrimExpr:
    """Return what is cast."""
    while isinstance(value, ir.Cast):
        value = value.value
    return value


def same_point(a: tuple[ir.PrimExpr, ...], b: tuple[ir.PrimExpr, ...]) -> bool:
    """Whether two lists of indices are the same expressions, without proof."""
    return len(a) == len(b) and all(
        x is y or (ir.is_const_int(x, 0) and ir.is_const_int(y, 0)) for x, y in zip(a, b, strict=True)
    )


class Contraction:
    """A sum of products ``C[..] += A[..] * B[..]``.

    The output is contiguous along `vector`, and so `B` must move with it.

    ``group`` is the number of neighbouring values of `vector` between which A does not move, where A contains it only
    as ``vector // group``. ``rows`` are the spatial variables of A alone, ``columns`` those of B alone, ``batch``
    those of both, ``reduce`` the summed ones. A ``pair`` sums something else of two elements than their product.
    """

    __slots__ = ("a", "b", "batch", "block", "columns", "group", "output", "pair", "reduce", "rows", "vector")

    def __init__(
        self, block: Block, output: BufferStore, a: BufferLoad, b: BufferLoad, vector: ir.Var, pair: bool = False
    ) -> None:
        self.pair = pair
        self.block, self.output, self.a, self.b, self.vector = block, output, a, b, vector
        in_a, in_b = used_vars(a.indices), used_vars(b.indices)
        spatial = spatial_vars(block)
        self.rows = [v for v in spatial if v in in_a and v not in in_b]
        self.columns = [v for v in spatial if v in in_b and v not in in_a]
        self.batch = [v for v in spatial if (v in in_a) == (v in in_b)]
        self.reduce = reduce_vars(block)
        self.group = group_size(a, vector)
        if self.group is not None and vector in self.batch:
            self.batch.remove(vector)
            self.columns.append(vector)


def group_size(load: BufferLoad, var: ir.Var) -> int | None:
    """Return `g` where a load contains a variable only as ``var // g``; None where it does not, or otherwise."""
    sizes = {
        n.b.value
        for n in ir.walk(load.indices)
        if isinstance(n, ir.FloorDiv) and n.a is var and isinstance(n.b, ir.IntImm)
    }
    if len(sizes) != 1:
        return None
    hidden = ir.Var("g", var.dtype)
    rest = ir.rewrite(load.indices, lambda n: hidden if isinstance(n, ir.FloorDiv) and n.a is var else n)
    return sizes.pop() if var not in used_vars(rest) else None


def contraction_of(block: Block, products: bool = True) -> Contraction | None:
    """Recognise a sum over products of two loads, or else over anything of two elements, such as squared distances.

    The operand that moves along the output's contiguous variable is `b`.
    """
    stores = stores_of(block.body)
    if len(stores) != 1 or block.init is None or not isinstance(block.body, BufferStore):
        return None
    store = stores[0]
    value = store.value
    if not isinstance(value, ir.Add):
        return None
    product = value.b if _is_own(value.a, store) else value.a if _is_own(value.b, store) else None
    while isinstance(product, ir.Cast):
        product = product.value
    a, b = (_operand(product.a), _operand(product.b)) if isinstance(product, ir.Mul) else (None, None)
    pair = False
    if not products and product is not None and (a is None or b is None):
        pair, (a, b) = True, _pair(product)
    if a is None or b is None or not (store.indices and a.indices and b.indices):
        return None
    vector = store.indices[-1]
    if not isinstance(vector, ir.Var):
        # the output's last dimension has one element: the last variable that is not constant takes its place
        plain = [i for i in store.indices if isinstance(i, ir.Var)]
        if not plain:
            return None
        vector = plain[-1]
    if vector not in used_vars(b.indices):
        a, b = b, a
    return Contraction(block, store, a, b, vector, pair)


def _pair(value: ir.PrimExpr) -> tuple[BufferLoad, BufferLoad] | tuple[None, None]:
    """Return the two elements that a value is made of."""
    loads = loads_of(value)
    found = [x for n, x in enumerate(loads) if not any(ir.structural_equal(x, y) for y in loads[:n])]
    return (found[0], found[1]) if len(found) == 2 and not loads_of(tuple(x.indices for x in found)) else (None, None)


def _is_own(value: ir.PrimExpr, store: BufferStore) -> bool:
    return isinstance(value, BufferLoad) and value.buffer is store.buffer and same_point(value.indices, store.indices)


def _operand(value: ir.PrimExpr) -> BufferLoad | None:
    value = without_casts(value)
    return value if isinstance(value, BufferLoad) else None
