"""The GPUs that each rule leaves unused, as an SVG."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

_WIDTH, _LABELS, _BAR, _STEP, _HEAD = 720, 200, 14, 22, 34
_INK, _OTHERS, _OURS = "#6e7781", "#afb8c1", "#0969da"
_FONT: Final = "font-family='system-ui, sans-serif' font-size='13'"


def bars(title: str, panels: Mapping[str, Mapping[str, float]], highlighted: str) -> str:
    """Return bars by panel and name, all to one scale."""
    most = max(value for values in panels.values() for value in values.values())
    scale = (_WIDTH - _LABELS - 70) / most
    lines, top = [_text(0, 16, title, weight="600")], _HEAD
    for panel, values in panels.items():
        lines.append(_text(0, top + 14, panel, weight="600"))
        top += _STEP
        for name, value in values.items():
            colour = _OURS if name == highlighted else _OTHERS
            wide = value * scale
            lines.append(_text(_LABELS - 8, top + 12, name, anchor="end"))
            lines.append(f"<rect x='{_LABELS}' y='{top}' width='{wide:.1f}' height='{_BAR}' fill='{colour}'/>")
            lines.append(_text(_LABELS + wide + 6, top + 12, f"{value:.1f} %"))
            top += _STEP
        top += _BAR
    size = f"viewBox='0 0 {_WIDTH} {top}' width='{_WIDTH}' height='{top}'"
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {_FONT}>", *lines, "</svg>", ""])


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> str:
    place = f"x='{x:.1f}' y='{y}' text-anchor='{anchor}' font-weight='{weight}'"
    return f"<text {place} fill='{_INK}'>{escape(text)}</text>"


def unused(rows: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Return by rule, those that leave most first, what is left of 100 %."""
    left = {name: 100 - share for name, share in rows}
    return dict(sorted(left.items(), key=lambda each: -each[1]))
