"""What a figure is: a way of drawing, and the table or the analyses that it draws."""

from dataclasses import dataclass

from hald.report.spec import TableSpec


@dataclass(frozen=True)
class FigureSpec:
    """A figure resolved by the plan: the cells of a table, or the results of analyses (keys)."""

    id: str
    kind: str
    caption: str
    table: TableSpec | None
    analyses: tuple[str, ...]
