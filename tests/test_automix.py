"""The AutoMix task: which loss reaches which parameters, Eq. 7-12, the ablations."""

import copy
import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from safetensors.torch import save_file
from scipy.stats import beta, kstest
from timm.loss import SoftTargetCrossEntropy
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from automix import AutoMix, MixBlock, create_model, mixup
from automix.core.blend import blend
from automix.core.criteria import BinaryCrossEntropy, CrossEntropy
from automix.core.draws import draw_index, draw_lam, step_generator
from automix.data import draw_shapes
from automix.methods.automix.block_file import OPTIONS, load_mix_block, save_mix_block
from automix.methods.automix.mask_loss import lambda_loss
from automix.methods.automix.pairs import Pairs
from automix.methods.automix.settings import PRESETS, AutoMixSettings


def make(**options: Any) -> AutoMix:
    return AutoMix(HandWritten(norm=options.pop("norm", torch.nn.BatchNorm2d)), layer="body", **options)


def drawn(task: AutoMix, x: Tensor) -> tuple[Pairs, Pairs]:
    """The pairs the task will draw in its next call."""
    generator = step_generator(task.seed, task.step)
    return task.draw(x, generator), task.draw(x, generator)


def grads(task: AutoMix) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in task.named_parameters()}


# --- Algorithm 1 and gradient isolation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "paper"),
    [
        *((term, True) for term in ("loss_mixed", "loss_clean", "loss_generation", "loss_lambda")),
        *((term, False) for term in ("loss_mixed", "loss_mixup", "loss_generation")),
    ],
)
def test_each_loss_reaches_its_own_parameters_only(term: str, paper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-propagate one term alone: d(l_CE + l_MCE cls)/d phi = 0, d(gen)/d theta_q = 0, the teacher has no grads."""
    task = make(preset="paper", epsilon=0.0) if paper else make()
    monkeypatch.setattr(task, "output", lambda losses, *_: losses)
    losses: Any = task(*batch())
    losses[term].backward()
    found = {name.partition(".")[0] for name, grad in grads(task).items() if grad is not None and bool(grad.any())}
    assert len([name for name in losses if name.startswith("loss")]) == (4 if paper else 3)
    classifier = {"student", "mixed_head"} if term == "loss_mixed" and paper else {"student"}
    assert found == ({"mix_block"} if term in ("loss_generation", "loss_lambda") else classifier)
    assert all(parameter.grad is None for parameter in task.teacher.parameters())  # type: ignore[union-attr]


def test_the_whole_loss_reaches_student_and_mix_block_and_never_the_teacher() -> None:
    task = make()
    task(*batch()).loss.backward()
    for name, grad in grads(task).items():
        assert (grad is None) == name.startswith("teacher.")


def test_a_step_is_algorithm_1_written_out() -> None:
    """All four terms, from the modules alone, in the order of the paper's pseudo-code."""
    task, (x, y) = make(norm=group_norm, epsilon=0.05, preset="paper", mixed_head=False), batch()
    task.progress = 0.25
    q, k = drawn(task, x)
    assert not torch.equal(q.index, k.index)
    assert q.lam != k.lam
    out = task(x, y)
    f_q, f_k, m_phi = task.student, task.teacher, task.mix_block
    assert isinstance(f_k, HandWritten)
    z = f_k.body(f_k.stem(x))
    s_q, s_k = (m_phi(z, z[pairs.index], pairs.lam, (16, 16)) for pairs in (q, k))
    logits_q, logits_k = f_q(blend(x, q.index, s_q)), f_k(blend(x, k.index, s_k))

    def mce(logits: Tensor, pairs: Pairs) -> Tensor:
        return pairs.lam * F.cross_entropy(logits, y) + (1 - pairs.lam) * F.cross_entropy(logits, y[pairs.index])

    gap = (k.lam - s_k.mean(dim=(1, 2, 3))).abs()
    l_lambda = 0.1 * 0.75 * (gap - 0.05).clamp(min=0).mean()
    torch.testing.assert_close(out.metrics["loss_clean"], F.cross_entropy(f_q(x), y))
    torch.testing.assert_close(out.metrics["loss_mixed"], mce(logits_q, q))
    torch.testing.assert_close(out.metrics["loss_generation"], mce(logits_k, k))
    torch.testing.assert_close(out.metrics["loss_lambda"], l_lambda)
    torch.testing.assert_close(out.loss.detach(), sum(out.metrics[n] for n in out.metrics if n.startswith("loss")))
    torch.testing.assert_close(out.logits, logits_q)


@pytest.mark.parametrize(("aux_loss", "progress", "alpha"),
                         [("mixup", 0.6, 2.0), ("mixup-ramp", 0.6, 0.6), ("mixup-ramp", 0.0, 0.02)])  # fmt: skip
def test_mixup_as_the_aux_loss_has_a_third_draw(aux_loss: str, progress: float, alpha: float) -> None:
    task, (x, y) = make(norm=group_norm, aux_loss=aux_loss, block_share=1.0), batch()
    task.progress = progress
    generator = step_generator(task.seed, task.step)
    for _ in "qk":
        task.draw(x, generator)
    lam, index = draw_lam(x, alpha, generator=generator), draw_index(x, generator=generator)
    logits = task.student(blend(x, index, lam))
    expected = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[index])
    torch.testing.assert_close(task(x, y).metrics["loss_mixup"], expected.detach())


