"""The Relay machine under the name of TVM's machine that profiles; ours always can."""

from weft.runtime.relay_vm import VirtualMachine


class VirtualMachineProfiler(VirtualMachine):
    """A machine whose :meth:`profile` says where the time of a call goes."""


def enabled() -> bool:
    """Whether machines can profile."""
    return True
