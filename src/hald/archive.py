"""Results that outlive their folder: tables, figures and compact run records in one file. Documents: hald.document."""

import json
import os
import platform
import re
import time
from collections import Counter, defaultdict
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.files import read_json, write_json, write_text
from hald.plan.model import Plan
from hald.provenance import canonical
from hald.specs.base import from_dict, to_dict
from hald.specs.run import RunSpec

Archive = dict[str, Any]
# What the seeds of a run have in common as a rule (one that was adopted differs), and what is a seed's own.
SHARED = ("adopted", "code", "format", "hard_temperature", "label_bytes", "slc_effective", "spec", "versions")
OWN = ("top1", "top5", "best", "stage_starts")
LINE: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
FORMAT = 2
PARTS = ("tables", "figures", "runs", "analyses", "teachers", "costs")


def collect(plan: Plan, path: Path, command: str) -> str:
    """Put the tables and figures of a plan into an archive, beside those of other plans that are there: what was done.

    A seed that was archived before and is not in the results any more stays, and so does the cost of work that these
    results were spared, also if these tables were made by another command then.
    """
    empty: Archive = {"format": FORMAT, **{part: {} for part in PARTS}}
    archive = read_archive(path) if path.exists() else empty
    records = {key: [s for s in range(plan.seeds[key]) if plan.record(key, s).exists()] for key in plan.runs}
    if not any(records.values()):
        raise UserError(f"no training of this config is finished in {plan.results}: there is nothing to archive")
    replaced = [name for name in plan.tables if name in archive["tables"]]
    commands = {command, *(archive["tables"][name]["command"] for name in replaced)}
    for name, table in plan.tables.items():
        archive["tables"][name] = {"spec": to_dict(table), "command": command}
    for name, figure in plan.figures.items():
        archive["figures"][name] = to_dict(figure)
    for key, seeds in records.items():
        if seeds:
            archive["runs"][key] = _entry(
                plan.slugs[key], _archived(archive, key) | _finished(plan, key, seeds, archive)
            )
    for key in plan.analyses:
        if plan.analysis_file(key).exists():
            found = read_json(plan.analysis_file(key))
            before = archive["analyses"].get(key, {})
            made = before["made"] if _without_made(before) == found else _made(plan.analysis_file(key))
            archive["analyses"][key] = found | {"made": made}
    for key, teacher in plan.teachers.items():
        found_teacher = plan.teacher_dir(key) / "teacher.json"
        if found_teacher.exists():
            facts = {name: read_json(found_teacher)[name] for name in ("arch", "top1", "top5")}
            archive["teachers"][plan.slugs[key]] = facts | {"floor": plan.floors[key], "spec": to_dict(teacher)}
    known = [costs(plan), *(archive["costs"].get(earlier, {}) for earlier in commands)]
    kinds = sorted({kind for found in known for kind in found})
    archive["costs"][command] = {kind: max(found.get(kind, 0) for found in known) for kind in kinds}
    _drop_unused(archive)
    write_text(path, _text(archive))
    done, wanted = sum(map(len, records.values())), sum(plan.seeds.values())
    again = f", {len(replaced)} of them in place of older ones" if replaced else ""
    return f"{path}: {len(plan.tables)} tables{again}; {done} of {wanted} trainings are there"


def read_archive(path: Path) -> Archive:
    """An archive that `collect` wrote."""
    archive: Archive = read_json(path)
    if not isinstance(archive, dict) or archive.get("format") != FORMAT or not all(part in archive for part in PARTS):
        raise UserError(f"{path} is not an archive of results; `hald archive` makes one in a file of its own")
    return archive


def _text(archive: Archive) -> str:
    """JSON with one entry per line, so that a run that changes is a line that changes."""
    parts = []
    for part in PARTS:
        lines = [f"{json.dumps(key)}:{json.dumps(value, **LINE)}" for key, value in sorted(archive[part].items())]
        parts.append(f'"{part}":{{\n' + ",\n".join(lines) + "}")
    return f'{{"format":{archive["format"]},\n' + ",\n".join(parts) + "}\n"


