"""What a program does with errors in Relay programs beside catching them: renderers see them before they are raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from weft import error

DiagnosticLevel = IntEnum("DiagnosticLevel", {"BUG": 10, "ERROR": 20, "WARNING": 30, "NOTE": 40, "HELP": 50})


@dataclass(frozen=True)
class Diagnostic:
    """One message about a place of a program."""

    level: int
    span: Any
    message: str


@dataclass(frozen=True)
class DiagnosticRenderer:
    """What shows the diagnostics of a context: ``render(context)`` calls a function with it."""

    render: Callable[[DiagnosticContext], Any]


@dataclass
class DiagnosticContext:
    """Diagnostics about a module, and what shows them."""

    module: Any
    renderer: DiagnosticRenderer
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def emit(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic."""
        self.diagnostics.append(diagnostic)

    def render(self) -> None:
        """Show them, and raise DiagnosticError with those that are errors."""
        self.renderer.render(self)
        if errors := [d for d in self.diagnostics if d.level <= DiagnosticLevel.ERROR]:
            raise error.DiagnosticError("\n".join(d.message for d in errors), where=errors[0].span)


_renderers = [DiagnosticRenderer(lambda context: None)]  # by default the error that is raised says it all


def get_renderer() -> DiagnosticRenderer:
    """Return what shows diagnostics now."""
    return _renderers[-1]


def override_renderer(render_func: Callable[[DiagnosticContext], Any] | None) -> None:
    """Let a function be called with the diagnostics of each failure; None brings the default back."""
    _renderers[1:] = [DiagnosticRenderer(render_func)] if render_func else []


def report(errors: Iterable[error.WeftError]) -> None:
    """Let the renderer see errors that are about to be raised."""
    found = [Diagnostic(DiagnosticLevel.ERROR, e.where, str(e)) for e in errors]
    get_renderer().render(DiagnosticContext(None, get_renderer(), found))
