"""Rules on the edges: empty tensors, scalars, other data types, products that are not matrices, conditions, several anchors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir.schedule.test_rules import compare, packed_gemm, rand, softmax
from weft import te, tir


def ew(shape):
    x=te.placeholder(shape,name="X")
    y=te.compute(shape,lambda *i:x(*i)*2.0,name="Y")
    compare(te.create_prim_func([x,y]),np.zeros(shape,np.float32),np.zeros(shape,np.float32))
def full(sym):
    n=te.size_var("n","int64") if sym else 37
    x=te.placeholder((n,),name="X")
    r=te.reduce_axis((0,n),"r")
    y=te.compute((),lambda: te.sum(x[r],axis=r),name="Y")
    compare(te.create_prim_func([x,y]),rand(37),np.zeros((),np.float32))
def dt(dtype,acc):
    a=te.placeholder((9,20),dtype,name="A")
    w=te.placeholder((2,20,32),dtype,name="W")
    r=te.reduce_axis((0,20),"r")
    c=te.compute((9,40),lambda i,j: te.sum(tir.Cast(acc,a(i,r))*tir.Cast(acc,w(j//32,r,j%32)),axis=r),name="C")
    rng=np.random.default_rng(0)
    compare(te.create_prim_func([a,w,c]),rng.integers(-5,5,(9,20)).astype(dtype),rng.integers(-5,5,(2,20,32)).astype(dtype),np.zeros((9,40),acc))
def boolean():
    x=te.placeholder((5,33),"float32",name="X")
    y=te.compute((5,33),lambda i,j:x(i,j)>0.0,name="Y")
    z=te.placeholder((5,33),"bool",name="Z")
    compare(te.create_prim_func([x,y]),rand(5,33),np.zeros((5,33),bool))
    w=te.compute((5,33),lambda i,j:tir.Select(z(i,j),x(i,j),tir.const(0.0,"float32")),name="W")
    compare(te.create_prim_func([z,x,w]),rand(5,33)>0,rand(5,33),np.zeros((5,33),np.float32))
    c=te.compute((5,33),lambda i,j:tir.Cast("int64",x(i,j)*10),name="C")
    compare(te.create_prim_func([x,c]),rand(5,33),np.zeros((5,33),"int64"))
def ints():
    x=te.placeholder((7,19),"int64",name="X")
    r=te.reduce_axis((0,19),"r")
    compare(te.create_prim_func([x,te.compute((7,),lambda i:te.sum(x[i,r],axis=r),name="Y")]),np.arange(133,dtype="int64").reshape(7,19),np.zeros(7,"int64"))
    compare(te.create_prim_func([x,te.compute((7,),lambda i:te.max(x[i,r],axis=r),name="Y")]),np.arange(133,dtype="int64").reshape(7,19)-60,np.zeros(7,"int64"))
def vecmat():
    for (m,n,k,tr) in ((1,50,30,False),(1,50,30,True),(6,1,30,False),(6,1,30,True)):
        a=te.placeholder((m,k),name="A")
    b=te.placeholder((n,k) if tr else (k,n),name="B")
    r=te.reduce_axis((0,k),"r")
        compare(te.create_prim_func([a,b,te.compute((m,n),lambda i,j:te.sum(a[i,r]*(b[j,r] if tr else b[r,j]),axis=r),name="C")]),rand(m,k),rand(*((n,k) if tr else (k,n))),np.zeros((m,n),np.float32))
    a=te.placeholder((64,),name="A")
    b=te.placeholder((64,),name="B")
    r=te.reduce_axis((0,64),"r")
    compare(te.create_prim_func([a,b,te.compute((),lambda:te.sum(a[r]*b[r],axis=r),name="C")]),rand(64),rand(64),np.zeros((),np.float32))
    a=te.placeholder((40,30),name="A")
    b=te.placeholder((30,),name="B")
    r=te.reduce_axis((0,30),"r")
    compare(te.create_prim_func([a,b,te.compute((40,),lambda i:te.sum(a[i,r]*b[r],axis=r),name="C")]),rand(40,30),rand(30),np.zeros((40,),np.float32))
def argmax():
    n=te.size_var("n","int64")
    x=te.placeholder((n,19),name="X")
    r=te.reduce_axis((0,19),"r")
    red=te.comm_reducer(lambda a,b:(tir.Select(a[1]>=b[1],a[0],b[0]),tir.Select(a[1]>=b[1],a[1],b[1])),lambda t0,t1:(tir.const(-1,t0),te.lowest(t1)))
    o=te.compute((n,),lambda i: red((r.var,x[i,r]),axis=r),name="arg")
    y=te.compute((n,),lambda i:tir.Cast("int64",o[0](i)),name="Y")
    compare(te.create_prim_func([x,y]),rand(7,19),np.zeros(7,"int64"))
def einsum4():
    a=te.placeholder((2,3,4,5),name="A")
    b=te.placeholder((2,5,3,6),name="B")
    r=te.reduce_axis((0,5),"r")
    compare(te.create_prim_func([a,b,te.compute((2,4,3,6),lambda p,q,h,d:te.sum(a[p,h,q,r]*b[p,r,h,d],axis=r),name="C")]),rand(2,3,4,5),rand(2,5,3,6),np.zeros((2,4,3,6),np.float32))
    r2=te.reduce_axis((0,3),"r2")
    compare(te.create_prim_func([a,b,te.compute((2,4,6),lambda p,q,d:te.sum(a[p,r2,q,r]*b[p,r,r2,d],axis=[r,r2]),name="C")]),rand(2,3,4,5),rand(2,5,3,6),np.zeros((2,4,6),np.float32))
def bcast_batch():
    a=te.placeholder((2,3,9,16),name="A")
    b=te.placeholder((16,33),name="B")
    r=te.reduce_axis((0,16),"r")
    compare(te.create_prim_func([a,b,te.compute((2,3,9,33),lambda p,h,i,d:te.sum(a[p,h,i,r]*b[r,d],axis=r),name="C")]),rand(2,3,9,16),rand(16,33),np.zeros((2,3,9,33),np.float32))
def cumsum():
    x=te.placeholder((4,9),name="X")
    r=te.reduce_axis((0,9),"r")
    compare(te.create_prim_func([x,te.compute((4,9),lambda i,j:te.sum(tir.if_then_else(r<=j,x[i,r],0.0),axis=r),name="Y")]),rand(4,9),np.zeros((4,9),np.float32))
def argcond():
    x=te.placeholder((4,9),name="X")
    r=te.reduce_axis((0,9),"r")
    compare(te.create_prim_func([x,te.compute((4,),lambda i:te.sum(x[i,r],axis=r,where=r.var<5),name="Y")]),rand(4,9),np.zeros(4,np.float32))
def two():
    # two contractions in a row, and mean after
    a=te.placeholder((9,16),name="A")
    b=te.placeholder((16,33),name="B")
    c=te.placeholder((33,8),name="C0")
    r=te.reduce_axis((0,16),"r")
    r2=te.reduce_axis((0,33),"r2")
    r3=te.reduce_axis((0,8),"r3")
    p=te.compute((9,33),lambda i,d:te.sum(a[i,r]*b[r,d],axis=r),name="P")
    q=te.compute((9,8),lambda i,d:te.sum(p[i,r2]*c[r2,d],axis=r2),name="Q")
    s=te.compute((9,),lambda i:te.sum(q[i,r3],axis=r3),name="S")
    y=te.compute((9,8),lambda i,j:q[i,j]-s[i],name="Y")
    compare(te.create_prim_func([a,b,c,y]),rand(9,16),rand(16,33),rand(33,8),np.zeros((9,8),np.float32))

CASES = [
    ("zero ew", lambda: ew((0,5))),
    ("zero ew2", lambda: ew((5,0))),
    ("scalar", lambda: ew(())),
    ("zero gemm", lambda: compare(packed_gemm(0,40,16,32),rand(0,16),rand(2,16,32),rand(40),np.zeros((0,40),np.float32))),
    ("sym zero gemm", lambda: compare(packed_gemm(te.size_var("n","int64"),40,16,32),rand(0,16),rand(2,16,32),rand(40),np.zeros((0,40),np.float32))),
    ("zero softmax", lambda: compare(softmax(0,7),rand(0,7),np.zeros((0,7),np.float32))),
    ("zero softmax2", lambda: compare(softmax(3,0),rand(3,0),np.zeros((3,0),np.float32))),
    ("sym zero softmax", lambda: compare(softmax(te.size_var("n","int64"),te.size_var("k","int64")),rand(0,7),np.zeros((0,7),np.float32))),
    ("full sum", lambda: full(0)),
    ("full sum sym", lambda: full(1)),
    ("int8", lambda: dt("int8","int32")),
    ("f64", lambda: dt("float64","float64")),
    ("i64", lambda: dt("int64","int64")),
    ("f16acc", lambda: dt("float16","float32")),
    ("bool", boolean),
    ("ints", ints),
    ("vecmat", vecmat),
    ("argmax", argmax),
    ("einsum", einsum4),
    ("bcast batch", bcast_batch),
    ("cumsum", cumsum),
    ("where", argcond),
    ("two", two),
]


@pytest.mark.parametrize("case", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_edge(case):
    case()
