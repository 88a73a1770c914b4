"""torchvision's published weights, downloaded once and kept as safetensors."""

from pathlib import Path

from safetensors.torch import save_file

from hald.errors import UserError
from hald.files import write_atomic
from hald.jobs.job import Job
from hald.squeeze.spec import WeightsSpec


def make(job: Job[WeightsSpec]) -> None:
    """Download the weights of a job."""
    fetch_torchvision(job.spec.arch, job.spec.weights, job.folder / f"{job.spec.name}.safetensors")


def fetch_torchvision(arch: str, weights: str, path: Path) -> None:
    """Download torchvision's weights once and keep them as safetensors."""
    import torchvision.models

    name = arch.partition("/")[2]
    try:
        entry = torchvision.models.get_model_weights(name)[weights]
    except (KeyError, ValueError) as error:
        raise UserError(
            f"torchvision has no weights '{weights}' for '{name}'; `python -c \"import torchvision.models as m; "
            f"print(list(m.get_model_weights('{name}')))\"` lists what it has"
        ) from error
    try:
        state = entry.get_state_dict(progress=False, check_hash=True)
    except OSError as error:
        raise UserError(
            f"weights of {arch} ({weights}) could not be fetched: {error}. Run "
            f"`snakemake --cores 1 {path}` on a machine with network access, or copy the file there"
        ) from error
    write_atomic(path, lambda temporary: save_file({name: t.contiguous() for name, t in state.items()}, temporary))