def test_what_rises_is_clean_where_no_progress_is_told() -> None:
    """Nearly always: lam is 0 or 1 but for one draw in twenty (Beta(0.02, 0.02); 0.057 of it lies between)."""
    task, x, y = make(per_sample=True), torch.zeros(4000, 3, 1, 1), torch.zeros(4000, dtype=torch.long)
    lam = task._mixup_samples(x, y, step_generator(0, 0)).target.lam
    between = ((lam > 0.05) & (lam < 0.95)).float().mean().item()
    assert between == pytest.approx(beta(0.02, 0.02).cdf(0.95) - beta(0.02, 0.02).cdf(0.05), abs=0.02)
    task.update(0.7)
    lam = task._mixup_samples(x, y, step_generator(0, 0)).target.lam
    assert kstest(lam.flatten().numpy(), beta(0.7, 0.7).cdf).pvalue > 0.01


def test_l_lambda_by_hand() -> None:
    """lam 0.5 with mask means 0.9, 0.45: gaps 0.4 and 0.05, minus epsilon 0.1 and cut at 0: 0.3 and 0, mean 0.15."""
    task, (x, y) = make(exact_mean=False), batch(2)
    mask = torch.tensor([0.9, 0.45]).reshape(2, 1, 1, 1).expand(2, 1, 16, 16)
    mixed = task.mix(x, y, lam=0.5)
    mixed = type(mixed)(mixed.x, mixed.target, mask)
    for progress, gamma in ((0.0, 0.1), (0.5, 0.05), (1.0, 0.0)):
        assert lambda_loss(mixed, task.settings, progress).item() == pytest.approx(gamma * 0.15, abs=1e-6)


def test_the_clean_teacher_pass_stops_at_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    task, (x, y) = make(), batch()
    teacher = task.teacher
    assert isinstance(teacher, HandWritten)
    calls = {"body": 0, "head": 0}
    for name in calls:
        getattr(teacher, name).register_forward_hook(lambda *_, name=name: calls.update({name: calls[name] + 1}))
    task(x, y)
    assert calls == {"body": 2, "head": 1}  # clean and mixed; mixed alone


# --- masks and mixing ------------------------------------------------------------------------------------------------


def test_mix_gives_samples_masks_and_partners() -> None:
    task, (x, _) = make(), batch()
    mixed = task.mix(x, lam=0.5)
    assert mixed.mask.shape == (6, 1, 16, 16)
    assert bool(((mixed.mask >= 0) & (mixed.mask <= 1)).all())
    assert not mixed.mask.requires_grad
    partner = x[mixed.target.y_b]
    torch.testing.assert_close(mixed.x, mixed.mask * x + (1 - mixed.mask) * partner)
    index = torch.tensor([1, 0, 3, 2, 5, 4])
    assert torch.equal(task.mix(x, lam=0.5, index=index).target.y_b, index)
    assert task.mix(x, lam=torch.linspace(0, 1, 6)).target.lam.shape == (6,)


