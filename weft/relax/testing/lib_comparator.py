"""An instrument of the virtual machine that holds each kernel against one of the same name in another module."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.runtime import Device, Module, Tensor, cpu, empty


class LibCompareVMInstrument:
    """Runs each kernel that the machine has called again, from another module, and compares what they write.

    Parameters
    ----------
    mod : Module
        The module of the kernels to be validated, which may be for another device.
    device : Device
        Where they run.
    verbose : bool
        Whether each comparison is printed.
    rtol, atol : float
        What results may differ by.
    """

    def __init__(
        self, mod: Module, device: Device, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        self.mod, self.device, self.verbose = mod, device, verbose
        self.rtol, self.atol = rtol, atol
        self.counter = 0

    def compare(
        self, name: str, ref_args: Sequence[Tensor], new_args: Sequence[Tensor], ret_indices: Iterable[int]
    ) -> None:
        """Run the kernel on `new_args` and hold the arguments `ret_indices` against those of the machine's call."""
        self._say(f"Validating {name} ...")
        self.mod.get_function(name, query_imports=True)(*new_args)
        for i in ret_indices:
            np.testing.assert_allclose(new_args[i].numpy(), ref_args[i].numpy(), rtol=self.rtol, atol=self.atol)
        self._say(f"Validating {name}, passed.")
        self.counter += 1

    def skip_instrument(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> bool:
        """Whether a call is left out; for subclasses."""
        return False

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[{self.counter}] {text}")

    def __call__(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> None:
        """Compare behind each call of a kernel: its last argument is what it writes."""
        if before_run or name.startswith("vm.builtin.") or not all(isinstance(a, Tensor) for a in args):
            return
        try:
            self.mod.get_function(name, query_imports=True)
        except AttributeError:
            self._say(f"Cannot find {name}, skip...")
            return
        if self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        new_args = [empty(a.shape, str(a.dtype), self.device) for a in args]
        for new, old in zip(new_args[:-1], args[:-1], strict=True):
            new.copyfrom(old.copyto(cpu()))
        self.device.sync()
        self.compare(name, args, new_args, (len(args) - 1,))
