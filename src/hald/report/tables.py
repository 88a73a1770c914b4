"""The former place of `hald.report.cells`, until `hald.report.figure` imports from there."""

from hald.report.cells import cell_rows, epoch_steps, sources

__all__ = ["cell_rows", "epoch_steps", "sources"]
