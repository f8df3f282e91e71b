"""A flame graph as one SVG that needs nothing else: width is time, what stands on a function is what it called.

Pure. Hovering shows the whole name and its share; a click enlarges a function to the full width.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from zlib import crc32

_WIDTH, _ROW, _MARGIN, _HEAD = 1200, 17, 10, 40
_CHARACTER = 6.6
_NARROWEST = 0.3

_STYLE = (
    "text{font:11px monospace;pointer-events:none}g:hover rect{stroke:#000;stroke-width:.7}"
    "g{cursor:pointer}.h{font:14px sans-serif}"
)
_SCRIPT = """
const all=[...document.querySelectorAll('g')];
function zoom(target){
 const x0=+target.dataset.x,w0=+target.dataset.w,d0=+target.dataset.d;
 for(const g of all){
  const x=+g.dataset.x,w=+g.dataset.w,d=+g.dataset.d;
  const under=d<d0&&x<=x0+1e-6&&x+w>=x0+w0-1e-6,inside=x>=x0-1e-6&&x+w<=x0+w0+1e-6&&d>=d0;
  g.style.display=under||inside?'':'none';
  if(!under&&!inside)continue;
  const nx=under?MARGIN:MARGIN+(x-x0)/w0*SPAN,nw=under?SPAN:w/w0*SPAN;
  const r=g.querySelector('rect'),t=g.querySelector('text');
  r.setAttribute('x',nx);r.setAttribute('width',nw);t.setAttribute('x',nx+3);
  const room=Math.floor((nw-6)/CHARACTER),n=g.dataset.n;
  t.textContent=room<3?'':n.length>room?n.slice(0,room-1)+'…':n;
 }
}
for(const g of all)g.addEventListener('click',()=>zoom(g));
"""


class _Node:
    __slots__ = ("children", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self.children: dict[str, _Node] = {}


def draw(weights: Mapping[tuple[str, ...], int], *, title: str) -> str:
    """`weights` by stacks, the outermost function first, in microseconds."""
    root, depth = _tree(weights)
    height = _HEAD + (depth + 1) * _ROW + _MARGIN
    span = _WIDTH - 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fffdf7"/>'
        f'<text class="h" x="{_MARGIN}" y="24">{escape(title)}: {root.weight / 1e6:.2f} s</text>'
    ]
    if root.weight:
        _draw_node(
            parts, "all", root, x=_MARGIN, depth=0, scale=span / root.weight, total=root.weight, height=height
        )
    script = (
        _SCRIPT.replace("MARGIN", str(_MARGIN))
        .replace("SPAN", str(span))
        .replace("CHARACTER", str(_CHARACTER))
    )
    return "".join([*parts, f"<script><![CDATA[{script}]]></script></svg>\n"])


def _tree(weights: Mapping[tuple[str, ...], int]) -> tuple[_Node, int]:
    root, depth = _Node(), 0
    for stack, weight in weights.items():
        depth = max(depth, len(stack))
        root.weight += weight
        node = root
        for function in stack:
            node = node.children.setdefault(function, _Node())
            node.weight += weight
    return root, depth


def _draw_node(
    parts: list[str], name: str, node: _Node, *, x: float, depth: int, scale: float, total: int, height: int
) -> None:
    width = node.weight * scale
    if width < _NARROWEST:
        return
    y = height - _MARGIN - (depth + 1) * _ROW
    shown = escape(name, quote=True)
    room = int((width - 6) / _CHARACTER)
    label = "" if room < 3 else escape(name if len(name) <= room else name[: room - 1] + "…")
    parts.append(
        f'<g data-x="{x:.2f}" data-w="{width:.2f}" data-d="{depth}" data-n="{shown}">'
        f"<title>{shown}: {node.weight / 1000:.1f} ms, {node.weight / total:.1%}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="2" fill="{_colour(name)}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 12}">{label}</text></g>'
    )
    for child_name, child in sorted(node.children.items()):
        _draw_node(parts, child_name, child, x=x, depth=depth + 1, scale=scale, total=total, height=height)
        x += child.weight * scale


def _colour(name: str) -> str:
    """Warm, and the same for the same function in every graph."""
    hash_ = crc32(name.encode())
    return f"rgb({205 + hash_ % 50},{90 + (hash_ >> 8) % 120},{(hash_ >> 16) % 60})"
