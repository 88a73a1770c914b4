"""Networks by name, heads, BN in batch mode, weights on disk."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

import hald.networks.batch_statistics
from hald.code_digests import closure, read_sources
from hald.errors import UserError
from hald.networks.batch_statistics import batch_statistics
from hald.networks.build import build_model
from hald.networks.names import module_of, small_networks
from hald.networks.weights import load_weights, read_state, save_weights


@pytest.mark.parametrize(
    ("arch", "size"),
    [
        ("small/resnet10-w4", 32),
        ("small/resnet18-w8", 32),
        ("small/resnet50-w8", 32),
        ("sre2l/resnet18", 32),
        ("torchvision/resnet18", 64),
        ("torchvision/vgg11", 64),
        ("torchvision/densenet121", 64),
        ("torchvision/mobilenet_v2", 64),
        ("torchvision/efficientnet_b0", 64),
        ("torchvision/shufflenet_v2_x0_5", 64),
        ("torchvision/vit_b_16", 32),
        ("torchvision/googlenet", 96),
        ("timm/vit_tiny_patch16_224", 32),
        ("timm/resnet10t", 64),
    ],
)
def test_every_family_has_a_head_for_the_classes(arch: str, size: int) -> None:
    model = build_model(arch, 7, size).eval()
    with torch.inference_mode():
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 7)


def test_small_resnet18_is_the_published_one() -> None:
    """11,220,132 parameters: 11,173,962 for the CIFAR ResNet-18 with 10 classes, plus 90 x 513 for the larger head."""
    for arch, expected in (("small/resnet18", 11_220_132), ("small/resnet50", 23_705_252)):
        assert sum(parameter.numel() for parameter in build_model(arch, 100, 32).parameters()) == expected


def test_sre2l_resnet18_keeps_resolution_in_the_stem() -> None:
    model = build_model("sre2l/resnet18", 10, 32)
    assert isinstance(model, torchvision.models.ResNet)
    assert model.conv1.kernel_size == (3, 3)
    assert isinstance(model.maxpool, nn.Identity)


UNKNOWN = {
    "resnet18": r"unknown network 'resnet18': write <family>/<name> with a family of .*small, .*torchvision",
    "small/resnet19": r"unknown network 'small/resnet19': known are .*resnet18, .*a width, e\.g\. resnet10-w16",
    "small/vgg": r"unknown network 'small/vgg': known are ",
    "torchvision/nothing": r"torchvision has no classification model 'nothing'; see torchvision\.models\.list_models",
    "timm/nothing": r"timm has no model 'nothing'; see timm\.list_models",
    "sre2l/vgg11": r"sre2l/vgg11: this family holds torchvision ResNets only, e\.g\. sre2l/resnet18",
}


@pytest.mark.parametrize("arch", UNKNOWN)
def test_unknown_names_are_explained(arch: str) -> None:
    with pytest.raises(UserError, match=UNKNOWN[arch]):
        build_model(arch, 10, 32)


MODULES = {
    "small/resnet10-w8": "hald.networks.small.resnet",
    "small/shufflenet_v2_x0_5": "hald.networks.small.shufflenet_v2",
    "small/convnet-w128": "hald.networks.small.convnet",
    "sre2l/resnet18": "hald.networks.sre2l",
    "torchvision/vgg11": "hald.networks.torchvision",
    "timm/resnet10t": "hald.networks.timm",
}


@pytest.mark.parametrize("arch", MODULES)
def test_the_module_of_a_network(arch: str) -> None:
    assert module_of(arch) == MODULES[arch]


MEANT = {
    "smal/resnet18": r"family of small, sre2l, torchvision, timm\. Did you mean 'small/resnet18'\?$",
    "small/": r"unknown network 'small/': write <family>/<name>",
    "small/resnt18-w8": r"known are resnet10, .* and .*densenet121.*\. Did you mean 'small/resnet18-w8'\?$",
    "small/mobilnet_v2": r"Did you mean 'small/mobilenet_v2'\?$",
    "small/densenet121-w8": r"unknown network 'small/densenet121-w8'.* Did you mean 'small/densenet121'\?$",
    "small/layers": r"unknown network 'small/layers'.*convnet-w128[^?]*$",
    "small/zzz": r"unknown network 'small/zzz'.*[^?]$",
}


@pytest.mark.parametrize("arch", MEANT)
def test_unknown_names_are_explained_without_building(arch: str) -> None:
    with pytest.raises(UserError, match=MEANT[arch]):
        module_of(arch)


@pytest.mark.parametrize("arch", [f"small/{name}" for one in small_networks() for name in one.names])
def test_every_listed_network_is_there(arch: str) -> None:
    with torch.device("meta"):
        assert build_model(arch, 7, 32)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert arch.removeprefix("small/").startswith(module_of(arch).rpartition(".")[2])


def test_names_need_no_torch() -> None:
    code = "import sys\nfrom hald.networks.names import module_of\nmodule_of('small/resnet10-w4')\n"
    code += "assert not {'torch', 'timm', 'torchvision'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_network_is_code_of_those_that_use_it_alone() -> None:
    sources = read_sources()
    modules = {f"hald.networks.small.{one.module}" for one in small_networks()}
    assert not modules & closure(("hald.networks.build",), sources)
    assert all(modules & closure((module,), sources) == {module} for module in modules)


class Net(nn.Module):
    """BN, dropout and BN again: all that batch mode has to tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.9)
        self.fc = nn.Linear(6, 5)
        self.bn1 = nn.BatchNorm1d(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn1(self.fc(self.drop(self.bn(self.conv(x)).mean((2, 3)))))


@pytest.mark.parametrize("how", ["group_by_group", "all_at_once"])  # as on a CPU, as on a GPU
@torch.inference_mode()
def test_grouped_statistics_equal_batch_by_batch_training_mode(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hald.networks.batch_statistics, "group_by_group", getattr(hald.networks.batch_statistics, how))
    torch.manual_seed(0)
    model = Net().eval()
    for norm in (model.bn, model.bn1):
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
        norm.eps = 0.2
    x = torch.randn(32, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with batch_statistics(model, groups=4):
        grouped = model(x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    reference = Net().train()
    reference.load_state_dict(before)
    reference.drop.eval()
    reference.bn.eps = reference.bn1.eps = 0.2
    alone = torch.cat([reference(part) for part in x.split(8)])
    assert (grouped - alone).abs().max() < 1e-5
    assert torch.equal(model(x), model(x))  # and afterwards it is the eval-mode network again
    assert (model(x) - grouped).abs().max() > 0.1


@pytest.mark.parametrize(
    "arch", ["timm/mobilenetv2_100", "timm/efficientnet_lite0", "torchvision/mobilenet_v2", "timm/levit_128s"]
)
@torch.inference_mode()
def test_batch_mode_suits_layers_that_do_more_than_normalise(arch: str) -> None:
    """timm's BN layers may hold an activation, and some networks fold tokens into the batch."""
    torch.manual_seed(0)
    size = 224 if "levit" in arch else 64
    model = build_model(arch, 5, size).eval()
    x = torch.randn(8, 3, size, size)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with batch_statistics(model, groups=2):
        grouped = model(x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for module in model.modules():
        module.training = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    alone = torch.cat([model(part) for part in x.split(4)])
    assert (grouped - alone).abs().max() < 1e-4 * (1 + alone.abs().max())


def test_weights_round_trip_and_foreign_files(tmp_path: Path) -> None:
    model = build_model("small/resnet10-w4", 5, 32)
    save_weights(model, tmp_path / "a.safetensors")
    torch.save(
        {"state_dict": {f"module.{name}": value for name, value in model.state_dict().items()}}, tmp_path / "b.pth"
    )
    for file in ("a.safetensors", "b.pth"):
        other = build_model("small/resnet10-w4", 5, 32)
        load_weights(other, tmp_path / file, "small/resnet10-w4")
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
        )


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code from a weights file ran",)


def test_bad_weights_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = build_model("small/resnet10-w4", 5, 32)
    save_weights(build_model("small/resnet10-w4", 6, 32), tmp_path / "six.safetensors")
    with pytest.raises(UserError, match=r"'fc.bias' is \(6,\), the network has \(5,\).*another number of classes"):
        load_weights(model, tmp_path / "six.safetensors", "small/resnet10-w4")
    save_weights(build_model("sre2l/resnet18", 5, 32), tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="not those of small/resnet10-w4"):
        load_weights(model, tmp_path / "other.safetensors", "small/resnet10-w4")
    torch.save(Malicious(), tmp_path / "bad.pth")
    with pytest.raises(UserError, match="holds more than tensors"):
        read_state(tmp_path / "bad.pth")
    assert capsys.readouterr().out == ""
    (tmp_path / "cut.safetensors").write_bytes(b"1234")
    with pytest.raises(UserError, match="cannot read weights"):
        read_state(tmp_path / "cut.safetensors")
