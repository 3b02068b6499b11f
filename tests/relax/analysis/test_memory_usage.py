"""Memory that functions allocate, before and after planning, as a text for people."""

from weft.ir import IRModule
from weft.relax.analysis import estimate_memory_usage
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


def test_allocations_are_counted_once_and_open_sizes_apart():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float16")):
            storage = R.memory.alloc_storage(R.shape([2**20]), 0, "global", "float16")
            a = R.memory.alloc_tensor(storage, 0, R.shape([2**19]), "float16")
            b = R.memory.alloc_tensor(storage, 0, R.shape([2**18, 2]), "float16")
            c = R.builtin.alloc_tensor(R.shape([2**17]), "int32", 0)
            return (a, b, c)

    text = estimate_memory_usage(Module)
    assert "3 constant-size memory allocation(s) with total size 0.002441 GB" in text  # 2.5 of 1024 MB
    assert "2 constant-size memory allocation(s) with total size 0.001465 GB" in text
    assert text.endswith("constant memory size to 60.0%.\n")
    assert estimate_memory_usage(Module["main"]).count("Function foo") == 1


def test_open_sizes_are_counted_and_nothing_is_said_of_an_empty_module():
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float16")):
        n = T.int64()
        a = R.builtin.alloc_tensor(R.shape([n]), "float16", 0)
        return a

    assert ", and 1 dynamic-size allocation(s)." in estimate_memory_usage(main)
    assert "reduces" not in estimate_memory_usage(main)
    assert estimate_memory_usage(IRModule()) == ""
