"""Renderers see the errors of Relay programs; SpanCheck refuses programs whose expressions have no place."""

import pytest

from tests.refusals import refuses
from weft import error, ir, relay, script


def test_a_renderer_sees_errors_before_they_are_raised():
    seen = []
    ir.diagnostics.override_renderer(lambda context: seen.extend(context.diagnostics))
    try:
        with pytest.raises(error.DiagnosticError, match="broadcast"):
            relay.transform.InferType()(
                relay.fromtext("def @main(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) { add(%x, %y) }")
            )
    finally:
        ir.diagnostics.override_renderer(None)
    (only,) = seen
    seen.clear()
    ir.diagnostics.override_renderer(lambda context: seen.extend(context.diagnostics))
    try:
        refuses(error.DiagnosticError, "not defined", script.from_source, "@T.prim_func\ndef f():\n    T.evaluate(a)\n")
    finally:
        ir.diagnostics.override_renderer(None)
    assert [d.span.line for d in seen] == [3] and "'a' is not defined" in seen[0].message
    assert only.level == ir.diagnostics.DiagnosticLevel.ERROR and "broadcast" in only.message
    context = ir.diagnostics.DiagnosticContext(None, ir.diagnostics.get_renderer())
    context.emit(ir.diagnostics.Diagnostic(ir.diagnostics.DiagnosticLevel.NOTE, None, "a note"))
    context.render()
    context.emit(ir.diagnostics.Diagnostic(ir.diagnostics.DiagnosticLevel.ERROR, None, "too long"))
    refuses(error.DiagnosticError, "too long", context.render)


def test_expressions_without_a_place():
    mod = ir.IRModule.from_expr(relay.exp(relay.var("x", shape=(2,))))
    refuses(error.VerifyError, "no place", relay.text.SpanCheck(), mod)
    relay.text.SpanCheck()(relay.transform.AnnotateSpans()(mod))
