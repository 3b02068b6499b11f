"""``weft cache info`` and ``weft cache clear``: the disk cache of compiled kernels."""

import cyclopts

from weft.cli.screen import print_table, size_text
from weft.runtime import cache as kernel_cache

cache = cyclopts.App(name="cache", help="Show or empty the disk cache of compiled kernels.")


@cache.command
def info() -> None:
    """Print where the cache is and how much it holds."""
    s = kernel_cache.statistics()
    rows = [
        ("directory", s.directory),
        ("entries", s.entries),
        ("size", size_text(s.bytes)),
        ("limit", size_text(s.limit)),
    ]
    print_table("kernel cache", ("what", "value"), rows)


@cache.command
def clear() -> None:
    """Delete all entries."""
    print(f"deleted {kernel_cache.clear()} entries of {kernel_cache.directory()}")
