"""Which configuration a template gets: contexts that are asked with a target and a workload."""

from collections.abc import Iterable
from typing import Any

from weft.autotvm.task.space import FallbackConfigEntity
from weft.error import InvalidArgument
from weft.target import Target
from weft.tune.front_end import Dispatcher


class DispatchContext(Dispatcher, kind="autotvm.DispatchContext"):
    """What templates ask for their configuration inside ``with context:``."""

    def query(self, target: Any, workload: Any) -> Any:
        """Return the configuration of a workload; what a context does not know, the one around it is asked."""
        found = self._query_inside(target, workload)
        if found is None and self._old_ctx is not None:
            found = self._old_ctx.query(target, workload)
        return found

    def _query_inside(self, target: Any, workload: Any) -> Any:
        return None

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Set the configuration of a workload."""


class ApplyConfig(DispatchContext):
    """One configuration, or space, for whatever asks."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config
        self.workload: Any = None

    def _query_inside(self, target: Any, workload: Any) -> Any:
        self.workload = workload
        return self._config

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Take another configuration."""
        self.workload, self._config = workload, cfg


class ApplyFixedConfig(DispatchContext):
    """The first configuration of each of some tasks; those that are named are met as the cheapest.

    Parameters
    ----------
    tasks : sequence of Task
    schedule_names : str or sequence of str
        The tasks that are to be chosen where several compute the same.
    """

    def __init__(self, tasks: Any, schedule_names: str | Iterable[str]) -> None:
        super().__init__()
        self._schedule_names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        self._tasks = tasks
        self.workload: Any = None

    def _query_inside(self, target: Any, workload: Any) -> Any:
        self.workload = workload
        name = workload[0] if workload is not None else None
        task = next((t for t in self._tasks if t.name == name), None)
        if task is None:
            raise InvalidArgument("no task has this workload", found=str(workload))
        config = task.config_space.get(0)
        config.cost = 1e-6 if name in self._schedule_names else 1e5
        return config


class FallbackContext(DispatchContext):
    """The outermost context: workloads that nothing is known of get their template's own choices."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[Any, Any] = {}
        self.messages: set[str] = set()

    def _query_inside(self, target: Any, workload: Any) -> Any:
        return self.memory.setdefault((str(target), workload), FallbackConfigEntity())

    def clear_cache(self, target: Any, workload: Any) -> None:
        """Forget a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Set the configuration of a workload."""
        self.memory[str(target), workload] = cfg


DispatchContext.set_outermost(FallbackContext())


def clear_fallback_cache(target: Target, workload: tuple[Any, ...]) -> None:
    """Forget what a workload was given for want of records."""
    context: Any = DispatchContext.current
    while context is not None and not isinstance(context, FallbackContext):
        context = context._old_ctx
    if context is not None:
        context.clear_cache(target, workload)
