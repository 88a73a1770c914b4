"""What the rules of analyses, tables and figures need, from the plan."""

from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.plan.config import suggest
from hald.plan.jobs import RuleJobs, Work, unless_there
from hald.specs.analysis import Subject
from hald.specs.base import to_dict


class OutcomeJobs:
    """Input and parameter functions of the rules that show results; `w` is Snakemake's wildcards."""

    def __init__(self, jobs: RuleJobs) -> None:
        self.jobs, self.plan = jobs, jobs.plan

    def analysis_inputs(self, w: Any) -> list[str]:
        """Prepared dataset, label views, teachers that are asked, and the records of runs whose students are needed."""
        plan, spec = self.plan, self.plan.analyses[self._key(w.analysis)]
        subjects = [*spec.subjects, *([spec.reference] if spec.reference else [])]
        teachers = [plan.teacher_dir(s.teacher) / "teacher.json" for s in subjects if s.teacher]
        files = unless_there(plan.dataset_dir(spec.dataset) / "manifest.json", *teachers)
        for subject in subjects:
            files += self.jobs.missing_views(subject.labels, views_of(subject))
            if subject.run:
                files += self.jobs.missing_student(subject.run)
        return list(dict.fromkeys(files))

    def analysis(self, w: Any) -> Work:
        """Parameters of rule analysis: its spec, and where everything that it names is."""
        plan, key = self.plan, self._key(w.analysis)
        spec = plan.analyses[key]
        subjects = [*spec.subjects, *([spec.reference] if spec.reference else [])]
        runs = [s.run for s in subjects if s.run]
        return {
            "stage": "analysis",
            "code": plan.code.digests["analysis"],
            "code_name": plan.code.names["analysis"],
            "key": key,
            "spec": to_dict(spec),
            "dataset_key": spec.dataset,
            "dataset": str(plan.dataset_dir(spec.dataset)),
            "stores": {s.labels: str(plan.store_dir(s.labels)) for s in subjects},
            "teachers": {s.teacher: str(plan.teacher_dir(s.teacher)) for s in subjects if s.teacher},
            "archs": {run: plan.runs[run].arch for run in runs},
            "students": {run: str(plan.student(run, 0, 0).parent) for run in runs},
            "partial": str(plan.partial(key)),
        }

    def threads(self, w: Any) -> int:
        """Threads of an analysis."""
        return self.plan.analyses[self._key(w.analysis)].threads

    def table_inputs(self, w: Any) -> list[str]:
        """Nothing while the table is current; else what it lacks, and this run's plan."""
        return self._inputs("tables", w.table, self.plan.tables)

    def table(self, w: Any) -> Work:
        """Parameters of rule table."""
        return self._shown("tables", w.table, self.plan.tables[w.table])

    def figure_inputs(self, w: Any) -> list[str]:
        """Nothing while the figure is current; else what it lacks, and this run's plan."""
        return self._inputs("figures", w.figure, self.plan.figures)

    def figure(self, w: Any) -> Work:
        """Parameters of rule figure."""
        return self._shown("figures", w.figure, self.plan.figures[w.figure])

    # One label each: with two, the page of Snakemake 9.27 makes switches of them and dies on combinations that do not
    # exist.

    def table_labels(self, w: Any) -> dict[str, str]:
        """What the report calls a table (its page has the caption; long labels leave no room for it)."""
        table = self.plan.tables[w.table]
        number = f" (Table {table.number} of the paper)" if table.number else ""
        return {"table": f"{table.id}{number}"}

    def figure_labels(self, w: Any) -> dict[str, str]:
        """What the report calls a figure."""
        return {"figure": w.figure}

    def preview_labels(self, w: Any) -> dict[str, str]:
        """What the report calls a preview sheet."""
        spec = self.plan.images[self._key(w.images)]
        return {"images": f"{w.images.partition('/')[0]}: {spec.method}, {spec.ipc} per class [{self._key(w.images)}]"}

    def preview_inputs(self, w: Any) -> list[str]:
        """The image set, unless a label store that exists has its images."""
        key = self._key(w.images)
        source = self._pictures(key)
        if source != self.plan.images_dir(key) or self.plan.preview_file(key).exists():
            return []
        return unless_there(source / "image_set.json")

    def preview(self, w: Any) -> Work:
        """Parameters of rule preview."""
        spec = self.plan.images[self._key(w.images)]
        return {"stage": "preview", "folder": str(self._pictures(self._key(w.images))), "spec": to_dict(spec)}

    def _pictures(self, images: str) -> Path:
        """Where the images of a set are: in the set, or in a label store that was made elsewhere."""
        stores = [self.plan.store_dir(key) for key, spec in self.plan.labels.items() if spec.images == images]
        made = self.plan.images_dir(images)
        if (made / "image_set.json").exists():  # the folder alone is what a killed job leaves
            return made
        return next((store for store in stores if store.exists()), made)

    def _inputs(self, kind: str, name: str, known: dict[str, Any]) -> list[str]:
        """A table or figure has a fixed name, and Snakemake takes one that exists for finished.

        The plan file is new in every run, so that one which has it among its inputs is made again.
        """
        if name not in known:
            raise UserError(f"there is no {kind[:-1]} '{name}' in this plan. {suggest(name, known)}")
        spec = known[name]
        table = spec if kind == "tables" else spec.table
        if self.plan.is_current(kind, name):
            return []
        files = [self.jobs.plan_file]
        for key in self.plan.sources(kind, name):
            if key in self.plan.analyses:
                files += unless_there(self.plan.analysis_file(key))
            else:
                files += self.jobs.missing_records(key, table.seeds)
        return files

    def _shown(self, kind: str, name: str, spec: Any) -> Work:
        """The definition, where its records are, and what it means (written beside it)."""
        plan = self.plan
        sources = plan.sources(kind, name)
        return {
            "stage": kind,
            "code": plan.code.digests[kind],
            "spec": to_dict(spec),
            "folders": {key: str(plan.run_dir(key)) for key in sources if key not in plan.analyses},
            "analyses": {key: str(plan.analysis_file(key)) for key in sources if key in plan.analyses},
            "meaning": plan.meaning(kind, name),
        }

    def _key(self, slug: str) -> str:
        key = self.plan.key(slug)
        if self.plan.slugs.get(key) != slug:
            raise UserError(
                f"'{slug}' is not part of this plan: its settings or its code are others now; see `hald plan`"
            )
        return key


def views_of(subject: Subject) -> int:
    """Label views that an analysis reads of a subject's store."""
    ipc, slc = int(subject.place["ipc"]), subject.place.get("slc")
    return -(-int(slc or ipc) // ipc)
