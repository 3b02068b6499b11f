"""Check random programs: ``python -m tests.relay.programs 1000 [fuel]``; a failure is shown when it is smallest.

Every fourth program is without control flow, so that all executors take it.
"""

import sys
import time

from hypothesis import HealthCheck, given, settings

from tests.relay.programs.check import check
from tests.relay.programs.draw import programs


def main(count: int, fuel: int = 60) -> None:
    """Check `count` programs of about `fuel` expressions."""
    checked, start = 0, time.time()
    for first_order, share in ((False, count - count // 4), (True, count // 4)):

        @settings(max_examples=share, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(programs(fuel, first_order))
        def run(program):
            nonlocal checked
            check(*program)
            checked += 1

        run()
    print(f"{checked} programs agree, in {time.time() - start:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
