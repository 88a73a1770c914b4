"""Run one analysis: subject by subject, each kept as soon as it is done, then all in one file.

A kind is a folder of `kinds`; its `compute.measure(lab, number)` finds out about one subject. Where a setting of an
analysis is left empty, its value is that of the released analysis code.
"""

import shutil
import time

from hald import registry
from hald.analysis.spec import AnalysisSpec
from hald.analysis.subjects import Lab
from hald.code_digests import versions
from hald.files import read_json, write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress
from hald.jobs.signals import StopRequest
from hald.numerics.device import setup
from hald.plain import to_dict


def make(job: Job[AnalysisSpec]) -> None:
    """Find out about every subject; what an earlier attempt found is not computed again."""
    start, spec = time.monotonic(), job.spec
    lab = Lab(spec, job.made_from, setup(spec.threads))
    kind = registry.compute("hald.analysis.kinds", spec.kind)
    progress = Progress(len(spec.subjects), f"{spec.kind} subjects")
    found = []
    with StopRequest() as stop:
        for number, subject in enumerate(spec.subjects):
            part = job.partial / f"{number}.json"
            if not part.exists():
                stop.check()
                write_json(part, kind.measure(lab, number))
            found.append({"place": subject.place} | read_json(part))
            progress.step()
    record = {"format": 1, "versions": versions("torch", "numpy"), "spec": to_dict(spec), "subjects": found}
    job.note_time(start, lab.device.type, name="analysis")
    (file,) = job.units[0]
    write_json(file, job.identity | record)
    shutil.rmtree(job.partial, ignore_errors=True)
