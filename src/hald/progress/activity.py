"""Which of the missing work is being done just now: every job keeps a claim on what it is making.

A claim is believed while its process lives (on this host), or while its heartbeat is fresh (on another).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from hald.jobs.claims import Claim
from hald.plan.graph import Graph
from hald.plan.stage import Work
from hald.plan.stages import STAGES


class Activity:
    """The units of unfinished work that somebody is making."""

    def __init__(self, graph: Graph, work: Work) -> None:
        self.at_work = {
            (*place, unit)
            for place, units in work.items()
            for unit, claim in _claims(graph, *place)
            if unit in units and claim.is_live()
        }

    def is_running(self, stage: str, key: str, units: Iterable[int]) -> bool:
        """Whether one of these unfinished units is being made."""
        return any((stage, key, unit) in self.at_work for unit in units)


def _claims(graph: Graph, stage: str, key: str) -> Iterator[tuple[int, Claim]]:
    """Claims on the units of a key; hald.jobs.job says where they are."""
    if STAGES[stage].blocks:
        folder = graph.plan.folder(stage, key) / "claims"
        for name in graph.disk.names(str(folder)):
            if name.endswith(".json"):
                yield int(Path(name).stem), Claim(folder / name)
        return
    path = Path(f"{graph.plan.partial(key)}.claim")
    if graph.disk.has(str(path)):
        yield 0, Claim(path)
