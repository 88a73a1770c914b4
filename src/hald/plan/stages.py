"""The stages of the pipeline, in order: where each keeps its results, what they are made from, who makes them."""

from hald.analysis.spec import AnalysisSpec
from hald.datasets.spec import DatasetSpec
from hald.evaluation.spec import RunSpec
from hald.labels.spec import LabelsSpec
from hald.networks.names import module_of
from hald.plain import from_dict
from hald.plan.arithmetic import views_behind
from hald.plan.stage import AnyStage, Blocks, Need, Needs, Stage
from hald.report.spec import FigureSpec, TableSpec
from hald.squeeze.spec import TeacherSpec, WeightsSpec
from hald.synthesis.spec import (
    FromRanking,
    FromUnits,
    ImagesSpec,
    Lpld,
    Patches,
    PreviewSpec,
    RankingSpec,
    StatisticsSpec,
    UnitsSpec,
)

FORMATS = ("csv", "md", "tex", "html", "records.html")
DRAWN = ("png", "svg", "pdf")
READERS = {
    name: f"methods.{name}.compute" for name in ("real", "external", "rded", "patches")
}  # the others are optimised


def _data_and(spec: RankingSpec | StatisticsSpec) -> Needs:
    return {"dataset": [Need("dataset", spec.dataset)], "teachers": [Need("squeeze", spec.teacher)]}


def _for_teacher(spec: TeacherSpec) -> Needs:
    fetched = [Need("weights", WeightsSpec(spec.arch, spec.weights).name)] if spec.weights else []
    return {"dataset": [Need("dataset", spec.dataset)], "weights": fetched}


def _for_units(spec: UnitsSpec) -> Needs:
    own = spec.own
    return {
        "dataset": [Need("dataset", spec.dataset)],
        "teachers": [Need("squeeze", teacher) for teacher in spec.teachers],
        "statistics": [Need("statistics", own.statistics)] if isinstance(own, Lpld) else [],
        "ranking": [Need("rank", spec.patches.ranking, spec.classes)] if spec.patches else [],
    }


def _for_images(spec: ImagesSpec) -> Needs:
    source = spec.source
    return {
        "dataset": [Need("dataset", spec.dataset)],
        "teachers": [Need("squeeze", teacher) for teacher in spec.teachers],
        "ranking": [Need("rank", source.ranking, spec.classes)] if isinstance(source, FromRanking | Patches) else [],
        "units": [Need("recover", source.units, source.count(spec))] if isinstance(source, FromUnits) else [],
    }


def _for_labels(spec: LabelsSpec) -> Needs:
    return {
        "images": [Need("synthesize", spec.images)],
        "teachers": [Need("squeeze", teacher) for teacher in spec.teachers],
    }


def _for_run(spec: RunSpec) -> Needs:
    views = views_behind(spec.pool, spec.batches)
    return {"dataset": [Need("dataset", spec.dataset)], "labels": [Need("relabel", spec.labels, views)]}


def _for_analysis(spec: AnalysisSpec) -> Needs:
    return {
        "dataset": [Need("dataset", spec.dataset)],
        "labels": [Need("relabel", subject.labels, subject.views) for subject in spec.looked_at],
        "teachers": [Need("squeeze", subject.teacher) for subject in spec.looked_at if subject.teacher],
        "runs": [Need("evaluate", subject.run) for subject in spec.looked_at if subject.run],
    }


def _network(arch: str) -> str:
    """The part of the package that builds a network."""
    return f"network.{module_of(arch).rpartition('.')[2]}"


def _parts_of_run(spec: RunSpec) -> tuple[str, ...]:
    return ("evaluate", _network(spec.arch), *spec.plugins)


def _parts_of_analysis(spec: AnalysisSpec) -> tuple[str, ...]:
    """With those of the students that it trains itself; others are known by the keys of their runs."""
    runs = (from_dict(RunSpec, run) for run in spec.options.get("runs", ()))
    return (f"analysis.{spec.kind}", *dict.fromkeys(part for run in runs for part in _parts_of_run(run)))


def _for_table(spec: TableSpec | None) -> Needs:
    cells = spec.cells if spec else ()
    return {
        "runs": [Need("evaluate", cell.run, spec.seeds) for cell in cells if spec and cell.value is None],
        "analyses": [Need("analysis", cell.run) for cell in cells if cell.value is not None],
    }


def _for_figure(spec: FigureSpec) -> Needs:
    needs = _for_table(spec.table)
    return needs | {"analyses": needs["analyses"] + [Need("analysis", key) for key in spec.analyses]}


def _record(spec: RunSpec, seed: int, kept: bool) -> list[str]:
    """A student's record and, where an analysis is going to look at the student, its last weights."""
    last = f"students/seed-{seed}/stage-{len(spec.stages) - 1}.safetensors"
    return [f"seed-{seed}.json", *([last] if kept else [])]


