"""Teachers: two epochs with each optimiser."""

import json
from collections.abc import Iterator

import reference as ref
from bench import TEACHERS, Bench, Check, case, cases, fed
from safetensors.torch import load_file


@cases(("squeeze",), sgd="sgd", adam="adam", adamw="adamw")
def squeeze(bench: Bench, name: str) -> Iterator[Check]:
    """A teacher trained for two epochs, the first of them warming up."""
    folder = bench.chain(teacher=name).teacher()
    record, weights = json.loads((folder / "teacher.json").read_text()), load_file(folder / "teacher.safetensors")
    model = bench.teacher(name)
    for part, tensor in model.state_dict().items():
        yield Check(part, weights[part], tensor, 1e-5)
    top1, top5 = ref.accuracy(model, bench.data(), fed(name))
    yield Check("top-1 and top-5", [record["top1"], record["top5"]], [top1, top5], 1e-4)
    yield Check("fed with", [record["mean"], record["std"]], fed(name), 1e-12)


@case("squeeze")
def squeeze_of_encoded_images(bench: Bench) -> Iterator[Check]:
    """The same where images are decoded one by one: eight-bit crops, the test split resized."""
    settings, data = bench.encoded()
    folder = bench.chain(dataset=settings, teacher="adamw", teachers={"adamw": ADAMW}).teacher()
    model = ref.squeeze(data, TEACHERS["adamw"]["recipe"], 1, fed("adamw"))
    for part, tensor in model.state_dict().items():
        yield Check(part, load_file(folder / "teacher.safetensors")[part], tensor, 1e-5)
    record = json.loads((folder / "teacher.json").read_text())
    found = [record["top1"], record["top5"]]
    yield Check("top-1 and top-5", found, ref.accuracy(model, data, fed("adamw")), 1e-4)


ADAMW = {"arch": "small/resnet10-w4"} | TEACHERS["adamw"]
