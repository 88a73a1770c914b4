"""Run one analysis: subject by subject, each kept as soon as it is done, then all in one file."""

import shutil
import time
from dataclasses import asdict
from pathlib import Path

import torch

from hald.analysis.kinds import KINDS
from hald.analysis.lab import Lab, Places
from hald.code_digests import versions
from hald.files import read_json, write_json
from hald.jobs import Progress, StopRequest, write_timing
from hald.specs.analysis import AnalysisSpec
from hald.specs.base import Identity, to_dict


def analyse(
    spec: AnalysisSpec, places: Places, partial: Path, result: Path, device: torch.device, identity: Identity
) -> None:
    """Find out about every subject and write `result`; what an earlier attempt found is not computed again."""
    start = time.monotonic()
    lab = Lab(spec, places, device)
    progress = Progress(len(spec.subjects), f"{spec.kind} subjects")
    found = []
    with StopRequest() as stop:
        for number, subject in enumerate(spec.subjects):
            part = partial / f"{number}.json"
            if not part.exists():
                stop.check()
                write_json(part, KINDS[spec.kind](lab, number))
            found.append({"place": subject.place} | read_json(part))
            progress.step()
    record = {"format": 1, "versions": versions("torch", "numpy"), "spec": to_dict(spec), "subjects": found}
    write_timing(result.with_suffix(".timing.json"), time.monotonic() - start, device.type, f"analysis {spec.kind}", 1)
    write_json(result, asdict(identity) | record)
    shutil.rmtree(partial, ignore_errors=True)
