"""Functions with specializations: the current target's keys choose."""

import weft
from tests.refusals import refuses
from weft import error, target


def test_the_target_chooses():
    @target.generic_func
    def f(x):
        """Add one."""
        return x + 1

    @f.register("cpu")
    def on_cpu(x):
        return x + 2

    f.register(["cuda", "gpu"], lambda x: x + 3)
    assert f(1) == 2 and f.__name__ == "f" and f.__doc__ == "Add one."
    with weft.target.Target("llvm"):
        assert f(1) == 3 and f.get_packed_func() is on_cpu
    with weft.target.Target("cuda"):
        assert f(1) == 4
    refuses(ValueError, "override=True", f.register, "cpu", lambda x: x)


def test_functions_known_by_name():
    native = target.get_native_generic_func("weft.test.by_name")
    native.register(lambda x: -x, ["cuda"])
    refuses(error.InvalidArgument, "no function for the target", native, 1)
    f = target.override_native_generic_func("weft.test.by_name")(lambda x: x)
    assert f is native and f(1) == 1
    with weft.target.Target("cuda"):
        assert f(1) == -1
    refuses(error.InvalidArgument, "has a default", native.set_default, lambda x: x)
