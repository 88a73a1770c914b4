"""Accuracy over the bytes of the stored labels."""

from matplotlib.figure import Figure

from hald.report.accuracy_over import accuracy_over
from hald.report.figure import Material


def draw(material: Material) -> Figure:
    """A panel per image set, a line per evaluation."""
    return accuracy_over(material.points(), "label_bytes")
