"""What a schedule of phases is: a module of `hald.evaluation.schedules` with these functions."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hald import registry
from hald.evaluation.batches import Batch
from hald.evaluation.loss import Loss
from hald.evaluation.spec import RunSpec

Watch = tuple[float, float, float]  # held-out accuracy (%), entropy (share of ln C), soft loss after an epoch


class Watcher(Protocol):
    """Decides on the way when a phase ends."""

    def watch(self, model: nn.Module, loss: Loss) -> Watch:
        """What is seen of the student after an epoch; `loss` is the soft one."""

    def goes_on(self, starts: Sequence[int], watched: Sequence[Watch]) -> bool:
        """Whether the next epoch starts a new phase. `starts`: first epochs of the phases so far."""


class Schedule(Protocol):
    """How long the phases of a training are."""

    def starts(self, spec: RunSpec) -> list[int]:
        """First epochs of the phases that are known from the beginning."""

    def held_out(self, spec: RunSpec) -> NDArray[np.bool_]:
        """Images (N,) that are never trained on."""

    def watcher(self, spec: RunSpec, x: Tensor, labels: Tensor, crops: Callable[[], Batch]) -> Watcher | None:
        """What watches the held-out images: whole and normalised, their classes, their crops if it wants them."""


def schedule_of(spec: RunSpec) -> Schedule:
    """The schedule of a training."""
    return cast(Schedule, registry.compute("hald.evaluation.schedules", spec.schedule))