@pytest.mark.parametrize("momentum", [0.999, None])
def test_looking_changes_nothing(momentum: float | None) -> None:
    task, (x, _) = make(momentum=momentum), batch()
    task.student.get_submodule("stem").eval()  # frozen by its owner
    before = copy.deepcopy(task.state_dict())
    modes = [module.training for module in task.modules()]
    task.mix(x, lam=0.5)
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())
    assert [module.training for module in task.modules()] == modes


def test_near_the_ends_of_lam_the_pair_is_mixed_as_mixup_samples() -> None:
    task, (x, _) = make(lam_margin=0.08), batch()
    lam = torch.tensor([0.05, 0.08, 0.09, 0.91, 0.93, 1.0])
    mask = task.mix(x, lam=lam).mask
    constant = mask.flatten(1).std(dim=1) == 0
    assert constant.tolist() == [True, True, False, False, True, True]
    torch.testing.assert_close(mask[0, 0, 0, 0], lam[0])
    off = make(lam_margin=0.0).mix(x, lam=0.05).mask
    assert bool((off.flatten(1).std(dim=1) > 0).all())


def test_random_grids_train_the_student_alone() -> None:
    task, (x, y) = make(attention=False), batch()
    out = task(x, y)
    assert {name for name in out.metrics if name.startswith("loss")} == {"loss_mixed", "loss_mixup"}
    assert [group["name"] for group in task.param_groups(lr=0.1)] == ["student"]
    assert set(task.mix(x, lam=0.5).mask.unique().tolist()) == {0.0, 1.0}


def test_ablations_drop_their_terms() -> None:
    def terms(**options: Any) -> set[str]:
        return {name for name in make(**options)(*batch()).metrics if name.startswith("loss")}

    assert terms() == {"loss_mixed", "loss_generation", "loss_mixup"}
    assert terms(aux_loss="clean") == {"loss_mixed", "loss_generation", "loss_clean"}
    assert terms(aux_loss="mixup") == {"loss_mixed", "loss_generation", "loss_mixup"}
    assert terms(aux_loss="none") == {"loss_mixed", "loss_generation"}
    assert terms(preset="paper", aux_loss="none") == {"loss_mixed", "loss_generation", "loss_lambda"}
    assert make(gamma=0.0, epsilon=0.0, preset="paper")(*batch()).metrics["loss_lambda"] == 0


def test_joint_training_entangles_the_gradients() -> None:
    """momentum=None, the paper's row "none": one mixed pass trains student and Mix Block together, nothing else."""
    task, (x, y) = make(momentum=None, aux_loss="none"), batch()
    out = task(x, y)
    out.loss.backward()
    assert {name for name in out.metrics if name.startswith("loss")} == {"loss_mixed"}
    assert all(parameter.grad is not None for parameter in task.parameters())
    task.update(0.1)
    assert task.teacher is None
    assert type(task.deploy()) is HandWritten


def test_momentum_zero_keeps_the_teacher_a_copy() -> None:
    task, (x, y) = make(momentum=0.0), batch()
    optimizer = torch.optim.SGD(task.param_groups(lr=0.5))
    for step in range(2):
        optimizer.zero_grad()
        task(x, y).loss.backward()
        optimizer.step()
        task.update(step / 2)
    assert task.teacher is not None
    for teacher, student in zip(task.teacher.state_dict().values(), task.student.state_dict().values(), strict=True):
        assert torch.equal(teacher, student)


def test_no_image_is_its_own_partner_if_pairs_are_distinct() -> None:
    task, (x, y) = make(preset="paper", distinct_pairs=True), batch(4)
    paired = list[Tensor]()
    draw = task.draw

    def draw_and_keep(*args: Any, **options: Any) -> Pairs:
        pairs = draw(*args, **options)
        paired.append(pairs.index)
        return pairs

    task.draw = draw_and_keep  # type: ignore[method-assign]
    for _ in range(10):
        task(x, y)
    assert len(paired) == 20
    assert all((index != torch.arange(4)).all() for index in paired)


def test_the_margin_of_the_block_is_its_own() -> None:
    """With lam near 0 the student's sample is Mixup's, while the Mix Block still learns."""
    task, (x, y) = make(preset="reference", alpha=0.01), batch()
    out = task(x, y)
    out.loss.backward()
    assert out.metrics["mask_spread"] == 0
    grad = task.mix_block.value_weight.grad
    assert grad is not None
    assert grad.any()


