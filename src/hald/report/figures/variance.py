"""The figure of the analysis `theory`: the law of the variance of a mean label."""

from hald.analysis.kinds.theory.figure import draw

__all__ = ["draw"]
