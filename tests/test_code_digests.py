"""Code digests: which module belongs to which stage, and what counts as a change."""

import ast
import functools

import pytest

from hald.code_digests import FIXED, PLUGINS, closure, code_digests, entry_modules, is_numberless, read_sources

ALL = frozenset(entry_modules())
BUILDERS = frozenset(part for part in ALL if part.startswith("network."))
DATASETS = frozenset(part for part in ALL if part.startswith("dataset."))
OPTIMISED = frozenset({"method.sre2l", "method.lpld", "method.fadrm"})
SETS = frozenset({"from_units", "method.rded", "method.patches", "method.real", "method.external"})
SYNTHESIS = SETS | OPTIMISED | {"ranking", "statistics"}
ANALYSIS = frozenset(part for part in ALL if part.startswith("analysis."))
CONSISTENCIES = {f"analysis.{what}_consistency" for what in ("crop", "reference", "teacher")}
TRAINING = ANALYSIS | {"evaluate"}
NETWORK = SYNTHESIS | TRAINING | {"squeeze", "relabel"}
LABELS = TRAINING | {"relabel"}
FIGURES = frozenset(part for part in ALL if part.startswith("figure."))
SHOWN = FIGURES | {"tables"}
CODECS, LOSSES, SCHEDULES = (
    frozenset(part for part in ALL if part.startswith(kind)) for kind in ("codec.", "loss.", "schedule.")
)


def changed_stages(sources: dict[str, str], before: dict[str, str] | None = None) -> set[str]:
    old, new = code_digests(before), code_digests(sources)
    return {stage for stage in old if old[stage] != new[stage]}


@functools.cache
def imports() -> dict[str, str]:
    """Every module without anything but its imports: it belongs to the same stages, and digests of it are quick."""
    found = {}
    for name, text in read_sources().items():
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
        found[name] = "\n".join([f"NAME = {name!r}", *map(ast.unparse, nodes)])
    return found


def test_a_stage_is_what_its_modules_import() -> None:
    sources = read_sources()
    assert all(closure(entries, imports()) == closure(entries, sources) for entries in entry_modules().values())


# A module of every kind, and the stages whose results it can change.
REACH = {
    "hald.analysis.consistency": CONSISTENCIES,
    "hald.analysis.kinds.lvsd.compute": {"analysis.lvsd"},
    "hald.analysis.kinds.lvsd.figure": {"figure.lvsd"},
    "hald.analysis.kinds.theory.compute": {"analysis.theory"},
    "hald.analysis.kinds.theory.figure": {"figure.theory", "figure.variance"},
    "hald.analysis.run": ANALYSIS,
    "hald.analysis.subjects": ANALYSIS,
    "hald.datasets.decode": DATASETS | SYNTHESIS | TRAINING | {"squeeze"},
    "hald.datasets.sources.parquet": {"dataset.parquet"},
    "hald.evaluation.batches": {"evaluate", "analysis.gradients", "analysis.updates"} | LOSSES | SCHEDULES,
    "hald.evaluation.class_labels": {"loss.joint", "loss.gift"},
    "hald.evaluation.divergence": {"analysis.gradients", "loss.kl", "loss.joint", "loss.lpqld"},
    "hald.evaluation.losses.joint": {"loss.joint"},
    "hald.evaluation.losses.lpqld": {"loss.lpqld"},
    "hald.evaluation.schedules.adaptive": {"schedule.adaptive"},
    "hald.evaluation.schedules.fixed": {"schedule.fixed"},
    "hald.labels.affine": {"codec.u8", "codec.u4", "codec.u2"},
    "hald.labels.codec": LABELS | CODECS,
    "hald.labels.codecs.u8": {"codec.u8"},
    "hald.labels.relabel": {"relabel"},
    "hald.labels.spec": {"relabel"},
    "hald.networks.build": NETWORK,
    "hald.networks.small.resnet": {"network.resnet"},
    "hald.numerics.random_streams": ALL - SHOWN - BUILDERS - CODECS - LOSSES - SCHEDULES,
    "hald.numerics.views": NETWORK,
    "hald.report.accuracy_over": {f"figure.accuracy_over_{x}" for x in ("slc", "bytes", "steps")},
    "hald.report.figure": FIGURES,
    "hald.report.figures.gain": {"figure.gain"},
    "hald.report.style": FIGURES,
    "hald.squeeze.train": {"squeeze"},
    "hald.squeeze.weights_download": set(),
    "hald.synthesis.class_statistics": {"statistics", "method.lpld"},
    "hald.synthesis.methods.rded.compute": {"method.rded"},
    "hald.synthesis.methods.fadrm.compute": {"method.fadrm"},
}


@pytest.mark.parametrize("name", sorted(REACH))
def test_editing_a_module_changes_exactly_its_stages(name: str) -> None:
    assert changed_stages(imports() | {name: f"{imports()[name]}\nADDED = 1\n"}, imports()) == REACH[name]


def test_code_that_decides_or_runs_jobs_changes_no_stage() -> None:
    silent = [name for name in imports() if is_numberless(name)]
    assert {"hald", "hald.keys", "hald.cli.main", "hald.jobs.job", "hald.plan.graph", "hald.pipeline"} <= set(silent)
    assert changed_stages(imports() | {name: f"{imports()[name]}\nADDED = 1\n" for name in silent}, imports()) == set()


def test_words_and_layout_do_not_count() -> None:
    sources = read_sources()
    for name, text in sources.items():
        edited = text.replace('"""', '"""Other words. ', 1) if text.startswith('"""') else f'"""New words."""\n{text}'
        sources[name] = edited + "\n\n\n# a comment\n"
    sources["hald.numerics.views"] = sources["hald.numerics.views"].replace(
        "    s = settings\n", "    s  =  settings\n"
    )
    sources["hald.squeeze.spec"] = sources["hald.squeeze.spec"].replace(
        'ge=1, description="Training epochs"', 'ge=2, description="How long"'
    )
    sources["hald.squeeze.teacher"] = sources["hald.squeeze.teacher"].replace(
        "its labels would be worth little", "it knows too little"
    )
    assert changed_stages(sources) == set()


def test_a_changed_number_counts() -> None:
    sources = read_sources()
    sources["hald.labels.codecs.u8"] = sources["hald.labels.codecs.u8"].replace("steps=208", "steps=207")
    assert changed_stages(sources) == {"codec.u8"}


def test_imports_inside_functions_count() -> None:
    sources = read_sources()
    sources["hald.report.render"] += "\ndef late():\n    from hald.numerics import views\n    return views\n"
    assert "hald.numerics.views" in closure(("hald.report.render",), sources)


@pytest.mark.parametrize("folder", [folder for folder, _ in PLUGINS.values()])
def test_nobody_imports_a_plug_in_by_name_but_its_own_folder(folder: str) -> None:
    """Otherwise it would be behind the keys of those that do not use it."""
    for entries in FIXED.values():
        assert not [name for name in closure(entries, imports()) if name.startswith(f"{folder}.")]


def test_a_kind_of_analysis_that_is_added_changes_no_other() -> None:
    sources = imports() | {f"hald.analysis.kinds.new{half}": "ADDED = 1" for half in ("", ".compute", ".figure")}
    assert entry_modules(sources).keys() - ALL == {"analysis.new", "figure.new"}
    assert changed_stages(sources, imports()) == set()