def test_the_teacher_has_its_own_statistics_in_training_mode() -> None:
    task, (x, y) = make(preset="reference"), batch()
    assert isinstance(task.teacher, HandWritten)
    assert task.train().teacher.training  # type: ignore[union-attr]
    task(x, y)
    own = task.teacher.get_buffer("stem.1.running_mean").clone()
    assert own.any()
    task.update(0.0)
    assert torch.equal(task.teacher.get_buffer("stem.1.running_mean"), own)
    task.mix(x, y)
    assert torch.equal(task.teacher.get_buffer("stem.1.running_mean"), own)
    assert not task.eval().teacher.training  # type: ignore[union-attr]


def test_the_floor_of_the_mix_blocks_learning_rate() -> None:
    groups = {group["name"]: group for group in make(block_lr=10, block_lr_floor=0.5).param_groups(lr=1e-3)}
    assert groups["mix_block"]["lr"] == pytest.approx(1e-2)
    assert groups["mix_block"]["lr_floor"] == pytest.approx(5e-4)
    assert "lr_floor" not in groups["student"]


def test_parameter_groups() -> None:
    task = make(block_lr=5)
    groups = task.param_groups(lr=0.1, weight_decay=1e-4)
    assert [(g["name"], g["lr"], g["weight_decay"]) for g in groups] == [
        ("student", 0.1, 1e-4),
        ("mix_block", 0.5, 1e-4),
    ]
    listed = {id(parameter) for group in groups for parameter in group["params"]}
    assert listed == {id(parameter) for parameter in task.parameters() if parameter.requires_grad}


