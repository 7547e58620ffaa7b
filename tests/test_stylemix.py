"""StyleMix: AdaIN and the weights by hand, labels, and networks from files against torchvision's VGG-19."""

from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
import torchvision
from conftest import HandWritten, batch
from safetensors.torch import save_file
from torch import Tensor, nn

import automix
from automix.core.draws import step_generator
from automix.methods.stylemix import adain, load_networks, mix_features, stylemix, vgg_decoder, vgg_encoder

PLAIN: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # x is pixels already
SAME: dict[str, Any] = {"encoder": nn.Identity(), "decoder": nn.Identity(), "size": 16}  # features are pixels


def small() -> dict[str, Any]:
    """Random networks that halve and double once."""
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2))
    decoder = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(6, 3, 3, padding=1))
    return {"encoder": encoder, "decoder": decoder, "size": 16}


# --- the features ----------------------------------------------------------------------------------------------------


def test_adain_by_hand() -> None:
    """(0, 2, 4, 6) has mean 3 and variance 5; (1, 1, 3, 3) has mean 2 and variance 1."""
    content, style = (torch.tensor(values).view(1, 1, 2, 2) for values in ([0.0, 2, 4, 6], [1.0, 1, 3, 3]))
    root = 5**-0.5
    wanted = torch.tensor([2 - 3 * root, 2 - root, 2 + root, 2 + 3 * root]).view(1, 1, 2, 2)
    torch.testing.assert_close(adain(content, style, epsilon=0.0), wanted)
    torch.testing.assert_close(adain(content, content, epsilon=0.0), content)
    flat = torch.full((1, 1, 1, 1), 4.0)  # one value has no deviation to divide by
    torch.testing.assert_close(adain(flat, style), torch.full((1, 1, 1, 1), 2.0))


def test_adain_is_instance_norm_with_the_others_statistics() -> None:
    content, style = torch.randn(2, 4, 3, 9, 7, dtype=torch.float64)
    plain = F.instance_norm(content)
    moved = plain * style.var(dim=(2, 3), correction=0, keepdim=True).add(1e-5).sqrt() + style.mean((2, 3), True)
    torch.testing.assert_close(adain(content, style), moved)


@pytest.mark.parametrize("place", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("content", "style"), [(0.3, 0.9), (0.9, 0.6), (0.2, 0.1), (1.0, 0.0), (0.0, 0.5)])
def test_features_have_their_shares(content: float, style: float, place: float) -> None:
    """Each combination's weight is in [0, 1], and contents and styles add up to their shares, whatever t is."""
    f_i, f_j = torch.randn(2, 1, 2, 4, 4, dtype=torch.float64)
    shares = (torch.tensor(value, dtype=torch.float64) for value in (content, style, place))
    mixed = mix_features(f_i, f_j, *shares).flatten()
    parts = torch.stack([part.flatten() for part in (f_i, f_j, adain(f_i, f_j), adain(f_j, f_i))], dim=1)
    weights = torch.linalg.lstsq(parts, mixed.unsqueeze(1)).solution.squeeze(1)
    assert weights.min() > -1e-6
    assert weights.max() < 1 + 1e-6
    both, none, content_alone, style_alone = weights.tolist()
    assert both + content_alone == pytest.approx(content)
    assert both + style_alone == pytest.approx(style)
    assert none == pytest.approx(1 - both - content_alone - style_alone)
    low, high = max(0.0, content + style - 1), min(content, style)
    assert both == pytest.approx(low + place * (high - low))


# --- images and labels -----------------------------------------------------------------------------------------------


