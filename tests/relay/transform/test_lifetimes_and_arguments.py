"""ManifestLifetimes ends what is not needed any more; SplitArgs keeps concatenations below a number of arguments."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.testing import count_ops
from weft.relay.transform import InferType, ManifestLifetimes, SplitArgs

PROGRAM = """
#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil, }
def @main(%x: Tensor[(3), float32], %b: Tensor[(), bool]) -> Tensor[(3), float32] {
  let %y = add(%x, %x);
  let %f = fn (%v: Tensor[(3), float32]) -> Tensor[(3), float32] {
    let %w = multiply(%v, %y);
    let %u = negative(%w);
    add(%u, %y)
  };
  let %l = Cons(%y, Nil);
  let %z = if (%b) { let %p = %f(%x); let %q = exp(%p); add(%q, %p) } else { %f(%y) };
  let %m = match (%l) { Cons(%h, %t) => { let %s = add(%h, %x); multiply(%s, %z) }, Nil => %z };
  negative(%m)
}
"""


def test_variables_end_after_their_last_use():
    before = InferType()(relay.fromtext(PROGRAM))
    after = InferType()(ManifestLifetimes()(before))
    lines = [line.split(" /*")[0].split("= ")[-1].strip() for line in str(after).splitlines()]
    kills = [line for line in lines if "memory.kill" in line]
    for v, times in {"v": 1, "w": 1, "u": 0, "l": 1, "y": 0, "f": 1, "q": 0, "x": 1, "h": 1, "m": 0}.items():
        assert kills.count(f"memory.kill(%{v});") == times, (v, str(after))
    x = np.array([1, -0.5, 0.25], "float32")
    for b in (True, False):
        a, c = (relay.create_executor("vm", m).evaluate()(x, np.array(b)).numpy() for m in (before, after))
        np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize(("n", "limit", "parts"), [(7, 4, 3), (30, 4, 16), (3, 4, 0), (7, 0, 0), (7, -1, 0)])
def test_concatenations_in_parts(n, limit, parts):
    xs = [relay.var(f"x{i}", shape=(i % 3, 2)) for i in range(n)]
    before = InferType()(weft.IRModule.from_expr(relay.Function(xs, relay.concatenate(xs, 0))))
    after = SplitArgs(limit)(before)
    assert count_ops(after["main"].body).get("annotation.stop_fusion", 0) == parts
    values = [np.full((i % 3, 2), i, "float32") for i in range(n)]
    got = relay.create_executor("graph", after).evaluate()(*values).numpy()
    np.testing.assert_array_equal(got, np.concatenate(values))
    assert [weft.target.Target(t).max_function_args for t in ("metal", "llvm")] == [31, -1]


def test_no_room_for_two_operands_is_refused():
    with pytest.raises(error.InvalidArgument, match="two operands"):
        SplitArgs(2)