def test_training_the_block_alone_makes_mixed_samples_easier_for_the_teacher() -> None:
    """A frozen, trained teacher scores the block's samples better after the block has learned, on pairs held fixed."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64) % 4
    colors = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [2, 2, 2]])
    x = 0.3 * torch.randn(64, 3, 16, 16, generator=generator)
    x[:, :, 4:12, 4:12] += colors[y][:, :, None, None]
    task = AutoMix(HandWritten(num_classes=4), layer="body", mix_until=1.0)

    def loss_of_samples() -> float:
        mixed = task.mix(x, y, lam=0.5, index=torch.arange(64).roll(1))
        with torch.no_grad():
            return mixed.target.loss(task.classifier(mixed.x)).item()

    def train(groups: list[dict[str, Any]], steps: int) -> None:
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        for step in range(steps):
            optimizer.zero_grad()
            task(x, y).loss.backward()
            optimizer.step()
            if groups[0]["name"] == "student":
                task.update(step / steps)

    student, block = task.param_groups(lr=0.1)
    with pytest.warns(UserWarning, match="param_groups"):
        train([student], 40)
    before = loss_of_samples()
    train([block], 60)
    assert loss_of_samples() < before - 0.02


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha must be > 0"),
        ({"momentum": 1.0}, r"momentum .*\[0, 1\)"),
        ({"aux_loss": "ce"}, "aux_loss .*mixup-ramp.*joined.*clean.*mixup.*none"),
        ({"preset": "usual"}, "preset .*tuned, fast, finetune, paper, reference"),
        ({"momentum_hold": 1.0}, r"momentum_hold .*\[0, 1\)"),
        ({"teacher_batch_norm": "frozen"}, "teacher_batch_norm .*eval.*train"),
        ({"block_lr_floor": -1}, "block_lr_floor must be >= 0"),
        ({"blok_lr": 1}, "blok_lr.*did you mean 'block_lr'"),
        ({"exact_mean": False, "gamma": -1}, "gamma must be >= 0"),
        ({"exact_mean": False, "epsilon": 2}, r"epsilon .*\[0, 1\]"),
        ({"gamma": 0.1}, "gamma .*exact_mean"),
        ({"lam_margin": 0.6}, r"lam_margin .*\[0, 0.5\]"),
        ({"mix_until": 70}, r"mix_until .*\[0, 1\]"),
        ({"block_share": 0}, r"block_share .*\(0, 1\]"),
        ({"layer": "bodi"}, "layer must .*submodule, got 'bodi'. Available: 'stem', "),
        ({"layer": 3}, "layer must .*submodule.*HandWritten does not describe its stages; got 3"),
        ({"layer": "head"}, "layer 'head': cannot count its channels by a trial run .*; pass channels="),
        ({"layer": "unused"}, "layer 'unused': cannot count its channels"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        AutoMix(HandWritten(), **{"layer": "body", **options})
    assert "\n" not in str(error.value)


def test_presets_and_overrides() -> None:
    def chosen(**options: Any) -> tuple[str, float, float, float, bool]:
        settings = make(**options).settings
        return settings.aux_loss, settings.block_share, settings.mix_until, settings.block_lr, settings.exact_mean

    assert chosen() == chosen(preset="tuned") == ("mixup-ramp", 0.25, 0.7, 0.3, True)
    assert chosen(preset="paper") == ("clean", 1.0, 1.0, 1.0, False)
    assert chosen(preset="fast") == ("joined", 0.15, 0.7, 0.3, True)
    assert chosen(preset="fast", aux_loss="none", block_share=0.5) == ("none", 0.5, 0.7, 0.3, True)


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_are_complete_and_shown(preset: str) -> None:
    """Written out in full, a preset is the same settings again, whatever presets become later."""
    settings = AutoMixSettings.from_preset(preset)
    assert AutoMixSettings.from_preset("tuned", **settings.to_dict()) == settings
    shown = repr(make(preset=preset))
    assert f"preset='{preset}'" in shown
    assert f"aux_loss='{settings.aux_loss}'" in shown
    assert ("gamma=" in shown) == (preset in ("paper", "reference", "samix"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.alpha = 1.0  # type: ignore[misc]


def test_random_grids_are_not_interpolated_unless_asked_to() -> None:
    assert AutoMixSettings.from_preset("tuned", attention=False).upsampling == "nearest"
    assert AutoMixSettings.from_preset("tuned", attention=False, upsampling="bilinear").upsampling == "bilinear"


@pytest.mark.parametrize(
    ("preset", "apart"), [("tuned", [False, True]), ("fast", [True, True]), ("paper", [False] * 2)]
)
def test_no_image_of_a_part_of_the_batch_is_its_own_partner(
    preset: str, apart: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of q and k, those that are drawn for a part of the batch."""
    task, (x, y) = make(preset=preset), batch(16)
    draw, drawn = task.draw, list[Pairs]()

    def draw_and_keep(*args: Any, **options: Any) -> Pairs:
        drawn.append(draw(*args, **options))
        return drawn[-1]

    monkeypatch.setattr(task, "draw", draw_and_keep)
    own = torch.zeros(2)
    for task.step in range(40):
        task(x, y)
        own += torch.tensor([(pairs.index == torch.arange(len(pairs.index))).sum() for pairs in drawn[-2:]])
    assert [count == 0 for count in own.tolist()] == apart
    assert all(pairs.index.sort().values.tolist() == list(range(len(pairs.index))) for pairs in drawn)


