"""One job: what a rule hands to the code that does its work, and the receipt that says it is done."""

import functools
import importlib
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from hald.code_digests import code_digests, digest_of
from hald.errors import UserError
from hald.files import write_json
from hald.jobs.claims import Claim
from hald.plain import from_dict, to_dict

S = TypeVar("S")


@dataclass(frozen=True)
class Job(Generic[S]):
    """A piece of work of one stage, with everything that it needs to know of the plan."""

    spec: S
    folder: Path  # where the units lie
    units: dict[int, tuple[Path, ...]]  # those to be made, with the files that are there when one is whole
    made_from: dict[str, Path]  # folder of everything that the spec names, by key
    partial: Path  # for unfinished work
    stage: str = ""  # name of the rule
    make: str = ""  # function that does the work, as module:name
    key: str = ""
    parts: tuple[str, ...] = ()  # of the package: whose code it was planned with
    code: str = ""  # digest of that code
    code_name: str = ""  # as keys name it
    receipt: Path | None = None  # of a block of units
    workers: int = 0  # processes that decode images
    floor: float = 0.0  # accuracy below which teachers are refused
    kept: int = 0  # seeds whose students stay
    meaning: dict[str, Any] | None = None  # of a table or figure: what it shows

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> "Job[Any]":
        """A job from the plain values that a rule has."""
        values = dict(params)
        spec = from_dict(named(values.pop("spec_type")), values["spec"])
        return from_dict(cls, values | {"spec": spec})

    def plain(self) -> dict[str, Any]:
        """The job as plain JSON values, with the class of its spec as module:name."""
        kind = type(self.spec)
        return to_dict(self) | {"spec_type": f"{kind.__module__}:{kind.__qualname__}"}

    @property
    def identity(self) -> dict[str, str]:
        """What a record says of its origin."""
        return {"key": self.key, "code": self.code, "code_name": self.code_name}

    def has(self, unit: int) -> bool:
        """Whether a unit is whole."""
        return all(path.exists() for path in self.units[unit])

    def missing_units(self) -> list[int]:
        """The units that are not there."""
        return [unit for unit in self.units if not self.has(unit)]

    def claim(self, unit: int) -> Claim:
        """The right to make a unit, if nobody else has it."""
        return Claim(self.claim_file(unit))

    def claim_file(self, unit: int) -> Path:
        """File of the claim of a unit; work in one piece has it outside of its folder, which comes to be at its end."""
        return (
            self.folder / "claims" / f"{unit:05d}.json"
            if self.receipt
            else self.partial.with_name(f"{self.partial.name}.claim")
        )

    def require_planned_code(self) -> None:
        """Refuse to put results of edited code under the key of the code that was planned."""
        if self.parts and digest_of(self.parts, code_digests()) != self.code:
            raise UserError(
                f"the source code of stage {self.stage} changed since this run was planned, so its results would not "
                f"be what their key says. Start snakemake again: it plans with the new code"
            )

    def run(self) -> None:
        """Do the work."""
        named(self.make)(self)

    def sign(self) -> None:
        """Write the receipt of a block: always the same bytes, because Snakemake compares checksums."""
        if self.receipt:
            write_json(self.receipt, {"key": self.key, "units": [min(self.units), max(self.units)]})

    def note_time(
        self, started: float, device: str, done: float = 1, name: str = "", folder: Path | None = None
    ) -> None:
        """Keep how long `done` units of work took since `started` (monotonic), for the estimates of `hald plan`.

        The note is beside the results, never part of them.
        """
        if not done:
            return
        kind, work = self.spec.effort  # type: ignore[attr-defined]
        file = (folder or self.folder) / "timings" / f"{name or time.time_ns()}.json"
        seconds = round(time.monotonic() - started, 3)
        note = {"seconds": seconds, "host": platform.node(), "device": device, "kind": kind, "work": work * done}
        write_json(file, note)

    def with_data(self, key: str, folder: Path) -> "Job[S]":
        """The same job with another copy of something that it reads."""
        return replace(self, made_from=self.made_from | {key: folder})


@functools.cache
def named(name: str) -> Any:
    """What `module:name` stands for."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


AnyJob = Job[Any]