def test_content_of_one_in_the_style_of_the_other() -> None:
    """With pixels for features, r_c = 1 and r_s = 0 is AdaIN of the images, r_c = r_s = 0 the partner."""
    x, y = torch.rand(4, 3, 16, 16) * 0.2 + 0.4, torch.arange(4)
    index = torch.tensor([1, 2, 3, 0])
    swapped = stylemix(x, y, lam=1.0, style_lam=0.0, index=index, **SAME, **PLAIN)
    torch.testing.assert_close(swapped.x, adain(x, x[index]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(swapped.target.lam, torch.tensor(0.7))
    partner = stylemix(x, y, lam=0.0, style_lam=0.0, index=index, **SAME, **PLAIN)
    torch.testing.assert_close(partner.x, x[index], atol=1e-5, rtol=1e-5)
    assert torch.equal(partner.target.y_b, y[index])


@pytest.mark.parametrize("r", [0.7, 0.25])
def test_the_label_is_the_papers(r: float) -> None:
    """r * (r_c y_i + (1 - r_c) y_j) + (1 - r) * (r_s y_i + (1 - r_s) y_j)"""
    x, y = batch()
    lam, style = torch.tensor([1.0, 0.5, 0.0, 0.2, 0.9, 1.0]), torch.tensor([1.0, 0.1, 0.3, 0.6, 0.0, 0.4])
    mixed = stylemix(x, y, r=r, lam=lam, style_lam=style, generator=step_generator(0, 0), **SAME)
    rows_i, rows_j = F.one_hot(y, 5).float(), F.one_hot(mixed.target.y_b, 5).float()
    c, s = lam.unsqueeze(1), style.unsqueeze(1)
    wanted = r * (c * rows_i + (1 - c) * rows_j) + (1 - r) * (s * rows_i + (1 - s) * rows_j)
    torch.testing.assert_close(mixed.target.soft(5), wanted)
    torch.testing.assert_close(mixed.mask.mean(dim=(1, 2, 3)), mixed.target.lam)


def test_an_image_comes_back_where_both_shares_are_one() -> None:
    x, y = batch()
    lam, style = torch.tensor([1.0, 1.0, 0.5, 1.0, 0.0, 1.0]), torch.tensor([1.0, 0.9, 1.0, 1.0, 0.0, 1.0])
    mixed = stylemix(x, y, lam=lam, style_lam=style, generator=step_generator(0, 0), **small()).x
    same = (mixed == x).flatten(1).all(dim=1)
    assert same.tolist() == ((lam == 1) & (style == 1)).tolist()


def test_the_shares_are_drawn_apart() -> None:
    """Two independent draws of Beta(alpha, alpha): the label's lam has their mean's moments."""
    x, y = torch.randn(3000, 1, 2, 2), torch.zeros(3000, dtype=torch.int64)
    seen: dict[str, Tensor] = {}

    class Spy(nn.Identity):
        def forward(self, z: Tensor) -> Tensor:
            seen["features"] = z
            return z[:, :, :2, :2]

    mixed = stylemix(x, y, 2.0, encoder=Spy(), decoder=nn.Identity(), per_sample=True, generator=step_generator(0, 0))
    lam = mixed.target.lam
    variance = float(scipy.stats.beta(2, 2).var())
    assert abs(lam.mean() - 0.5) < 0.015
    assert lam.var() == pytest.approx((0.7**2 + 0.3**2) * variance, rel=0.1)  # one draw for both would give variance
    assert seen["features"].shape[-2:] == (224, 224)


@pytest.mark.parametrize("shape", [(5, 3, 13, 22), (1, 3, 8, 8), (2, 3, 33, 17)])
def test_any_size_comes_back(shape: tuple[int, int, int, int]) -> None:
    x = torch.randn(shape)
    mixed = stylemix(x, torch.zeros(shape[0], dtype=torch.int64), generator=step_generator(0, 0), **small())
    assert mixed.x.shape == shape
    assert mixed.x.isfinite().all()
    assert mixed.x.amin() >= x.amin() - 1e-5
    assert mixed.x.amax() <= x.amax() + 1e-5


# --- networks from files ---------------------------------------------------------------------------------------------


def convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def save_random(folder: Path) -> tuple[nn.Sequential, nn.Sequential]:
    """Both networks with random weights, as the authors of AdaIN publish theirs."""
    encoder, decoder = vgg_encoder(), vgg_decoder()
    save_file(encoder.state_dict(), folder / "encoder.safetensors")
    save_file(decoder.state_dict(), folder / "decoder.safetensors")
    return encoder, decoder


def test_networks_come_from_files(tmp_path: Path) -> None:
    encoder, decoder = save_random(tmp_path)
    assert list(encoder.state_dict())[:4] == ["0.weight", "0.bias", "2.weight", "2.bias"]  # AdaIN's numbering
    assert list(decoder.state_dict())[:4] == ["1.weight", "1.bias", "5.weight", "5.bias"]
    loaded_encoder, loaded_decoder = load_networks(tmp_path)
    x = torch.rand(1, 3, 32, 40)
    with torch.no_grad():
        z = encoder(x)
        assert z.shape == (1, 512, 4, 5)
        assert decoder(z).shape == x.shape
        assert torch.equal(loaded_encoder(x), z)
        assert torch.equal(loaded_decoder(z), decoder(z))
    assert not any(parameter.requires_grad for parameter in loaded_encoder.parameters())
    task = automix.create_task("stylemix", HandWritten(), weights=tmp_path, size=32)
    assert task(*batch(2)).loss.isfinite()
    assert set(task.state_dict()) == {*(f"student.{name}" for name in HandWritten().state_dict()), "_extra_state"}
    mixed, soft = automix.StyleMix(num_classes=5, weights=tmp_path, size=32, generator=step_generator(0, 0))(*batch(2))
    again = automix.stylemix(
        *batch(2), encoder=loaded_encoder, decoder=loaded_decoder, size=32, generator=step_generator(0, 0)
    )
    assert torch.equal(mixed, again.x)
    assert torch.equal(soft, again.target.soft(5))


def test_torchvisions_vgg_is_accepted(tmp_path: Path) -> None:
    """Away from the border, which AdaIN reflects and torchvision pads with 0, features are those of torchvision."""
    save_random(tmp_path)
    vgg = torchvision.models.VGG(
        torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["E"]), init_weights=True
    )
    weights = {name: value for name, value in vgg.state_dict().items() if name.startswith("features.")}
    weights["classifier.0.weight"] = torch.zeros(2, 2)  # as in the real file: not looked at
    save_file(weights, tmp_path / "encoder.safetensors")
    encoder, _ = load_networks(tmp_path)
    x = torch.rand(1, 3, 176, 176)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        theirs = vgg.features[:21]((x - mean.view(3, 1, 1)) / std.view(3, 1, 1))
        ours = encoder(x)
    assert ours.shape == theirs.shape == (1, 512, 22, 22)
    inner = (..., slice(8, 14), slice(8, 14))
    torch.testing.assert_close(ours[inner], theirs[inner], atol=1e-5, rtol=1e-4)


def test_missing_and_wrong_networks_are_told_when_the_task_is_built(tmp_path: Path) -> None:
    needed = r"trained VGG-19 encoder and its decoder.*weights=DIR.*encoder=.*decoder="
    for given in ({}, {"encoder": nn.Identity()}, {"weights": tmp_path, "decoder": nn.Identity()}):
        with pytest.raises(ValueError, match=needed):
            automix.create_task("stylemix", HandWritten(), **given)
        with pytest.raises(ValueError, match=needed):
            automix.StyleMix(**given)
    with pytest.raises(ValueError, match=r"encoder.safetensors: cannot be read as safetensors"):
        load_networks(tmp_path)
    save_file({"0.weight": torch.zeros(3, 3, 1, 1), "0.bias": torch.zeros(3)}, tmp_path / "encoder.safetensors")
    save_file({"other": torch.zeros(1)}, tmp_path / "decoder.safetensors")
    with pytest.raises(ValueError, match=r"encoder.safetensors: its convolutions must be.*got \[\(3, 3, 1, 1\)\]"):
        load_networks(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r": 1.5}, r"^r must be .*\[0, 1\]"),
        ({"size": 8}, "size.*>= 16"),
        ({"std": [0.5] * 3}, "mean and std must"),
        ({"style_lam": 2.0}, r"lam .*\[0, 1\]"),
        ({"t": torch.rand(3)}, r"lam .*\(3,\)"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stylemix(*batch(), **{**SAME, **options})


def test_the_task_uses_its_networks_and_options() -> None:
    x, y = batch()
    networks = small()
    task = automix.create_task("stylemix", HandWritten(), **networks, r=0.5, seed=3)
    wanted = stylemix(x, y, r=0.5, generator=step_generator(3, 0), **networks)
    assert torch.equal(task.mix(x, y).x, wanted.x)
    task(x, y).loss.backward()
    assert all(parameter.grad is None for name in ("encoder", "decoder") for parameter in networks[name].parameters())


def test_stylecutmix_by_hand() -> None:
    """Encoder and decoder that change nothing: AdaIN of the pixels themselves, in a box worked out by CutMix."""
    x, y = torch.rand(3, 3, 16, 16, generator=step_generator(0, 0)), torch.arange(3)
    index, options = torch.tensor([1, 2, 0]), {**SAME, **PLAIN}
    mixed = automix.stylemix(
        x, y, cut=True, lam=0.6, style_lam=0.3, index=index, generator=step_generator(0, 1), **options
    )
    box = mixed.mask
    assert set(box.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(box[0], box[2])  # one box for the batch
    own, foreign = adain(x, x[index]), adain(x[index], x)
    expected = box * (0.3 * x + 0.7 * own) + (1 - box) * (0.7 * x[index] + 0.3 * foreign)
    torch.testing.assert_close(mixed.x, expected.clamp(0, 1))
    torch.testing.assert_close(mixed.target.lam, 0.7 * box[0].mean() + 0.3 * torch.tensor(0.3))
    each = automix.stylemix(x, y, cut=True, per_sample=True, index=index, generator=step_generator(0, 2), **options)
    assert each.target.lam.shape == (3,)
    assert len(each.mask.mean(dim=(1, 2, 3)).unique()) > 1
