"""Adopt a store that other code made: the same labels under the key that today's plan asks for, knowingly.

The old store stays as it is. The new one shares its immutable files by hard links, has a header of its own that says
who made the labels, and grows on its own.
"""

import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hald.claim import user_name
from hald.errors import UserError
from hald.files import aside, explained, link_file, publish_dir, read_json, write_json
from hald.labels.layout import Header
from hald.labels.store import GEOMETRY, LabelStore
from hald.labels.verify import verify_store
from hald.plan import Plan
from hald.specs.base import to_dict
from hald.synthesis.imageset import open_set

KEYS = ("images", "teachers")  # fields of a spec that are keys: what they stand for is compared instead


def adopt(source: Path, plan: Plan, key: str | None = None) -> Path:
    """Publish the store `source` under the key of `plan` that it fits; `key` says which if there are several."""
    store = LabelStore(source)
    header = store.header
    if header.imported:
        raise UserError(f"{source} was imported: nobody knows how its labels were made, so no plan can ask for them")
    if header.key in plan.labels:
        raise UserError(
            f"{source} has a key of this plan already; there is nothing to adopt, only to put in its place: "
            f"{plan.store_dir(header.key)}"
        )
    chosen = _fitting(source, header, plan, key)
    target = plan.store_dir(chosen)
    if (target / "zarr.json").exists():
        raise UserError(f"{target} exists already, with {len(LabelStore(target).views())} views; nothing was adopted")
    for problem in verify_store(source):
        raise UserError(f"{source} is not whole, so it is not adopted. {problem}")
    adopted = replace(
        header,
        key=chosen,
        code=plan.code["relabel"],
        spec=to_dict(plan.labels[chosen]),
        adopted=[*header.adopted, _record(store)],
    )
    if not _publish(store, adopted, target):
        raise UserError(f"{target} was made by another process meanwhile; nothing was adopted")
    return target


def _fitting(source: Path, header: Header, plan: Plan, key: str | None) -> str:
    """The one key of the plan whose labels these are."""
    if key is not None and key not in plan.labels:
        raise UserError(f"the plan has no label store with key {key}; it has {', '.join(plan.labels) or 'none'}")
    different = {name: differences(header, plan, name) for name in ([key] if key else plan.labels)}
    fitting = [name for name, fields in different.items() if not fields]
    if len(fitting) > 1:
        names = ", ".join(plan.store_dir(name).name for name in fitting)
        raise UserError(f"{source} fits {len(fitting)} stores of the plan: {names}; say which with --as KEY")
    if not fitting:
        nearest = min(different, key=lambda name: (_slug(plan.store_dir(name)) != _slug(source), len(different[name])))
        raise UserError(
            f"{source} fits no label store of the plan. Nearest is {plan.store_dir(nearest).name}, which differs in "
            + "; ".join(different[nearest])
        )
    return fitting[0]


def _slug(store: Path) -> str:
    """A store's readable name: method, IPC and teacher."""
    return store.name.rsplit("_", 1)[0]


def differences(header: Header, plan: Plan, key: str) -> list[str]:
    """What a store has other than the plan asks for under `key`, field by field; keys and code do not count."""
    spec = plan.labels[key]
    wanted, found = to_dict(spec), header.spec
    fields = [
        f"{name} ({_short(found.get(name))} in the store, {_short(wanted.get(name))} in the plan)"
        for name in dict.fromkeys([*wanted, *found])
        if name not in KEYS and (name not in found or name not in wanted or found[name] != wanted[name])
    ]
    fields += [
        f"view setting {name} ({_short(value)} in the store, {_short(wanted[name])} in the plan)"
        for name, value in header.view_settings.items()
        if name in wanted and value != wanted[name]
    ]
    return fields + _images_differ(header, plan, spec.images) + _teachers_differ(header, plan, spec.teachers)


def _short(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _images_differ(header: Header, plan: Plan, key: str) -> list[str]:
    """Pixels, classes and real data, where the plan's image set is there; without it, equal keys are needed."""
    folder = plan.images_dir(key)
    if not (folder / "image_set.json").is_file():
        missing = (
            f"images (set {header.spec['images']} in the store, {key} in the plan; to compare them, make the latter "
        )
        missing += f"with `snakemake --cores all {folder}/image_set.json`)"
        return [] if header.spec["images"] == key else [missing]
    images = open_set(folder)
    pairs = {
        "images (digest of pixels": (header.images_digest[:10], images.digest[:10]),
        "real data (digest": (header.dataset_digest[:10], images.dataset_digest[:10]),
        "classes (in order": (header.classes, images.classes),
    }
    return [f"{name} {a} in the store, {b} in the plan)" for name, (a, b) in pairs.items() if a != b]


def _teachers_differ(header: Header, plan: Plan, keys: tuple[str, ...]) -> list[str]:
    """Weights, where the plan's teachers are there; without them, equal keys are needed."""
    if len(keys) != len(header.teachers):
        return [f"teachers ({len(header.teachers)} in the store, {len(keys)} in the plan)"]
    fields = []
    for number, (key, old) in enumerate(zip(keys, header.spec["teachers"], strict=True)):
        record, ours = plan.teacher_dir(key) / "teacher.json", header.teachers[number]["sha256"]
        theirs = read_json(record)["sha256"] if record.is_file() else None
        if theirs is None and key != old:
            fields.append(
                f"teacher {number} ({old} in the store, {key} in the plan; to compare them, make the latter with "
                f"`snakemake --cores all {record}`)"
            )
        elif theirs not in (None, ours):
            fields.append(f"weights of teacher {number} ({ours[:10]} in the store, {theirs[:10]} in the plan)")
    return fields


def _record(store: LabelStore) -> dict[str, Any]:
    """Who made the labels, and who adopts them."""
    header, file = store.header, store.folder / "zarr.json"
    made = time.strftime("%Y-%m-%d", time.localtime(file.stat().st_mtime))
    try:
        owner = file.owner()
    except KeyError:
        owner = str(file.stat().st_uid)
    return {
        "key": header.key,
        "code": header.code,
        "images": header.spec["images"],
        "teachers": header.spec["teachers"],
        "views": len(store.views()),
        "made": made,
        "owner": owner,
        "from": str(store.folder.resolve()),
        "at": time.strftime("%Y-%m-%d"),
        "by": user_name(),
    }


def _publish(store: LabelStore, header: Header, target: Path) -> bool:
    """A store of its own with the marked views, images and teachers of `store` and a new header, in one step."""
    building = aside(target)
    with explained(f"cannot adopt as {target}"):
        try:
            for path in _immutable_files(store):
                copy = building / path.relative_to(store.folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                link_file(path, copy)
            group = read_json(store.folder / "zarr.json")
            write_json(building / "zarr.json", group | {"attributes": asdict(header)})
            return publish_dir(building, target, "zarr.json")
        finally:
            shutil.rmtree(building, ignore_errors=True)


def _immutable_files(store: LabelStore) -> list[Path]:
    """Files that nobody ever writes to again: of marked views, images and teachers, and the arrays' metadata."""
    arrays = (*store.codec.dtypes, *GEOMETRY)
    files = [store.folder / name / "zarr.json" for name in arrays]
    for view in store.views():
        files += [store.file(name, view) for name in arrays] + [store.marker(view)]
    for name in ("images", "teachers"):
        files += sorted(path for path in (store.folder / name).rglob("*") if path.is_file())
    return files
