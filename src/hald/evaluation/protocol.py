"""An evaluation of the config at one (dataset, student, IPC, SLC): phases, loss and rates of a run."""

from dataclasses import dataclass
from typing import Any

from hald.config.published import Published, Setting
from hald.errors import UserError
from hald.evaluation.settings import Adaptive, Alternating, Evaluation, Fixed
from hald.evaluation.spec import AdaptiveSpec, LossSpec, Phase

SOFT_ALONE = ("loss", "temperature", "kd_scale", "sampling")  # settings of soft phases
LENGTHS = ("hard_epochs", "first_epochs", "last_epochs")
PLAIN = ("weight_decay", "sampling", "top_k", "precision", "compile")


@dataclass(frozen=True)
class Where:
    """What published settings depend on."""

    dataset: str
    arch: str
    ipc: int
    slc: int
    per_image: float  # labels that are stored of each image at that SLC


def protocol(evaluation: Evaluation, epochs: int, where: Where, published: Published) -> dict[str, Any]:
    """The fields of a RunSpec that its evaluation decides; `epochs` is the experiment's own number of them."""
    epochs = evaluation.epochs or epochs
    rates = {
        name: _chosen(getattr(evaluation, name), published.rate(name, where.dataset, where.arch, where.ipc))
        for name in ("lr", "eta")
    }
    hard = _hard_epochs(evaluation, epochs, where, published)
    origin = {name: setting.origin for name, setting in rates.items()}
    if "-" in evaluation.order.name:
        origin["hard_epochs"] = hard.origin
    if evaluation.label_uses and hard.value == 0:  # labels enough for all epochs
        evaluation = evaluation.model_copy(update={"order": Fixed(name="soft")})
    phases = phases_of(evaluation, epochs, int(hard.value))
    has_soft, has_hard = (any(phase.kind == kind for phase in phases) for kind in ("soft", "hard"))
    if not has_soft:  # what a training does not use has one value, so that the same training has one key
        evaluation = evaluation.model_copy(update={name: getattr(Evaluation(), name) for name in SOFT_ALONE})
    return {
        "stages": phases,
        "epochs": epochs,
        "adaptive": _adaptive(evaluation.order, epochs, where) if isinstance(evaluation.order, Adaptive) else None,
        "loss": LossSpec(evaluation.loss.name, evaluation.loss.options(evaluation)),
        "origin": origin,
        "handover": evaluation.handover if len(phases) > 1 else "carry",
        "smoothing": evaluation.smoothing if has_hard else 0.0,
        "hard_temperature": _temperature(evaluation) if has_hard else 1.0,
        **{name: setting.value for name, setting in rates.items()},
        **{name: getattr(evaluation, name) for name in PLAIN},
    }


def uses_labels(decided: dict[str, Any]) -> bool:
    """Whether a training looks at soft labels: in a soft phase, or for the temperature of its hard one."""
    return any(phase.kind == "soft" for phase in decided["stages"]) or decided["hard_temperature"] is None


def _temperature(evaluation: Evaluation) -> float | None:
    return None if isinstance(evaluation.hard_temperature, str) else evaluation.hard_temperature


def _chosen(value: float | None, published: Setting) -> Setting:
    """The experiment's own value where it gives one; it keeps the published value's origin if it is the same."""
    if value is None or value == published.value:
        return published
    return Setting(value, "experiment")


def _hard_epochs(evaluation: Evaluation, epochs: int, where: Where, published: Published) -> Setting:
    kinds = evaluation.order.name.split("-")
    usual = Setting(epochs if kinds == ["hard"] else 0, "recommended")
    if len(kinds) > 1:
        usual = published.hard_epochs(where.dataset, where.slc, epochs)
    asked = evaluation.hard_epochs
    if evaluation.label_uses:
        if asked is not None or len(kinds) < 2:
            raise UserError(
                "label_uses decides how many epochs of a mixed order are hard: leave hard_epochs empty, and set "
                "e.g. order: soft-hard-soft"
            )
        soft = round(evaluation.label_uses * where.per_image)
        return Setting(max(epochs - max(soft, kinds.count("soft")), 0), "experiment")
    return _chosen(_at_slc(asked, where.slc) if isinstance(asked, dict) else asked, usual)


