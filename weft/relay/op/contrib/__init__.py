"""What external compilers take: the patterns that are registered for them."""

from weft.relay.op.contrib.register import get_pattern_table, register_pattern_table
