"""The former place of `FigureSpec`, until report/plan.py and report/figure.py import it from `hald.report.spec`."""

from hald.report.spec import FigureSpec

__all__ = ["FigureSpec"]