def test_the_mix_block_rests_in_the_clean_end_also_in_a_process_group(tmp_path: Path) -> None:
    """Every parameter takes part in a step of DistributedDataParallel: zero gradients must not move the block."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        task, (x, y) = make(mix_until=0.5), batch()
        ddp = DistributedDataParallel(task)
        optimizer = torch.optim.SGD(task.param_groups(lr=0.1, weight_decay=0.1), momentum=0.9)
        blocks = []
        for progress in (0.0, 0.5, 0.6, 0.7):  # the first two steps mix
            optimizer.zero_grad()
            ddp(x, y).loss.backward()
            optimizer.step()
            task.update(progress)
            blocks.append([parameter.detach().clone() for parameter in task.mix_block.parameters()])
    finally:
        dist.destroy_process_group()
    assert not all(map(torch.equal, blocks[0], blocks[1]))
    assert all(map(torch.equal, blocks[1], blocks[2]))
    assert all(map(torch.equal, blocks[1], blocks[3]))


def test_the_fast_form_has_one_pass_of_the_batch_by_mixup_and_a_share_by_the_block() -> None:
    x, y = batch(8)
    task = AutoMix(HandWritten(), layer="body", preset="fast", lam_margin=0.0)  # 0.15 of 8, rounded up, is 2
    task.progress = 0.5
    generator = step_generator(task.seed, task.step)
    q, _ = (task.draw(x[:2], generator, distinct=True) for _ in range(2))
    by_mixup = mixup(x, y, 0.5, generator=generator)  # alpha is the progress
    by_block = task.mix(x[:2], y[:2], lam=q.lam, index=q.index)
    seen: dict[str, list[Tensor]] = {"student": [], "teacher": []}
    answers: list[Tensor] = []
    task.student.register_forward_pre_hook(lambda module, inputs: seen["student"].append(inputs[0]))
    task.student.register_forward_hook(lambda module, inputs, answer: answers.append(answer))
    assert task.teacher is not None
    task.teacher.register_forward_pre_hook(lambda module, inputs: seen["teacher"].append(inputs[0]))
    out = task(x, y)
    assert [len(images) for images in seen["student"]] == [10]  # one pass
    assert [len(images) for images in seen["teacher"]] == [2, 2]  # the features, and the Mix Block's samples
    torch.testing.assert_close(seen["student"][0], torch.cat([by_block.x, by_mixup.x]))
    torch.testing.assert_close(out.logits, answers[0][2:])  # of the batch
    losses = [by_block.target.loss(answers[0][:2]), by_mixup.target.loss(answers[0][2:])]
    torch.testing.assert_close(out.metrics["loss_mixed"], (2 * losses[0] + 8 * losses[1]).detach() / 10)


def test_a_mix_block_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = AutoMix(HandWritten(), layer="body", upsampling="nearest", reduction=3)
    with torch.no_grad():
        for parameter in task.mix_block.parameters():
            parameter.add_(1)
    save_mix_block(tmp_path / "block.safetensors", task.mix_block)
    before = torch.get_rng_state()
    block = load_mix_block(tmp_path / "block.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    z_i, z_j = torch.randn(2, 3, 12, 4, 4)
    lam = torch.tensor(0.4)
    labels = (torch.tensor([0, 1, 4]), torch.tensor([2, 1, 0]))
    masks = [one(z_i, z_j, lam, (8, 8), labels=labels) for one in (block, task.mix_block)]
    assert torch.equal(*masks)
    again = AutoMix(HandWritten(), layer="body", mix_block=str(tmp_path / "block.safetensors"))
    assert torch.equal(again.mix_block.value_weight, task.mix_block.value_weight)
    blind = MixBlock(12, smooth=False)
    with monkeypatch.context() as patch:  # a file from before there were these options
        older = tuple(set(OPTIONS) - {"num_classes", "smooth", "init"})
        patch.setattr("automix.methods.automix.block_file.OPTIONS", older)
        save_mix_block(tmp_path / "before.safetensors", blind)
    assert torch.equal(
        load_mix_block(tmp_path / "before.safetensors")(z_i, z_j, lam, (8, 8)), blind(z_i, z_j, lam, (8, 8))
    )
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    save_file({"w": torch.ones(1)}, tmp_path / "other.safetensors")
    for name, message in (("bad", "cannot be read"), ("other", "not a Mix Block"), ("none", "cannot be read")):
        with pytest.raises(ValueError, match=message) as error:
            AutoMix(HandWritten(), layer="body", mix_block=tmp_path / f"{name}.safetensors")
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_block_that_was_trained_before_cuts_objects_out_from_the_first_step(tmp_path: Path) -> None:
    """500 steps on drawn shapes; then the same network on new images, with its block and with a new one."""

    def images(seed: int) -> tuple[Tensor, Tensor]:
        drawn = draw_shapes(1200, 24, seed=seed)
        return drawn.images[drawn.labels < 6] / 127.5 - 1, drawn.labels[drawn.labels < 6]

    model = create_model("resnet18", num_classes=6, image_size=24, layers=(1, 1, 1, 1), channels=(8, 16, 32, 64))
    task = AutoMix(model)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    (x, y), generator = images(0), torch.Generator().manual_seed(0)
    for step in range(500):
        chosen = torch.randint(len(x), (50,), generator=generator)
        task(x[chosen], y[chosen]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        task.update(step / 500)
    save_mix_block(tmp_path / "block.safetensors", task.mix_block)
    x, y = images(1)
    again, anew = (AutoMix(task.deploy(), mix_block=block) for block in (tmp_path / "block.safetensors", None))
    numbers, new_numbers = (other.diagnose(x[:384], y[:384])[0] for other in (again, anew))
    assert numbers["mask_spread_at_0.5"] > 0.15 > 3 * new_numbers["mask_spread_at_0.5"]
    assert numbers["top2_on_mixed"] > new_numbers["top2_on_mixed"] + 3  # both objects are recognized more often


def test_a_ready_mix_block_must_fit() -> None:
    task = make()
    again = AutoMix(HandWritten(), layer="body", mix_block=copy.deepcopy(task.mix_block))
    assert torch.equal(again.mix_block.w_p.weight, task.mix_block.w_p.weight)
    with pytest.raises(ValueError, match=r"mix_block .*8 channels.* 12"):
        AutoMix(HandWritten(), layer="stem", mix_block=task.mix_block)
    with pytest.raises(ValueError, match=r"mix_block .*7 classes.* 5"):
        AutoMix(HandWritten(num_classes=7), layer="body", mix_block=task.mix_block)
    AutoMix(HandWritten(num_classes=7), layer="body", mix_block=make(class_vectors=False).mix_block)


def test_the_mix_block_goes_by_the_labels() -> None:
    task, (x, y) = make(), batch()
    assert task.mix_block.num_classes == 5
    masks = [task.mix(x, labels, lam=0.5).mask for labels in (y, y.roll(1), F.one_hot(y, 5), F.one_hot(y, 5) * 1.0)]
    assert not torch.equal(masks[0], masks[1])
    for other in masks[2:]:
        torch.testing.assert_close(other, masks[0])
    for blind in (make(class_vectors=False), make(preset="paper")):
        assert blind.mix_block.num_classes is None
        assert torch.equal(blind.mix(x, y, lam=0.5).mask, blind.mix(x, y.roll(1), lam=0.5).mask)


def test_without_labels_the_masks_go_by_what_the_classifier_sees() -> None:
    task, (x, _) = make(), batch()
    seen = task.classifier(x).argmax(dim=1)
    mixed = task.mix(x, lam=0.5)
    assert torch.equal(mixed.mask, task.mix(x, seen, lam=0.5).mask)
    assert mixed.target.y_a.tolist() == list(range(len(x)))
    for given in (None, seen):
        with pytest.raises(ValueError, match="x must be images"):
            task.mix(x[0], given)


def test_classes_are_counted_or_named() -> None:
    class Shy(HandWritten):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[-1] == 64:
                raise RuntimeError("no such image")
            return super().forward(x)

    assert AutoMix(create_model("resnet18", num_classes=7, image_size=32)).mix_block.num_classes == 7
    with pytest.raises(ValueError, match=r"Shy: cannot count its classes .*no such image.*; pass num_classes="):
        AutoMix(Shy(), layer="body", channels=12)
    assert AutoMix(Shy(), layer="body", channels=12, num_classes=5).mix_block.num_classes == 5
    AutoMix(Shy(), layer="body", channels=12, class_vectors=False)
    with pytest.raises(ValueError, match=r"num_classes.*>= 1"):
        AutoMix(Shy(), layer="body", channels=12, num_classes=0)


@pytest.mark.parametrize("knows_the_block", [True, False])
def test_an_optimizer_without_the_mix_block_is_noticed(knows_the_block: bool) -> None:
    task, (x, y) = make(), batch()
    parameters: Any = task.param_groups(lr=0.1) if knows_the_block else task.student.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(25):
            optimizer.zero_grad()
            task(x, y).loss.backward()
            optimizer.step()
            task.update(step / 100)
    messages = [str(warning.message) for warning in caught]
    assert [message for message in messages if "param_groups" in message] == ([] if knows_the_block else messages)
    assert bool(messages) != knows_the_block


def test_a_criterion_gets_logits_and_the_mixed_label() -> None:
    x, y = batch()

    def loss(criterion: Any) -> Tensor:
        torch.manual_seed(0)
        return make(criterion=criterion)(x, y).loss

    for criterion in (CrossEntropy(), torch.nn.CrossEntropyLoss(), SoftTargetCrossEntropy()):
        torch.testing.assert_close(loss(criterion), loss(None))
    theirs = timm.loss.BinaryCrossEntropy(target_threshold=0.2)
    torch.testing.assert_close(loss(BinaryCrossEntropy(threshold=0.2)), loss(theirs))
    assert loss(theirs) != loss(None)
