"""Random programs mean the same to type inference, the text format, the passes and every executor."""

from hypothesis import HealthCheck, given, settings

from tests.relay.programs.check import check
from tests.relay.programs.draw import programs


@settings(max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(programs(fuel=40))
def test_random_programs(program):
    check(*program)
