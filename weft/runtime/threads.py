"""The size of the thread pool that kernels run on."""

from weft.ffi import LIBRARY


def num_threads() -> int:
    """Threads that a kernel may use: the least of affinity mask, cgroup quota and cores, or ``WEFT_NUM_THREADS``."""
    return int(LIBRARY.weft_num_threads())


def set_num_threads(n: int) -> None:
    """Set the number of threads; 0 restores the default."""
    LIBRARY.weft_set_num_threads(int(n))