def _finished(plan: Plan, key: str, seeds: list[int], archive: Archive) -> dict[str, dict[str, Any]]:
    """Records of a run by seed, each with its timing, and when and where it was made."""
    found = {}
    for seed in seeds:
        path = plan.record(key, seed)
        record, timing = read_json(path), path.with_suffix(".timing.json")
        # one that was restored was made when the archive says; there an adopted one may still have its old key
        known = [_archived(archive, name).get(str(seed), {}) for name in (key, record.get("adopted", key))]
        made = [old["made"] for old in known if all(old.get(name) == record[name] for name in (*OWN, "curve"))]
        facts = {"timing": read_json(timing) if timing.exists() else None, "made": made[0] if made else _made(path)}
        found[str(seed)] = record | facts
    return found


def _archived(archive: Archive, key: str) -> dict[str, dict[str, Any]]:
    """The same of an archived run."""
    seeds = archive["runs"].get(key, {"seeds": {}})["seeds"]
    return {
        seed: whole_record(archive, key, seed) | {name: own[name] for name in ("timing", "made")}
        for seed, own in seeds.items()
    }


def _made(path: Path) -> list[str]:
    """Day and machine of a file that was written here."""
    return [time.strftime("%Y-%m-%d", time.localtime(path.stat().st_mtime)), machine()]


def _without_made(analysis: dict[str, Any]) -> dict[str, Any]:
    """An archived analysis as it was written."""
    return {name: value for name, value in analysis.items() if name != "made"}


