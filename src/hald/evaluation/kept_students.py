"""Where the weights of students lie that are kept for analyses."""

from pathlib import Path


def student_file(folder: Path, phase: int) -> Path:
    """Weights of a student as they are after a phase."""
    return folder / f"stage-{phase}.safetensors"
