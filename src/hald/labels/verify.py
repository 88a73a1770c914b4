"""Verify a store: every hash of every view, the header against the arrays, and on request the labels themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hald.errors import UserError
from hald.files import file_digest, read_json
from hald.keys import key_of
from hald.labels.relabel import Labeller
from hald.labels.released_export import require_cut_order
from hald.labels.spec import LabelsSpec
from hald.labels.store import GEOMETRY, LabelStore
from hald.numerics.random_streams import permutation
from hald.numerics.views import draw_view
from hald.plain import from_dict
from hald.same_origin import require_same_classes

TOLERANCE = 1e-3  # logits; other hardware and library versions round differently


@dataclass(frozen=True)
class Problem:
    """What is wrong, and what to type."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def verify_store(folder: Path, deep: int = 0, device: torch.device | None = None) -> Iterator[Problem]:
    """Everything that is wrong with a store; with `deep`, that many of its views are labelled again and compared.

    A store without teachers (an imported one) cannot be labelled again: `deep` does nothing for it.
    """
    try:
        store = LabelStore(folder)
        require_cut_order(store)
        _check_header(store)
        store.images()
    except UserError as error:
        yield Problem(str(folder), str(error))
        return
    except Exception as error:  # metadata that cannot be read at all
        yield Problem(str(folder), f"its metadata are damaged ({type(error).__name__}: {error})")
        return
    yield from _orphans(store)
    bad = set()
    for view in store.views():
        for problem in _check_view(store, view):
            bad.add(view)
            yield problem
    if deep and store.header.teachers:  # an imported store has none, so nothing to compute again with
        chosen = permutation("verify", 0, 0, len(store.views()))[:deep]
        yield from _relabelled(store, [v for i in chosen if (v := store.views()[int(i)]) not in bad], device)


def _check_header(store: LabelStore) -> None:
    """The header must agree with itself, with the arrays and with the teachers inside the store."""
    header = store.header
    shapes = {name: store.array(name).shape for name in (*store.codec.dtypes, *GEOMETRY)}
    images, batches = shapes["image"][1], shapes["lam"][1]
    if (header.count, header.batches) != (images, batches):
        raise UserError(
            f"label store {store.folder}: the header says {header.count} images in batches of {header.batch}, that is "
            f"{header.batches} batches, but the arrays hold {images} images in {batches} batches"
        )
    if header.teachers and header.key != key_of("relabel", from_dict(LabelsSpec, header.spec), header.code_name):
        raise UserError(f"label store {store.folder}: its settings do not give its key {header.key}; they were changed")
    if header.teachers and (
        header.codec != header.spec["codec"] or header.view_settings["seed"] != header.spec["seed"]
    ):
        raise UserError(f"label store {store.folder}: codec or seed are not those of its settings; they were changed")
    for number in range(len(header.teachers)):
        classes = read_json(store.teacher(number) / "teacher.json")["classes"]
        require_same_classes(header.classes, f"label store {store.folder}", classes, "its teacher", "Remove the store.")


def _orphans(store: LabelStore) -> Iterator[Problem]:
    """Views with data but no marker: a killed writer's, or a lost marker. They are not used."""
    written = {int(path.name) for path in (store.folder / "image" / "c").glob("*")}
    remedy = _remedy(store, "run Snakemake again: it computes those that are needed")
    for view in sorted(written - set(store.views())):
        yield Problem(f"{store.folder} view {view}", f"has data but no marker, so it is not used; {remedy}")


def _remedy(store: LabelStore, usual: str) -> str:
    """What to do about a view; imported labels cannot be computed again."""
    return "import the labels again, into a new store" if store.header.imported else usual


def _check_view(store: LabelStore, view: int) -> Iterator[Problem]:
    """Sizes and hashes of a view's files; the chunk where a damaged one can be told."""
    try:
        marked = store.marked_files(view)
    except UserError as error:
        yield Problem(f"{store.folder} view {view}", str(error))
        return
    remedy = _remedy(store, store.remedy(view))
    for name, entry in marked.items():
        path = store.file(name, view)
        where = f"{store.folder} array {name} view {view}"
        if not path.is_file():
            yield Problem(where, f"{path} is missing; {remedy}")
        elif path.stat().st_size != entry["bytes"]:
            size = path.stat().st_size
            yield Problem(where, f"{path} has {size} bytes instead of {entry['bytes']}; {remedy}")
        elif file_digest(path) != entry["sha256"]:
            yield Problem(where, f"chunk {_bad_chunk(store, name, view)} of {path} is damaged; {remedy}")


def _bad_chunk(store: LabelStore, name: str, view: int) -> str:
    """The first chunk of a view's file that cannot be decoded (`?`: damage between chunks)."""
    array = store.array(name)
    rows = array.chunks[1]
    for number, first in enumerate(range(0, array.shape[1], rows)):
        try:
            array[view, first : first + rows]
        except Exception:  # whatever a codec raises
            return str(number)
    return "?"


def _relabelled(store: LabelStore, views: list[int], device: torch.device | None) -> Iterator[Problem]:
    """Label views again with the store's own teachers and images."""
    labeller = Labeller(store, device or torch.device("cpu"))
    for view in views:
        drawn, stored = draw_view(labeller.settings, view), store.drawn(view)
        for name in ("image", "box", "flip", "partner", "cut"):
            if not np.array_equal(getattr(drawn, name), getattr(stored, name)):
                yield Problem(f"{store.folder} array {name} view {view}", "is not what its seed draws")
        error = worst_error(store, view, torch.from_numpy(labeller.logits(stored)))
        if error > TOLERANCE:
            yield Problem(
                f"{store.folder} view {view}", f"labels differ from the teacher's by {error:.4g} beyond rounding"
            )


def worst_error(store: LabelStore, view: int, logits: torch.Tensor) -> float:
    """Largest difference between stored and given logits beyond half a quantisation step, rows shifted to fit best."""
    rows = {name: torch.from_numpy(array) for name, array in store.rows(view)}
    decoded = store.codec.decode(rows, len(store.header.classes))
    difference = torch.where(torch.isfinite(decoded), decoded - logits, torch.nan)
    middle = (difference.nan_to_num(-torch.inf).amax(1) + difference.nan_to_num(torch.inf).amin(1)) / 2
    error = (difference - middle[:, None]).abs() - store.codec.half_step(rows)
    return float(error.nan_to_num(-torch.inf).max())
