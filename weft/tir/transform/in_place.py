"""Whether a statement may write its result over what it reads."""

from weft.arith import detect_iter_map
from weft.ir import CallIntrin, DataType, Range, Var, find, structural_equal, walk
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.stmt import BufferStore, For, Stmt, While
from weft.tir.transform.remove_no_op import is_pure


def in_place(stmt: Stmt, old: Buffer, new: Buffer) -> bool:
    """Whether `new`, which `stmt` starts to write, may lie in the memory of `old`, which nothing reads afterwards.

    There is one store into `new`, of a value made of the element of `old` at the same place and of no other, and no
    iteration comes to a place that another one was at.

    Parameters
    ----------
    stmt : Stmt
        A loop nest or a store.
    old, new : Buffer
        Of one type of elements, without strides.
    """
    inner = [d for b in (old, new) for d in b.shape[1:]]
    half = len(inner) // 2
    if len(old.shape) != len(new.shape) or not structural_equal(tuple(inner[:half]), tuple(inner[half:])):
        return False  # the same indices are another place
    both = {old.data, new.data}
    stores = [n for n in find(stmt, BufferStore) if n.buffer.data in both]
    if len(stores) != 1 or stores[0].buffer is not new or stores[0].predicate is not None:
        return False
    (store,) = stores
    if any(DataType(i.dtype).lanes > 1 for i in store.indices):
        return False
    reads = [n for n in find(stmt, BufferLoad) if n.buffer.data in both]
    own = set(walk(store.value))
    if not all(n in own and n.buffer is old and n.predicate is None for n in reads) or not all(
        structural_equal(n.indices, store.indices) for n in reads
    ):
        return False
    return not _by_pointer(stmt, both) and _once_each(stmt, store)


def _by_pointer(stmt: Stmt, data: set[Var]) -> bool:
    """Whether a call gets one of the pointers."""
    return any(
        isinstance(n, CallIntrin)
        and (n.op.name == "tir.address_of" or not is_pure(n))
        and any(v in data for v in walk(n))
        for n in walk(stmt)
    )


def _once_each(stmt: Stmt, store: BufferStore) -> bool:
    """Whether no two iterations of the loops around a store are at the same place."""
    loops: dict[Var, Range] = {}
    for n in walk(stmt):
        if isinstance(n, While):
            return False
        if isinstance(n, For) and any(m is store for m in walk(n.body)):
            loops[n.loop_var] = Range.from_min_extent(n.min, n.extent)
    return not loops or bool(detect_iter_map(store.indices, loops, check_level="bijective").indices)
