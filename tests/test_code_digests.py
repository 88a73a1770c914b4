"""Code digests: which module belongs to which stage, and what counts as a change."""

import ast
import functools

import pytest

from hald.code_digests import ENTRY, NUMBERLESS, closure, code_digests, read_sources

ALL = frozenset(ENTRY)
DATASETS = frozenset(stage for stage in ENTRY if stage.startswith("dataset."))
SETS = frozenset(stage for stage in ENTRY if stage.startswith("synthesis."))
RECOVER = frozenset({"recover.sre2l", "recover.lpld", "recover.fadrm"})
UNITS = RECOVER | {"ranking", "statistics"}
SYNTHESIS = SETS | UNITS
RANKED = frozenset({"ranking", "recover.sre2l", "recover.fadrm", "synthesis.rded", "synthesis.patches"})
ANALYSIS = frozenset({"analysis"})
TRAINING = ANALYSIS | {"evaluate"}  # analyses look at students, and train some
NETWORK = SYNTHESIS | TRAINING | {"squeeze", "relabel"}
COMPUTING = NETWORK
LABELS = TRAINING | {"relabel"}
SHOWN = frozenset({"tables", "figures"})
FIGURES = frozenset({"figures"})
NONE: frozenset[str] = frozenset()

# For every module, the stages whose results it can change. A new module has to be entered here.
STAGES: dict[str, frozenset[str]] = {
    "hald": ALL,
    "hald.analysis": ANALYSIS,
    "hald.analysis.consistency": ANALYSIS,
    "hald.analysis.crops": ANALYSIS,
    "hald.analysis.drift": ANALYSIS,
    "hald.analysis.embedding": ANALYSIS,
    "hald.analysis.gradients": ANALYSIS,
    "hald.analysis.jitter": ANALYSIS,
    "hald.analysis.kinds": ANALYSIS,
    "hald.analysis.lab": ANALYSIS,
    "hald.analysis.landscape": ANALYSIS,
    "hald.analysis.lvsd": ANALYSIS,
    "hald.analysis.probe": ANALYSIS,
    "hald.analysis.run": ANALYSIS,
    "hald.analysis.stored": ANALYSIS,
    "hald.analysis.theory": ANALYSIS,
    "hald.analysis.updates": ANALYSIS,
    "hald.profile": NONE,
    "hald.records": NONE,
    "hald.bless": NONE,
    "hald.checkpoint": frozenset({"squeeze"}) | TRAINING,
    "hald.cli": NONE,
    "hald.data": DATASETS | SYNTHESIS | TRAINING | {"squeeze"},
    "hald.data.crops": RANKED | {"squeeze", "statistics", "recover.lpld"},
    "hald.data.decode": DATASETS | SYNTHESIS | TRAINING | {"squeeze"},
    "hald.data.prepare": DATASETS,
    "hald.data.preflight": NONE,
    "hald.data.raw": DATASETS | {"synthesis.external"},
    "hald.data.reader": SYNTHESIS | TRAINING | {"squeeze"},
    "hald.data.sources": NONE,  # empty: its readers are entries of their own
    "hald.data.sources.sklearn_digits": frozenset({"dataset.sklearn_digits"}),
    "hald.data.sources.torchvision": frozenset({"dataset.torchvision"}),
    "hald.data.sources.imagefolder": frozenset({"dataset.imagefolder"}),
    "hald.data.sources.parquet": frozenset({"dataset.parquet"}),
    "hald.data.sources.tiny_imagenet": frozenset({"dataset.tiny_imagenet"}),
    "hald.device": COMPUTING,
    "hald.draws": ALL - SHOWN,
    "hald.figures": FIGURES,
    "hald.labels": LABELS,
    "hald.labels.codec": LABELS,
    "hald.labels.command": NONE,
    "hald.labels.exchange": NONE,
    "hald.labels.gc": NONE,
    "hald.labels.imagefolder": NONE,
    "hald.labels.imported": NONE,
    "hald.labels.info": NONE,
    "hald.labels.layout": LABELS,
    "hald.labels.relabel": frozenset({"relabel"}),
    "hald.labels.store": LABELS,
    "hald.labels.verify": NONE,
    "hald.measure": frozenset({"squeeze"}) | TRAINING,
    "hald.models": NETWORK,
    "hald.models.bn": ANALYSIS | {"relabel"},
    "hald.models.build": NETWORK,
    "hald.models.compact": NETWORK,
    "hald.models.layout": NETWORK,
    "hald.models.small": NETWORK,
    "hald.models.weights": NETWORK,
    "hald.plan": NONE,
    "hald.plan.activity": NONE,
    "hald.plan.arithmetic": NONE,
    "hald.plan.block_sizes": NONE,
    "hald.plan.blocks": NONE,
    "hald.plan.disk": NONE,
    "hald.plan.edges": NONE,
    "hald.plan.graph": NONE,
    "hald.plan.rates": NONE,
    "hald.plan.stage": NONE,
    "hald.plan.stages": NONE,
    "hald.plan.build": NONE,
    "hald.jobs": ALL,
    "hald.weights_download": NONE,
    "hald.plan.command": NONE,
    "hald.plan.config": NONE,
    "hald.plan.images": NONE,
    "hald.plan.grids": NONE,
    "hald.plan.ledger": NONE,
    "hald.plan.model": NONE,
    "hald.plan.outcome_settings": NONE,
    "hald.plan.outcomes": NONE,
    "hald.plan.paper": NONE,
    "hald.plan.protocol": NONE,
    "hald.plan.published": NONE,
    "hald.plan.schema": NONE,
    "hald.plan.settings": NONE,
    "hald.plan.sharing": NONE,
    "hald.plan.status": NONE,
    "hald.plan.summary": NONE,
    "hald.plan.training_settings": NONE,
    "hald.plots": FIGURES,
    "hald.plots.accuracy": FIGURES,
    "hald.plots.analysis": FIGURES,
    "hald.plots.drift": FIGURES,
    "hald.plots.style": FIGURES,
    "hald.slurm_plugin": NONE,
    "hald.source_changes": NONE,
    "hald.specs": ALL,
    "hald.specs.analysis": ANALYSIS,
    "hald.specs.base": COMPUTING,
    "hald.specs.dataset": DATASETS | {"synthesis.external"},
    "hald.specs.figure": FIGURES,
    "hald.specs.images": SYNTHESIS,
    "hald.specs.labels": frozenset({"relabel"}),
    "hald.specs.run": TRAINING,
    "hald.specs.table": SHOWN,
    "hald.specs.teacher": frozenset({"squeeze"}),
    "hald.squeeze": frozenset({"squeeze"}),
    "hald.synthesis": SYNTHESIS | {"relabel"},
    "hald.synthesis.assemble": SETS,
    "hald.synthesis.build": SETS,
    "hald.synthesis.collect": frozenset({"synthesis.sre2l", "synthesis.lpld", "synthesis.fadrm"}),
    "hald.synthesis.command": NONE,
    "hald.synthesis.exchange": NONE,
    "hald.synthesis.external": frozenset({"synthesis.external"}),
    "hald.synthesis.fadrm": frozenset({"recover.fadrm"}),
    "hald.synthesis.folder": frozenset({"synthesis.external"}),
    "hald.synthesis.grade": SETS,
    "hald.synthesis.imageset": SETS | {"relabel"},
    "hald.synthesis.jitter": RECOVER,
    "hald.synthesis.lpld": frozenset({"recover.lpld"}),
    "hald.synthesis.matching": RECOVER | {"statistics"},
    "hald.synthesis.mosaic": RANKED - {"ranking"},
    "hald.synthesis.optimise": RECOVER,
    "hald.synthesis.patch_start": frozenset({"recover.sre2l", "recover.fadrm"}),
    "hald.synthesis.patches": frozenset({"synthesis.patches"}),
    "hald.synthesis.ranking": RANKED,
    "hald.synthesis.rded": frozenset({"synthesis.rded"}),
    "hald.synthesis.real": frozenset({"synthesis.real"}),
    "hald.synthesis.recover": RECOVER,
    "hald.synthesis.sre2l": frozenset({"recover.sre2l"}),
    "hald.synthesis.statistics": frozenset({"statistics", "recover.lpld"}),
    "hald.synthesis.units": SYNTHESIS - {"statistics", "synthesis.real", "synthesis.external"},
    "hald.tables": SHOWN,
    "hald.teacher": SYNTHESIS | ANALYSIS | {"relabel"},
    "hald.train": TRAINING,
    "hald.train.batches": TRAINING,
    "hald.train.command": NONE,
    "hald.train.hard": TRAINING,
    "hald.train.losses": TRAINING,
    "hald.train.pool": TRAINING,
    "hald.train.run": TRAINING,
    "hald.train.schedule": TRAINING,
    "hald.train.step": TRAINING,
    "hald.views": NETWORK,
} | dict.fromkeys(NUMBERLESS, NONE)


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


