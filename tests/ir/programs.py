"""Nodes and modules for tests of printing, equality and JSON, built by hand."""

import numpy as np

from tests.relax_models import model
from weft import ir, relax, tir


def matmul_func(m=16, n=8, k=4, names=("i", "j", "k"), dtype="float32"):
    """A scheduled matrix product."""
    a, b, c = (tir.decl_buffer(s, dtype, x) for s, x in (((m, k), "A"), ((k, n), "B"), ((m, n), "C")))
    params = tuple(ir.Var(x.name.lower(), "handle") for x in (a, b, c))
    loops = [ir.Var(x, "int32") for x in names]
    vs = [ir.Var("v" + x, "int32") for x in names]
    ivs = tuple(
        tir.IterVar(tir.Range.from_min_extent(ir.const(0), ir.const(e)), v, t)
        for v, e, t in zip(vs, (m, n, k), ("data_par", "data_par", "reduce"), strict=True)
    )
    one = ir.const(1)

    def region(buf, idx):
        return tir.BufferRegion(buf, tuple(tir.Range.from_min_extent(i, one) for i in idx))

    body = tir.BufferStore(c, c[vs[0], vs[1]] + a[vs[0], vs[2]] * b[vs[2], vs[1]], (vs[0], vs[1]))
    block = tir.Block(
        ivs,
        (region(a, (vs[0], vs[2])), region(b, (vs[2], vs[1]))),
        (region(c, vs[:2]),),
        "C",
        body,
        tir.BufferStore(c, ir.const(0.0, dtype), (vs[0], vs[1])),
    )
    stmt = tir.BlockRealize(tuple(loops), ir.TRUE, block)
    for v, e in zip(reversed(loops), (k, n, m), strict=True):
        stmt = tir.For(v, ir.const(0), ir.const(e), tir.ForKind.SERIAL, stmt)
    return tir.PrimFunc(
        params,
        tir.BlockRealize((), ir.TRUE, tir.Block((), (), (), "root", stmt)),
        None,
        tuple(zip(params, (a, b, c), strict=True)),
        ir.Attrs.of({"tir.noalias": True, "global_symbol": "matmul"}),
    )


def relax_module(dim="n"):
    """A module with a symbolic dimension, a constant and a TIR function."""
    x = relax.Var("x", relax.tensor_type((ir.SizeVar(dim, "int64"), 16), "float32"))
    w = relax.constant(np.arange(128, dtype="float32").reshape(16, 8))
    mod = model(lambda x: relax.op.nn.softmax(relax.op.nn.relu(relax.op.matmul(x, w)), axis=-1), x)
    mod["matmul"] = matmul_func()
    return mod


def long_chain(length):
    """A sum of `length` terms, nested to the left."""
    x = ir.Var("x", "int64")
    e = x
    for i in range(length):
        e = ir.Add(e, ir.Mul(x, ir.IntImm("int64", i + 2)))
    return e