def _entry(name: str, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A run as it is archived: what its seeds share once, of each seed its own, curves as columns."""
    first = records[min(records)]
    facts = {name: first[name] for name in SHARED if name in first}
    seeds = {}
    for seed, record in records.items():
        curve = {name: [point[name] for point in record["curve"]] for name in record["curve"][0]}
        seeds[seed] = {name: record[name] for name in (*OWN, "timing", "made")} | {"curve": curve}
        if differs := {name: record.get(name) for name in SHARED if record.get(name) != facts.get(name)}:
            seeds[seed]["differs"] = differs
    return {"name": name, **facts, "seeds": seeds}


def costs(plan: Plan) -> dict[str, float]:
    """Hours of every kind of work behind a plan, as its jobs recorded them."""
    files = [
        *(path for key in plan.labels for path in (plan.store_dir(key) / "timings").glob("*.json")),
        *(path for key in (*plan.rankings, *plan.units) for path in (plan.units_dir(key) / "timings").glob("*.json")),
        *(plan.teacher_dir(key) / "timing.json" for key in plan.teachers),
        *(plan.statistics_dir(key) / "timing.json" for key in plan.statistics),
        *(plan.images_dir(key) / "timing.json" for key in plan.images),
        *(plan.analysis_file(key).with_suffix(".timing.json") for key in plan.analyses),
    ]
    hours: Counter[str] = Counter()
    for record in (read_json(path) for path in files if path.exists()):
        hours[record["kind"]] += record["seconds"] / 3600
    for key, spec in plan.runs.items():
        kind, work = spec.effort
        for path in plan.run_dir(key).glob("*.timing.json"):
            record = read_json(path)  # of its last leg, where a training was interrupted: in proportion
            hours[kind] += record["seconds"] / 3600 * work / record["work"]
    return {kind: round(value, 3) for kind, value in sorted(hours.items())}


def machine() -> str:
    """This machine in a few words."""
    info = Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}"


def _drop_unused(archive: Archive) -> None:
    """Forget runs and analyses that no table or figure shows any more, and commands that made none of them."""
    tables = [entry["spec"] for entry in archive["tables"].values()]
    tables += [figure["table"] for figure in archive["figures"].values() if figure["table"]]
    used = {cell["run"] for table in tables for cell in table["cells"]}
    used |= {key for figure in archive["figures"].values() for key in figure["analyses"]}
    for part in ("runs", "analyses"):
        archive[part] = {key: value for key, value in archive[part].items() if key in used}
    made = {entry["command"] for entry in archive["tables"].values()}
    archive["costs"] = {command: spent for command, spent in archive["costs"].items() if command in made}


def unpack(archive: Archive, folder: Path) -> dict[str, Path]:
    """Write records and analyses as the workflow keeps them: a folder or file for each key."""
    places = {}
    for key, run in archive["runs"].items():
        places[key] = folder / "runs" / run["name"]
        for seed in run["seeds"]:
            write_json(places[key] / f"seed-{seed}.json", whole_record(archive, key, seed))
    for key, found in archive["analyses"].items():
        places[key] = folder / "analyses" / f"{key}.json"
        write_json(places[key], _without_made(found))
    return places


def whole_record(archive: Archive, key: str, seed: str) -> dict[str, Any]:
    """A training's record as it was before `compact`."""
    run = archive["runs"][key]
    own = run["seeds"][seed]
    curve = [dict(zip(own["curve"], values, strict=True)) for values in zip(*own["curve"].values(), strict=True)]
    shared = {name: run[name] for name in SHARED if name in run} | own.get("differs", {})
    shared = {name: value for name, value in shared.items() if value is not None}
    return shared | {name: own[name] for name in OWN} | {"key": key, "seed": int(seed), "curve": curve}


def restore(plan: Plan, path: Path, adopt: bool = False) -> str:
    """Put archived records and analyses of a plan back into its results, where they are missing: what was done.

    A study goes on from there on another machine. Keys carry parameters and code, so only what would come out again
    is taken; a student that an analysis wants is trained again. With `adopt` trainings that other code made with the
    same settings are taken too; their records say so.
    """
    archive = read_archive(path)
    sources = {key: [key] for key in plan.runs if key in archive["runs"]}
    for key, others in _by_settings(plan, archive).items() if adopt else ():
        sources[key] = [*sources.get(key, []), *others]
    found = 0
    for key, keys in sources.items():
        for seed in range(plan.seeds[key]):
            source = next((source for source in keys if str(seed) in archive["runs"][source]["seeds"]), None)
            if source and not plan.record(key, seed).exists():
                _restore_seed(archive, source, str(seed), plan.record(key, seed), key)
                found += 1
    for key in plan.analyses.keys() & archive["analyses"].keys():
        if not plan.analysis_file(key).exists():
            write_json(plan.analysis_file(key), _without_made(archive["analyses"][key]))
    there = sum(plan.record(key, seed).exists() for key in plan.runs for seed in range(plan.seeds[key]))
    return f"{plan.results}: {found} records restored; {there} of {sum(plan.seeds.values())} trainings are there"


def _restore_seed(archive: Archive, source: str, seed: str, record: Path, key: str) -> None:
    """Write one record and its timing; under another key it says whose it was."""
    timing = archive["runs"][source]["seeds"][seed]["timing"]
    if timing:
        write_json(record.with_suffix(".timing.json"), timing)
    adopted = {} if source == key else {"key": key, "adopted": source}
    write_json(record, whole_record(archive, source, seed) | adopted)


def _by_settings(plan: Plan, archive: Archive) -> dict[str, list[str]]:
    """Archived runs with the settings of a planned one, whatever code made them: planned key -> archived keys."""
    archived = defaultdict(list)
    for key, run in archive["runs"].items():
        archived[_settings(run["spec"])].append(key)
    planned = {key: _settings(to_dict(spec)) for key, spec in plan.runs.items()}
    return {key: archived[settings] for key, settings in planned.items() if settings in archived}


def _settings(spec: dict[str, Any]) -> str:
    """Everything that decides a training, as text: the keys of dataset and labels too.

    A setting of the run itself that came later than the record has its default, and 1 is 1.0.
    """
    known = {field.name: spec[field.name] for field in fields(RunSpec) if field.name in spec}
    if not all(field.name in known or field.default is not MISSING for field in fields(RunSpec)):
        return canonical(known)
    whole = to_dict(from_dict(RunSpec, known))
    return canonical({name: value for name, value in whole.items() if name not in RunSpec.NOT_IDENTITY})
