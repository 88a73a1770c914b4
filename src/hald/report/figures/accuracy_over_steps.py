"""Accuracy over the optimiser steps of a training."""

from matplotlib.figure import Figure

from hald.files import read_json
from hald.report.accuracy_over import accuracy_over
from hald.report.cells import epoch_steps
from hald.report.figure import Found, Material


def draw(material: Material) -> Figure:
    """A panel per image set, a line per evaluation."""
    return accuracy_over(lengths(material), "steps")


def lengths(material: Material) -> list[Found]:
    """The points with the steps of their trainings; `hald_900`, if of 900 epochs, is `hald` in another length."""
    points = []
    for cell, point in zip(material.table.cells, material.points(), strict=True):
        record = next(material.sources[cell.run].glob("seed-*.json"), None)
        if record is not None:
            spec = read_json(record)["spec"]
            method = point["evaluation"].removesuffix(f"_{spec['epochs']}")
            points.append(point | {"evaluation": method, "steps": spec["epochs"] * epoch_steps(spec)})
    return points
