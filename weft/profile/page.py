"""A profile as one HTML page that needs nothing else."""

import html
import json
import math
from pathlib import Path

from weft.profile.model import KernelProfile, ModelProfile
from weft.runtime import write_file

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; } th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th { cursor: pointer; position: sticky; top: 0; background: #f4f4f4; } .text { text-align: left; max-width: 34em; }
.bar { background: linear-gradient(#7aa7d9, #7aa7d9) no-repeat 0 / var(--w) 100%; }
.small { color: #666; font-size: 12px; }
"""
_SCRIPT = """
document.querySelectorAll("th").forEach((head, column) => head.onclick = () => {
  const body = document.querySelector("tbody"), rows = [...body.rows];
  const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const numbers = rows.every(r => !isNaN(parseFloat(key(r))) || key(r) === "");
  head.dataset.down = head.dataset.down === "1" ? "" : "1";
  const sign = head.dataset.down ? -1 : 1;
  rows.sort((a, b) => sign * (numbers ? (parseFloat(key(a)) || 0) - (parseFloat(key(b)) || 0)
                                      : key(a).localeCompare(key(b))));
  body.append(...rows);
});
"""
_HEAD = ("kernel", "arguments", "calls", "us", "share", "GFLOP/s", "GB/s", "roofline", "nodes")


def write_page(profile: ModelProfile, path: str | Path, title: str) -> None:
    """Write the page; its data stand in it as JSON, too, under the id ``profile``."""
    summary = (
        f"{profile.total_us:,.0f} us a run on {profile.threads} threads; the machine's limits: "
        f"{profile.peak_gflops:.0f} GFLOP/s of float32, {profile.peak_gbytes:.0f} GB/s"
    )
    data = json.dumps(profile.as_dict()).replace("</", "<\\/")
    head = "".join(f"<th>{html.escape(h)}</th>" for h in _HEAD)
    rows = "\n".join(_row(k) for k in profile.kernels)
    name = html.escape(title)
    write_file(
        path,
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head>"
        f"<body><h1>{name}</h1><p>{html.escape(summary)}</p>\n<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n"
        f'</tbody></table><script type="application/json" id="profile">{data}</script><script>{_SCRIPT}</script>'
        "</body></html>\n",
    )


def _row(k: KernelProfile) -> str:
    nodes = "<br>".join(map(html.escape, k.nodes))
    return (
        f'<tr><td class="text">{html.escape(k.name)}</td><td class="text small">{html.escape(k.shapes)}</td>'
        f"{_number(k.calls, 'd')}{_number(k.us, ',.1f')}{_bar(k.share)}{_number(k.gflops, ',.1f')}"
        f'{_number(k.gbytes, ",.1f")}{_bar(k.roofline)}<td class="text small">{nodes}</td></tr>'
    )


def _number(value: float, form: str) -> str:
    known = not (isinstance(value, float) and math.isnan(value))
    return f'<td data-value="{value if known else ""}">{format(value, form) if known else ""}</td>'


def _bar(share: float) -> str:
    if math.isnan(share):
        return '<td data-value=""></td>'
    return f'<td class="bar" style="--w:{100 * min(share, 1):.1f}%" data-value="{share}">{100 * share:.1f}%</td>'
