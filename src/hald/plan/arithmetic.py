"""The plan's arithmetic: the part of a store that an SLC means, AdamW's memory, logits that are kept."""

from hald.errors import UserError
from hald.evaluation.settings import Evaluation
from hald.labels.settings import Labels
from hald.labels.spec import LabelsSpec


def pool_size(labels: LabelsSpec, ipc: int, slc: int, rounding: str) -> int:
    """Stored batches that an SLC amounts to: whole views, then whole batches of one more view (or none: `floor`)."""
    views, rest = divmod(slc, ipc)
    more = 0 if rounding == "floor" else rest * labels.classes // labels.batch
    pool = views * labels.batches + more
    if pool == 0:
        raise UserError(
            f"SLC {slc} at IPC {ipc} leaves no whole batch of labels (batch {labels.batch}, {labels.classes} classes); "
            f"ask for SLC >= {ipc}" + (" or slc_rounding: batches" if rounding == "floor" else "")
        )
    return pool


def views_behind(pool: int, batches: int) -> int:
    """Label views that a pool reaches into; one without a pool too, because a store comes to be with its first view."""
    return max(-(-pool // batches), 1)


PRINTED = 37_500  # steps of the shortest training whose settings the paper prints: Tiny-ImageNet at IPC 10


def second_moment(beta2: float | str, steps: int) -> float:
    """AdamW's beta2; `scaled`: its memory 1 / (1 - beta2) is that part of the steps which 0.999 is of PRINTED."""
    if not isinstance(beta2, str):
        return beta2
    return round(min(max(1 - PRINTED * 0.001 / steps, 0.9), 0.999), 5)


TOP_K = 100  # logits that codec topk keeps where nothing is said


def kept_logits(labels: Labels, classes: int, where: str) -> int:
    """Logits that a store keeps per label; 0 for the dense codecs, which keep all."""
    if labels.codec != "topk":
        if labels.top_k is not None:
            raise UserError(
                f"{where}: labels has top_k {labels.top_k} with codec {labels.codec}, which keeps all {classes} "
                f"logits; set `codec: topk`, or top_k in an evaluation to use fewer than are stored"
            )
        return 0
    kept = TOP_K if labels.top_k is None else labels.top_k
    if kept > classes:
        given = "is" if labels.top_k is not None else "is not set, which means"
        raise UserError(
            f"{where}: labels.top_k {given} {kept}, but the dataset has {classes} classes; "
            f"set it to {classes} at most, or use a codec that keeps all"
        )
    return kept


def check_top_k(evaluation: Evaluation, labels: LabelsSpec, where: str) -> None:
    """Refuse to use more logits per label than a store has, and GIFT where not all of them count."""
    top_k, stored = evaluation.top_k, labels.top_k or labels.classes
    if evaluation.loss.name == "gift" and (top_k or labels.top_k):
        what = f"the store keeps {stored}: set another `codec`" if labels.top_k else f"top_k is {top_k}: leave it empty"
        raise UserError(f"{where} has loss 'gift', which compares all {labels.classes} logits of a label; {what}")
    if top_k is not None and top_k > stored:
        what = f"the store keeps {stored} per label (labels.top_k)" if labels.top_k else f"there are {stored} classes"
        raise UserError(f"{where} uses the top_k = {top_k} largest logits, but {what}; set top_k to {stored} at most")


def check_confidence(smoothing: float, top_k: int | None, labels: LabelsSpec, where: str) -> None:
    """Refuse to match the confidence of smoothed labels where that of k kept logits is never as low."""
    kept = top_k or labels.top_k or labels.classes
    wanted = 1 - smoothing + smoothing / labels.classes
    if wanted <= 1 / kept:
        raise UserError(
            f"{where}: hard_temperature: matched needs labels with a largest probability of {wanted:.3f}, but "
            f"of {kept} kept logits it is {1 / kept:.3f} at least; keep more of them, or give hard_temperature a number"
        )


def check_batches(count: int, batch: int, where: str) -> None:
    """Refuse batches of which the last would hold one image: BN layers cannot be trained on it, nor can it be mixed."""
    if count % batch == 1:
        better = next(size for size in range(batch + 1, batch + count + 1) if count % size != 1)
        raise UserError(
            f"{where}: {count} images in batches of {batch} leave a batch of one, on which BN layers cannot be "
            f"trained; set labels.batch to {better}"
        )