STAGES: dict[str, AnyStage] = {
    stage.name: stage
    for stage in (
        Stage(
            "dataset",
            "datasets",
            DatasetSpec,
            "{results}/datasets/{slug}",
            lambda spec, unit, kept: ["manifest.json"],
            lambda spec: {},
            lambda spec: "hald.datasets.prepare:make",
            parts=lambda spec: (f"dataset.{spec.source}",),
            timed=False,
        ),
        Stage(
            "weights",
            "downloaded weights",
            WeightsSpec,
            "{results}/weights",
            lambda spec, unit, kept: [f"{spec.name}.safetensors"],
            lambda spec: {},
            lambda spec: "hald.squeeze.weights_download:make",
            timed=False,
        ),
        Stage(
            "squeeze",
            "teachers",
            TeacherSpec,
            "{results}/teachers/{slug}",
            lambda spec, unit, kept: ["teacher.json"],
            _for_teacher,
            lambda spec: "hald.squeeze.train:make",
            parts=lambda spec: ("squeeze", _network(spec.arch)),
            checkpoint=lambda spec, unit: ("checkpoint.json", spec.recipe.epochs if spec.recipe else 1),
        ),
        Stage(
            "rank",
            "image units",
            RankingSpec,
            "{results}/rankings/{slug}",
            lambda spec, unit, kept: [f"{unit:05d}.npz"],
            _data_and,
            lambda spec: "hald.synthesis.ranking:make",
            parts=lambda spec: ("ranking",),
            blocks=Blocks("units_per_job", 10),
        ),
        Stage(
            "statistics",
            "BN statistics",
            StatisticsSpec,
            "{results}/statistics/{slug}",
            lambda spec, unit, kept: ["statistics.json"],
            _data_and,
            lambda spec: "hald.synthesis.class_statistics:make",
            parts=lambda spec: ("statistics",),
        ),
        Stage(
            "recover",
            "image units",
            UnitsSpec,
            "{results}/units/{slug}",
            lambda spec, unit, kept: [f"{unit:05d}.npz"],
            _for_units,
            lambda spec: f"hald.synthesis.methods.{spec.method}.compute:make",
            parts=lambda spec: (f"method.{spec.method}",),
            blocks=Blocks("units_per_job", 10),
        ),
        Stage(
            "synthesize",
            "image sets",
            ImagesSpec,
            "{results}/images/{slug}.zarr",
            lambda spec, unit, kept: ["image_set.json"],
            _for_images,
            lambda spec: f"hald.synthesis.{READERS.get(spec.method, 'from_units')}:make",
            parts=lambda spec: (f"method.{spec.method}" if spec.method in READERS else "from_units",),
        ),
        Stage(
            "relabel",
            "label views",
            LabelsSpec,
            "{stores}/{slug}.zarr",
            lambda spec, unit, kept: [f"views/{unit:05d}.json"],
            _for_labels,
            lambda spec: "hald.labels.relabel:make",
            parts=lambda spec: ("relabel", f"codec.{spec.codec}"),
            blocks=Blocks("views_per_job", 20),
            holds_inputs="zarr.json",
        ),
        Stage(
            "evaluate",
            "training runs",
            RunSpec,
            "{results}/runs/{slug}",
            _record,
            _for_run,
            lambda spec: "hald.evaluation.train:make",
            parts=_parts_of_run,
            blocks=Blocks("seeds_per_job", 3),
            checkpoint=lambda spec, unit: (f"seed-{unit}/checkpoint.json", spec.epochs),
        ),
        Stage(
            "analysis",
            "analyses",
            AnalysisSpec,
            "{results}/analyses/{slug}",
            lambda spec, unit, kept: ["analysis.json"],
            _for_analysis,
            lambda spec: "hald.analysis.run:make",
            parts=_parts_of_analysis,
        ),
        Stage(
            "table",
            "tables",
            TableSpec,
            "{results}/tables",
            lambda spec, unit, kept: [f".meaning/{spec.id}.json", *(f"{spec.id}.{suffix}" for suffix in FORMATS)],
            _for_table,
            lambda spec: "hald.report.render:make",
            parts=lambda spec: ("tables",),
            timed=False,
            fixed_name=True,
        ),
        Stage(
            "figure",
            "figures",
            FigureSpec,
            "{results}/figures",
            lambda spec, unit, kept: [f".meaning/{spec.id}.json", *(f"{spec.id}.{suffix}" for suffix in DRAWN)],
            _for_figure,
            lambda spec: "hald.report.figure:make",
            parts=lambda spec: (f"figure.{spec.kind}",),
            timed=False,
            fixed_name=True,
        ),
        Stage(
            "preview",
            "previews",
            PreviewSpec,
            "{results}/figures/previews",
            lambda spec, unit, kept: [f"{spec.slug}.png"],
            lambda spec: {"images": [Need("synthesize", spec.images)]},
            lambda spec: "hald.synthesis.preview:make",
            timed=False,
        ),
    )
}
