"""What is made from what, what of it is there, and which jobs have to run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hald.files import read_json
from hald.jobs.job import Job
from hald.plan.blocks import Block
from hald.plan.disk import Disk
from hald.plan.model import Plan
from hald.plan.stage import Need, Needs, Work
from hald.plan.stages import STAGES


class JobId(NamedTuple):
    """A job: its stage, its key and, where its work is a block of units, the block's name."""

    stage: str
    key: str
    block: str = ""


class Graph:
    """The jobs of a plan, as of one look at the disk."""

    def __init__(self, plan: Plan, disk: Disk | None = None) -> None:
        self.plan, self.disk = plan, disk or Disk(plan.results, plan.stores)
        self._needs: dict[tuple[str, str], Needs] = {}
        self._outputs: dict[Need, list[str]] = {}
        self._makers: dict[str, JobId] = {}
        self._missing: dict[Need, frozenset[int]] = {}
        self._done: dict[JobId, bool] = {}

    # ---- what is made from what ----

    def needs(self, stage: str, key: str) -> Needs:
        """What a piece of work is made from, by the names of its rule's inputs."""
        if (stage, key) not in self._needs:
            self._needs[stage, key] = self.plan.needs(stage, key)
        return self._needs[stage, key]

    def declared(self, job: JobId) -> list[str]:
        """The outputs of a job's rule: the receipt of a block, all files of work in one piece."""
        if not job.block:
            return self.plan.files(job.stage, job.key)
        return [f"{self.plan.folder(job.stage, job.key)}/done/{job.block}.json"]

    def outputs(self, need: Need) -> list[str]:
        """The declared outputs of the jobs that make the first units of a key.

        What is finished in stores outside of the results is nobody's output: `--delete-all-output` must not find it.
        """
        if need not in self._outputs:
            jobs = [JobId(need.stage, need.key)]
            if STAGES[need.stage].blocks:
                blocks = [block for block in self.plan.blocks[need.key] if block.first < need.units]
                jobs = [
                    JobId(need.stage, need.key, block.name)
                    for block in blocks
                    if not (self.is_foreign(need.stage) and self.is_whole(need.stage, need.key, block.units))
                ]
            made = {file: job for job in jobs for file in self.declared(job)}
            self._makers |= made
            self._outputs[need] = list(made)
        return self._outputs[need]

    def is_foreign(self, stage: str) -> bool:
        """Whether results of a stage lie in a folder that others may use."""
        return STAGES[stage].folder.startswith("{stores}") and self.plan.foreign_stores

    def maker(self, file: str) -> JobId:
        """The job that declares a file; one that `outputs` gave."""
        return self._makers[file]

    def wanted(self, job: JobId, name: str) -> list[str]:
        """All that a job is made from under one of its inputs' names."""
        return list(dict.fromkeys(file for need in self.needs(*job[:2])[name] for file in self.outputs(need)))

    def named(self, job: JobId, name: str) -> list[str]:
        """What a job asks for. A store that exists has what it is made from in it, and asks only for what is there."""
        wanted = [file for file in self.wanted(job, name) if not self.is_unsigned(self.maker(file))]
        return [file for file in wanted if self.disk.has(file)] if self.holds_inputs(job) else wanted

    def holds_inputs(self, job: JobId) -> bool:
        """Whether all that a job is made from was put into its folder before."""
        inside = STAGES[job.stage].holds_inputs
        return bool(inside) and self.disk.has(f"{self.plan.folder(job.stage, job.key)}/{inside}")

    # ---- what is there ----

    def is_whole(self, stage: str, key: str, units: Iterable[int]) -> bool:
        """Whether all files of some units are there."""
        return all(self.disk.has(file) for unit in units for file in self.plan.files(stage, key, unit))

    def is_unsigned(self, job: JobId) -> bool:
        """Whether the units of a block are there without a receipt, as after a kill between the two: it is done."""
        if not job.block or self.disk.has(self.declared(job)[0]):
            return False
        return self.is_whole(job.stage, job.key, Block.named(job.block).units)

    def is_done(self, job: JobId) -> bool:
        """Whether a job's outputs are there and count."""
        if job not in self._done:
            there = all(map(self.disk.has, self.declared(job)))
            self._done[job] = there and not (STAGES[job.stage].fixed_name and self._is_out_of_date(job))
        return self._done[job]

    def _is_out_of_date(self, job: JobId) -> bool:
        """Whether a table or figure means something else than the plan does, or lacks what it was made from."""
        meaning = self.plan.file(job.stage, job.key)
        needs = (need for needs in self.needs(*job[:2]).values() for need in needs)
        return read_json(meaning) != self.plan.meaning(job.stage, job.key) or any(map(self.missing, needs))

    def missing(self, need: Need) -> frozenset[int]:
        """Units of a need that are not there."""
        if need not in self._missing:
            self._missing[need] = frozenset(self._look(need))
        return self._missing[need]

    def _look(self, need: Need) -> Iterator[int]:
        stage, key, units = need.stage, need.key, need.units
        if not STAGES[stage].blocks:
            yield from () if self.is_done(JobId(stage, key)) else (0,)
            return
        there = self.disk.names(str(self.plan.folder(stage, key)))
        yield from (unit for unit in range(units) if not there or not self.is_whole(stage, key, [unit]))

    # ---- what has to be done ----

    def targets(self) -> list[Need]:
        """What the workflow's default target asks for; previews of image sets that exist or are going to."""
        needs = [Need(stage, key) for stage in ("table", "figure", "analysis") for key in self.plan.specs[stage]]
        made = {key for stage, key in self.work_behind(needs) if stage == "synthesize"}
        shown = [key for key in self.plan.images if key in made or not self.missing(Need("synthesize", key))]
        return needs + [Need("preview", key) for key in shown]

    def jobs_to_run(self) -> dict[JobId, None]:
        """The jobs that have to run for everything, as `snakemake -n` lists them."""
        found: dict[JobId, None] = {}
        waiting = [self.maker(file) for need in self.targets() for file in self.outputs(need)]
        while waiting:
            job = waiting.pop()
            if job not in found and not self.is_done(job) and not self.is_unsigned(job):
                found[job] = None
                waiting += [self.maker(file) for name in self.needs(*job[:2]) for file in self.named(job, name)]
        return found

    def work_behind(self, needs: Iterable[Need]) -> Work:
        """The units that have to be made for `needs`: what they lack, what that is made from, and so on."""
        work: dict[tuple[str, str], frozenset[int]] = {}
        waiting = list(needs)
        while waiting:
            need = self._in_whole_blocks(waiting.pop())
            units = self.missing(need)
            if not units:
                continue
            if (need.stage, need.key) not in work and not self.holds_inputs(JobId(need.stage, need.key)):
                waiting += [other for others in self.needs(need.stage, need.key).values() for other in others]
            work[need.stage, need.key] = work.get((need.stage, need.key), frozenset()) | units
        return work

    def _in_whole_blocks(self, need: Need) -> Need:
        """A need with all units of the jobs that make it: the last of them may make more than is asked for."""
        if not STAGES[need.stage].blocks:
            return need
        ends = (block.last + 1 for block in self.plan.blocks[need.key] if block.first < need.units)
        return replace(need, units=max(ends, default=need.units))

    def checkpoint(self, stage: str, key: str, unit: int) -> tuple[Path, int] | None:
        """The note of a unit's checkpoint, if there is one, and the epochs of the whole unit."""
        known = STAGES[stage].checkpoint
        if known is None:
            return None
        note, epochs = known(self.plan.specs[stage][key], unit)
        path = self.plan.partial(key) / note
        return (path, epochs) if self.disk.has(str(path)) else None

    def begun(self, stage: str, key: str, unit: int) -> float:
        """Share of an unfinished unit that its checkpoint has."""
        found = self.checkpoint(stage, key, unit)
        try:
            return min(read_json(found[0])["epoch"] / found[1], 1.0) if found else 0.0
        except FileNotFoundError:  # it has just been finished
            return 0.0

    def job(self, job: JobId) -> Job[Any]:
        """All that a job gets to know."""
        plan, (stage, key, block) = self.plan, job
        spec = plan.specs[stage][key]
        parts = STAGES[stage].parts(spec)
        needs = [need for needs in self.needs(stage, key).values() for need in needs]
        units = Block.named(block).units if block else range(1)
        return Job(
            spec=spec,
            folder=plan.folder(stage, key),
            units={unit: tuple(map(Path, plan.files(stage, key, unit))) for unit in units},
            made_from={need.key: plan.folder(need.stage, need.key) for need in needs},
            partial=plan.partial(key),
            stage=stage,
            make=STAGES[stage].make(spec),
            key=key,
            parts=parts,
            code=plan.code.digest(parts),
            code_name=plan.code.name(parts),
            receipt=plan.folder(stage, key) / f"done/{block}.json" if block else None,
            workers=plan.jobs.workers,
            floor=max((plan.floors[need.key] for need in needs if need.stage == "squeeze"), default=0.0),
            kept=plan.kept.get(key, 0),
            meaning=plan.meaning(stage, key) if STAGES[stage].fixed_name else None,
        )
