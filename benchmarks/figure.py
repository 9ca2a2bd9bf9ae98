"""One measured figure, and how a table of them is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, beside what it is measured against.

    p95, p99: None for a figure that was taken once. ratio: against the floor or the peer that `note` names.
    target, holds: what is wanted, and whether it is so in this run.
    """

    group: str
    name: str
    unit: str
    p50: float
    p95: float | None = None
    p99: float | None = None
    ratio: float | None = None
    target: str = ""
    holds: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        numbers = "".join(_number(value) for value in (self.p50, self.p95, self.p99))
        ratio = f"{self.ratio:6.2f} x" if self.ratio is not None else " " * 8
        wanted = f"  {self.target}: {'holds' if self.holds else 'DOES NOT HOLD'}" if self.target else ""
        note = f"  ({self.note})" if self.note else ""
        return f"  {self.name:46}{numbers} {self.unit:5}{ratio}{wanted}{note}".rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return " " * 10
    return f"{value:10.1f}" if abs(value) >= 10 else f"{value:10.2f}"


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank, of at least one value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]


def spread(group: str, name: str, unit: str, values: Sequence[float], **facts: Any) -> Figure:
    """A figure of many values."""
    return Figure(
        group,
        name,
        unit,
        percentile(values, 0.5),
        percentile(values, 0.95),
        percentile(values, 0.99),
        **facts,
    )


def table(figures: Sequence[Figure]) -> str:
    lines = []
    for group in dict.fromkeys(figure.group for figure in figures):
        lines.append(f"{group:48}{'p50':>10}{'p95':>10}{'p99':>10}")
        lines += [figure.line() for figure in figures if figure.group == group]
        lines.append("")
    return "\n".join(lines)
