"""Published settings of the evaluation training, and where a value comes from."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hald.config.read import read_yaml

EPOCHS = 300  # the training length that published epochs are for
SOURCES = ("paper", "code")  # the paper's word first
FALLBACK = {"lr": 0.001, "eta": 2.0}
VIT_RATE = 0.0005


@dataclass(frozen=True)
class Setting:
    """A value and whose it is: `paper`, `code` (released code) or `recommended` (ours)."""

    value: float
    origin: str


@dataclass(frozen=True)
class Published:
    """The content of config/paper/evaluation.yaml."""

    content: dict[str, Any] = field(default_factory=dict)

    @property
    def datasets(self) -> list[str]:
        """Datasets that anything is known about."""
        return list(dict.fromkeys(name for part in self.content.values() for name in part))

    @property
    def networks(self) -> list[str]:
        """Networks with published rates."""
        known = (settings.get("rates", {}) for part in self.content.values() for settings in part.values())
        return list(dict.fromkeys(name for rates in known for name in rates))

    def rate(self, name: str, dataset: str, arch: str, ipc: int) -> Setting:
        """`lr` or `eta` of a network (without family) at an IPC; an IPC between published ones takes the lower's."""
        column = ("lr", "eta").index(name)
        for source in SOURCES:
            rates = self._of(source, dataset).get("rates", {}).get(_network(arch), {})
            if str(ipc) in rates:
                return Setting(float(rates[str(ipc)][column]), source)
        known = {int(i): v for source in SOURCES[::-1] for i, v in self._rates(source, dataset, arch).items()}
        below = max((i for i in known if i < ipc), default=None)
        if below is not None:
            return Setting(float(known[below][column]), "recommended")
        return Setting(VIT_RATE if name == "lr" and "vit" in arch else FALLBACK[name], "recommended")

    def hard_epochs(self, dataset: str, slc: int, epochs: int) -> Setting:
        """Epochs of the hard stage in a training of `epochs`; half of them for a dataset that is not known."""
        published = self._of("paper", dataset).get("hard_epochs", {})
        if str(slc) in published and epochs == EPOCHS:
            return Setting(published[str(slc)], "paper")
        known = {int(i): v for i, v in (self._of("recommended", dataset).get("hard_epochs", {}) | published).items()}
        if not known:
            return Setting(epochs // 2, "recommended")
        nearest = max((i for i in known if i <= slc), default=min(known))
        return Setting(round(known[nearest] * epochs / EPOCHS), "recommended")

    def _of(self, source: str, dataset: str) -> dict[str, Any]:
        found: dict[str, Any] = self.content.get(source, {}).get(dataset, {})
        return found

    def _rates(self, source: str, dataset: str, arch: str) -> dict[str, Any]:
        found: dict[str, Any] = self._of(source, dataset).get("rates", {}).get(_network(arch), {})
        return found


def _network(arch: str) -> str:
    """The name that published tables use: without family, and without ShuffleNet's width."""
    name = arch.rsplit("/", 1)[-1]
    return "shufflenet_v2" if name.startswith("shufflenet_v2") else name


def read_published(root: Path) -> Published:
    """Read config/paper/evaluation.yaml below `root`."""
    return Published(read_yaml(root / "config/paper/evaluation.yaml"))