def test_every_module_is_accounted_for() -> None:
    assert sorted(STAGES) == sorted(read_sources())


def test_a_stage_is_what_its_modules_import() -> None:
    sources = read_sources()
    assert all(closure(entries, imports()) == closure(entries, sources) for entries in ENTRY.values())


@pytest.mark.parametrize("name", sorted(STAGES))
def test_editing_a_module_changes_exactly_its_stages(name: str) -> None:
    assert changed_stages(imports() | {name: f"{imports()[name]}\nADDED = 1\n"}, imports()) == STAGES[name]


def test_words_and_layout_do_not_count() -> None:
    sources = read_sources()
    for name, text in sources.items():
        edited = text.replace('"""', '"""Other words. ', 1) if text.startswith('"""') else f'"""New words."""\n{text}'
        sources[name] = edited + "\n\n\n# a comment\n"
    sources["hald.views"] = sources["hald.views"].replace("    s = settings\n", "    s  =  settings\n")
    sources["hald.specs.teacher"] = sources["hald.specs.teacher"].replace('"Training epochs"', '"How long"')
    sources["hald.teacher"] = sources["hald.teacher"].replace("its labels would be worth little", "it knows too little")
    assert changed_stages(sources) == set()


def test_a_changed_number_counts() -> None:
    sources = read_sources()
    sources["hald.labels.codec"] = sources["hald.labels.codec"].replace('"u8": 208', '"u8": 207')
    assert changed_stages(sources) == LABELS


def test_imports_inside_functions_count() -> None:
    sources = read_sources()
    sources["hald.tables"] += "\ndef late():\n    from hald import views\n    return views\n"
    assert "hald.views" in closure(("hald.tables",), sources)
