"""Pictures of te schedules as Graphviz's DOT: which stages feed which, where loops come from, where stages run.

The text needs nothing; showing it in a notebook needs the packages ``graphviz`` and ``IPython``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from weft import error, ir
from weft.runtime import write_file
from weft.te.relations import Fuse, Split
from weft.te.schedule import Schedule
from weft.te.stage import AttachType, Stage

_KINDS = {
    "data_par": ("kDataPar", "#FFFFFF"),
    "thread": ("kThreadIndex", "#2980B9"),
    "reduce": ("kCommReduce", "#FAD7A0"),
    "ordered": ("kOrdered", "#D35400"),
    "opaque": ("kOpaque", "#ABB2B9"),
    "unrolled": ("kUnrolled", "#D2B4DE"),
    "vectorized": ("kVectorized", "#AED6F1"),
    "parallel": ("kParallelized", "#F5B7B1"),
    "tensorized": ("kTensorized", "#A9DFBF"),
}
"""What TVM calls the types of loops, and a color for each."""


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """Draw stages and the tensors between them.

    Parameters
    ----------
    sch : Schedule
    show_svg : bool
        Whether to show the picture in a notebook.
    dot_file_path : str
        Where to write the text, unless it is empty.
    output_dot_string : bool
        Whether to return the text.

    Raises
    ------
    MissingDependency
        When the picture is to be shown and there is no ``graphviz`` or no ``IPython``.
    """
    number = {s.op: i for i, s in enumerate(sch.stages)}
    lines: list[str] = []
    for i, stage in enumerate(sch.stages):
        inputs = [f'<td port="I_{k}">{k}</td>' for k in range(len(_reads(stage)))]
        outputs = [f'<td port="O_{k}">{k}</td>' for k in range(stage.op.num_outputs)]
        lines.append(_node(f"Stage_{i}", [inputs, [_head(stage)], outputs]))
        for k in range(stage.op.num_outputs):
            tensor = stage.op.output(k)
            lines.append(_node(f"Tensor_{i}_{k}", [[_cell(f"{_text(tensor.shape)}<br/>{tensor.dtype}")]]))
            lines.append(f"Stage_{i}:O_{k} -> Tensor_{i}_{k}")
        lines += [f"Tensor_{number[t.op]}_{t.value_index} -> Stage_{i}:I_{k}" for k, t in enumerate(_reads(stage))]
    return _given("Dataflow Graph", lines, show_svg, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """Draw the loops of each stage and what split and fused them; parameters as :func:`viz_dataflow_graph`."""
    lines = list(_legend())
    for i, stage in enumerate(sch.stages):
        lines += [f"subgraph cluster_Stage_{i} {{", f'label="{stage.name}"']
        number = {iv: j for j, iv in enumerate(stage.all_iter_vars)}
        lines += [_node(f"IterVar_{i}_{j}", [[_loop(stage, iv, ranged=True)]]) for iv, j in number.items()]
        for j, relation in enumerate(stage.relations):
            if isinstance(relation, Split):
                name, given = "Split", ("Input",)
                ends = {"Input": relation.parent, "Outer": relation.outer, "Inner": relation.inner}
            elif isinstance(relation, Fuse):
                name, given = "Fuse", ("Outer", "Inner")
                ends = {"Outer": relation.outer, "Inner": relation.inner, "Output": relation.fused}
            else:
                continue
            node = f"{name}_Relation_{i}_{j}"
            ports = [f'<td port="{end}">{end}</td>' for end in ends]
            lines.append(_node(node, [[f'<td colspan="{len(ports)}">{name}</td>'], ports]))
            for end, iv in ends.items():
                loop = f"IterVar_{i}_{number[iv]}:itervar"
                lines.append(f"{loop} -> {node}:{end}" if end in given else f"{node}:{end} -> {loop}")
        lines.append("}")
    return _given("IterVar Relationship Graph", lines, show_svg, dot_file_path, output_dot_string)


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """Draw in which loop of which stage each stage runs; parameters as :func:`viz_dataflow_graph`."""
    lines = [*_legend(), "ROOT [label=ROOT]"]
    number = {stage: i for i, stage in enumerate(sch.stages)}
    for stage, i in number.items():
        rows = [[_head(stage)]]
        rows += [[f"<td>{j}</td>", _loop(stage, iv, f"itervar{j}")] for j, iv in enumerate(stage.leaf_iter_vars)]
        rows += [[_cell(escape(_text(stage.body)), 2)]] if stage.body else []
        lines.append(_node(f"Stage_{i}", rows))
        kind, parent, loop = stage.placement
        if kind == AttachType.INLINE:
            continue
        if parent is not None and loop is not None:
            place = f"Stage_{number[parent]}:itervar{parent.leaf_iter_vars.index(loop)}"
        else:
            place = "ROOT"
        lines.append(f'Stage_{i} -> {place} [color="#000000"]')
    return _given("Schedule Tree", lines, show_svg, dot_file_path, output_dot_string)


def _reads(stage: Stage) -> list[Any]:
    return list(dict.fromkeys(stage.reads()))


def _text(values: Iterable[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _head(stage: Stage) -> str:
    return _cell(f"{escape(stage.name)}<br/>Scope: {stage.scope or 'global'}", 2)


def _cell(content: str, columns: int = 1) -> str:
    return f'<td colspan="{columns}">{content}</td>'


def _loop(stage: Stage, iv: ir.IterVar, port: str = "itervar", ranged: bool = False) -> str:
    """The cell of a loop: its name, its type and, where it has one, its range."""
    said = stage.iter_attrs.get(iv)
    bound = said is not None and said.bind_thread is not None
    kind, color = _KINDS["thread" if bound else said.kind if said is not None and said.kind in _KINDS else iv.iter_type]
    name = f"{escape(iv.var.name)}{'<br/>' if ranged else ''}({kind})"
    if ranged and iv.dom is not None:
        name += f"<br/>range(min={escape(str(iv.dom.min))}, ext={escape(str(iv.dom.extent))})"
    return f'<td port="{port}" bgcolor="{color}">{name}</td>'


def _node(name: str, rows: list[list[str]]) -> str:
    table = "".join(f"<tr>{''.join(row)}</tr>" for row in rows if row)
    return f'{name} [shape=plain label=<<table border="0" cellborder="1" cellspacing="0">{table}</table>>]'


def _legend() -> Iterator[str]:
    cells = [[f'<td bgcolor="{color}">{name}</td>'] for name, color in _KINDS.values()]
    yield from ("subgraph cluster_legend {", 'label="Legend"', _node("legend", cells), "}")


def _given(title: str, lines: list[str], show_svg: bool, dot_file_path: str, output_dot_string: bool) -> str | None:
    text = "\n".join([f'digraph "{title}" {{', *(f"  {line}" for line in lines), "}"]) + "\n"
    if dot_file_path:
        write_file(dot_file_path, text)
    if show_svg:
        try:
            graphviz, display = importlib.import_module("graphviz"), importlib.import_module("IPython.display")
        except ImportError as e:
            raise error.MissingDependency(
                f"a picture is not shown without {e.name}", help="pip install graphviz ipython, or ask for the text"
            ) from e
        display.display(display.SVG(graphviz.Source(text).pipe(format="svg")))
    return text if output_dot_string else None
