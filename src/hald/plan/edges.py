"""The graph as Snakemake's rules ask for it: inputs, parameters, threads, and what the user told Snakemake to force.

A finished job names what exists as `ancient`: nothing that it was made from makes it again, neither a newer file nor
one that is gone. A job that runs, or is forced to, names all that it needs plainly. While nothing can run
(`--rulegraph`, `--report`) every job names everything, so that drawings are whole.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hald.cluster.profile_check import check_reruns
from hald.errors import UserError
from hald.plan.graph import Graph, JobId
from hald.plan.model import Plan
from hald.plan.stages import STAGES

Wildcards = Mapping[str, str]


class Edges(Graph):
    """The graph of one Snakemake process. `workflow` and `ancient` are Snakemake's."""

    def __init__(self, plan: Plan, plan_file: str, workflow: Any, ancient: Callable[[str], Any]) -> None:
        super().__init__(plan)
        self.plan_file, self.workflow, self.ancient = plan_file, workflow, ancient
        self._below: dict[JobId, bool] = {}
        self._began = False

    def job_of(self, stage: str, w: Wildcards) -> JobId:
        """The job that wildcards mean: a readable name and, for a block, the name of its receipt."""
        known = dict(w.items())
        block = known.pop("block", "")
        (slug,) = known.values()
        return JobId(stage, self.plan.key(stage, slug), block)

    def input(self, stage: str, name: str) -> Callable[[Wildcards], list[Any]]:
        """Function for one input of a rule."""

        def files(w: Wildcards) -> list[Any]:
            job = self.job_of(stage, w)
            if self.draws_only:
                return list(self.wanted(job, name))
            self._begin()
            named = self.named(job, name)
            if self.is_done(job) and not self.is_forced(job):
                return [self.ancient(file) for file in named if self.disk.has(file)]
            return list(named)

        return files

    def changed(self, stage: str) -> Callable[[Wildcards], list[str]]:
        """Function for an input that is newer than a table or figure that is out of date: it has a fixed name, and
        Snakemake takes one that exists for finished.
        """
        return lambda w: [] if self.draws_only or self.is_done(self.job_of(stage, w)) else [self.plan_file]

    def everything(self, _: Wildcards) -> list[str]:
        """Function for the input of rule `all`."""
        self._begin()
        return [file for need in self.targets() for file in self.outputs(need)]

    def params(self, stage: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Function for the parameter of a rule: its job, as plain values."""
        return lambda w: self.job(self.job_of(stage, w)).plain()

    def threads(self, stage: str) -> Callable[[Wildcards], int]:
        """Function for the threads of a rule: those of the spec, so that results do not depend on where a job ran."""
        return lambda w: int(self.plan.specs[stage][self.job_of(stage, w).key].threads)

    @property
    def draws_only(self) -> bool:
        """Whether nothing can run in this process."""
        return self.workflow.execution_settings is None

    def is_forced(self, job: JobId) -> bool:
        """Whether Snakemake was told to run this job again, or one that it is made from.

        Asked when inputs are: what the user said comes after the Snakefile is read. `target_jobs` are those of the
        Snakemake of a single job, which runs.
        """
        settings = self.workflow.dag_settings
        return bool(settings.forceall or settings.target_jobs) or self._is_below(job, self._forced_names())

    def is_unsigned(self, job: JobId) -> bool:
        """Whether a block is done without a receipt; not one that is forced: its job has to be among those that run."""
        return super().is_unsigned(job) and not (
            self.workflow.dag_settings.forceall or self._is_below(job, self._forced_names())
        )

    def _forced_names(self) -> frozenset[str]:
        """Rules and files that shall be made again."""
        settings = self.workflow.dag_settings
        targets = settings.targets if settings.forcetargets else ()
        return frozenset(os.path.normpath(name) for name in (*settings.forcerun, *targets))

    def _is_below(self, job: JobId, names: frozenset[str]) -> bool:
        if not names:
            return False
        if job not in self._below:
            own = {job.stage, *map(os.path.normpath, self.declared(job))}
            self._below[job] = not own.isdisjoint(names) or any(
                self._is_below(self.maker(file), names)
                for name in self.needs(*job[:2])
                for file in self.named(job, name)
            )
        return self._below[job]

    def _begin(self) -> None:
        """Once, before the first job is looked at: refuse what cannot be forced; sign what is whole, unless dry."""
        if self._began or self.draws_only or self.workflow.dag_settings.target_jobs:
            return
        self._began = True
        settings = self.workflow.dag_settings
        check_reruns([trigger.name.lower() for trigger in settings.rerun_triggers], settings.force_incomplete)
        self._refuse_forced_stores()
        if not (self.workflow.dryrun or self.workflow.touch):
            for job in self._unsigned_jobs():
                self.job(job).sign()
                self.disk.add(self.declared(job)[0])

    def _unsigned_jobs(self) -> list[JobId]:
        keys = [(name, key) for name, stage in STAGES.items() if stage.blocks for key in self.plan.specs[name]]
        jobs = [JobId(*place, block.name) for place in keys for block in self.plan.blocks[place[1]]]
        return [job for job in jobs if not self.is_foreign(job.stage) and self.is_unsigned(job)]

    def _refuse_forced_stores(self) -> None:
        """Label stores outside of the results may be others' too: their views are not made again."""
        names = self._forced_names()
        asked = "relabel" in names or any(Path(name).is_relative_to(self.plan.stores) for name in names)
        if self.plan.foreign_stores and asked:
            for store in (self.plan.folder("relabel", key) for key in self.plan.labels):
                if (store / "zarr.json").exists():
                    raise UserError(
                        f"label store {store} is in a folder that others may use, so its views are not made again; "
                        f"leave out --forcerun relabel, or set another `stores:` folder"
                    )

    def withdraw_forced(self, jobs: list[JobId]) -> None:
        """Remove the finished units of blocks that are forced: their jobs make what is missing."""
        for job in jobs:
            if job.block and self.is_forced(job) and not self.is_foreign(job.stage):
                for files in self.job(job).units.values():
                    for file in files:
                        file.unlink(missing_ok=True)