def _at_slc(value: dict[int, int], slc: int) -> int:
    """The entry at or below an SLC, or the lowest one."""
    if not value:
        raise UserError("a map from SLC to epochs needs at least one entry, e.g. {10: 150}")
    return value[max((known for known in value if known <= slc), default=min(value))]


def phases_of(evaluation: Evaluation, epochs: int, hard: int) -> tuple[Phase, ...]:
    """The phases of a training. Soft-hard-soft: [soft // 2, hard, soft - soft // 2] (paper)."""
    order = evaluation.order
    if not isinstance(order, Fixed):
        _refuse_lengths(evaluation)
    if isinstance(order, Adaptive):
        return tuple(Phase(kind, None) for kind in ("soft", "hard", "soft"))
    if isinstance(order, Alternating):
        return _alternating(order, epochs)
    kinds = order.name.split("-")
    soft = epochs - hard
    if (hard > 0) != ("hard" in kinds) or (soft > 0) != ("soft" in kinds):
        raise UserError(
            f"order '{order.name}' does not go with {epochs} epochs of which {hard} are hard; "
            f"set hard_epochs between 1 and {epochs - 1} for mixed orders, and leave it empty for 'soft' and 'hard'"
        )
    lengths = [{"soft": soft, "hard": hard}[kind] for kind in kinds]
    if kinds[0] == kinds[-1] and len(kinds) > 1:
        lengths[0], lengths[-1] = _parts(evaluation, lengths[0])
    elif evaluation.first_epochs or evaluation.last_epochs:
        raise UserError(f"order '{order.name}' has each kind of stage once: leave first_epochs and last_epochs empty")
    return tuple(Phase(kind, length) for kind, length in zip(kinds, lengths, strict=True))


def _refuse_lengths(evaluation: Evaluation) -> None:
    """Of an order that decides itself how long its phases are."""
    given = [name for name in LENGTHS if getattr(evaluation, name) is not None]
    if given:
        raise UserError(
            f"how long stages are follows from `order: {evaluation.order.name}`: leave {' and '.join(given)} empty"
        )


def _parts(evaluation: Evaluation, together: int) -> tuple[int, int]:
    """Lengths of the first and the last phase, which share `together` epochs."""
    first, last = evaluation.first_epochs, evaluation.last_epochs
    first = first if first is not None else together - last if last is not None else together // 2
    last = together - first if last is None else last
    if first + last != together or first < 1 or last < 1:
        kind = evaluation.order.name.split("-")[0]
        raise UserError(
            f"stage lengths do not add up: first {first} and last {last} epochs must share the {together} {kind} "
            f"epochs of order '{evaluation.order.name}', one each at least; change first_epochs, last_epochs or "
            f"hard_epochs"
        )
    return first, last


def _alternating(order: Alternating, epochs: int) -> tuple[Phase, ...]:
    """Soft and hard in turn, the last stretch cut short where it must be."""
    kinds = ("soft", "hard") if order.first == "soft" else ("hard", "soft")
    starts = range(0, epochs, order.every)
    return tuple(Phase(kinds[i % 2], min(order.every, epochs - start)) for i, start in enumerate(starts))


def _adaptive(settings: Adaptive, epochs: int, where: Where) -> AdaptiveSpec:
    if 3 * settings.shortest > epochs:
        raise UserError(
            f"order 'adaptive' has three stages of at least {settings.shortest} epochs, the training has {epochs}; "
            f"lower `shortest`: order: {{name: adaptive, shortest: ...}}"
        )
    if settings.held_out >= where.ipc:
        raise UserError(f"order 'adaptive': held_out {settings.held_out} leaves nothing to train on at IPC {where.ipc}")
    return AdaptiveSpec(**settings.model_dump(exclude={"name"}))
