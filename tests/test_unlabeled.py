"""AutoMix without labels: the block's loss and whom it reaches, draws, and the state."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from torch import Tensor

from automix import AutoMixUnlabeled, MixBlock
from automix.core.blend import blend
from automix.core.draws import draw_cycle, draw_index, draw_lam, step_generator


def make(**options: Any) -> AutoMixUnlabeled:
    torch.manual_seed(1)
    return AutoMixUnlabeled(HandWritten(num_classes=7, norm=group_norm), layer="body", lam_margin=0.0, **options)


def views(count: int = 8) -> tuple[Tensor, Tensor]:
    a, _ = batch(count)
    return a, a.flip(-1) + 0.1


def test_the_loss_is_the_mixed_cross_entropy_over_the_images_of_the_batch() -> None:
    mixer, (a, b) = make(block_share=0.5, temperature=0.3), views()
    generator = step_generator(0, 0, stream="unlabeled")
    lam, index = draw_lam(a, 2.0, generator=generator), draw_index(a, generator=generator)
    lam_k, index_k = draw_lam(a, 2.0, generator=generator), draw_cycle(a[:4], generator=generator)
    mixed = mixer(a, b)
    teacher = mixer.teacher
    assert isinstance(teacher, HandWritten)
    z_a, z_b = (teacher.body(teacher.stem(view)) for view in (a, b))
    for found, view, z in ((mixed.a, a, z_a), (mixed.b, b, z_b)):
        torch.testing.assert_close(found, blend(view, index, mixer.mix_block(z, z[index], lam, (16, 16))))
    assert torch.equal(mixed.target.y_b, index)
    assert mixed.target.lam == lam
    first = a[:4], z_a[:4]
    sample = blend(first[0], index_k, mixer.mix_block(first[1], first[1][index_k], lam_k, (16, 16)))
    expected = []
    for one in range(4):
        similarity = torch.stack([torch.cosine_similarity(teacher(sample)[one], other, dim=0) for other in teacher(b)])
        log_p = (similarity / 0.3).log_softmax(dim=0)
        expected.append(-lam_k * log_p[one] - (1 - lam_k) * log_p[index_k[one]])
    torch.testing.assert_close(mixed.loss, torch.stack(expected).mean())


def test_gradients_reach_the_block_and_neither_the_teacher_nor_the_encoder() -> None:
    mixer = make()
    mixed = mixer(*views())
    assert mixed.loss is not None
    assert not mixed.a.requires_grad
    assert not mixed.b.requires_grad
    mixed.loss.backward()
    for name, parameter in mixer.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.any())
        # softmax does not feel w_p's bias on the key's side alone, nor the solved mean that of w_z
        assert reached or not name.startswith("mix_block") or name.endswith("bias"), name
        assert not reached or name.startswith("mix_block"), name


def test_the_block_learns_to_make_samples_that_agree_with_both_images() -> None:
    """The encoder stays as it is, random; only the block is trained, on views and pairs that are held fixed."""
    mixer, (a, b) = make(block_share=1.0, block_lr=1.0), views()
    losses = []
    optimizer = torch.optim.SGD(mixer.mix_block.parameters(), lr=1.0, momentum=0.9)
    for _ in range(40):
        mixer._calls = 0
        mixed = mixer(a, b)
        assert mixed.loss is not None
        optimizer.zero_grad()
        mixed.loss.backward()
        optimizer.step()
        losses.append(mixed.loss.item())
    assert losses[-1] < losses[0]
    frozen = make(block_lr=0.0)
    assert frozen(a, b).loss is None


def test_draws_follow_seed_step_and_call_and_leave_the_global_generator() -> None:
    a, b = views()
    before = torch.get_rng_state()
    mixer = make()
    torch.set_rng_state(before)
    first, second = mixer(a, b), mixer(a, b)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first.a, second.a)
    assert torch.equal(make()(a, b).a, first.a)
    assert not torch.equal(make(seed=1)(a, b).a, first.a)
    mixer.update(0.1)
    assert not torch.equal(mixer(a, b).target.lam, first.target.lam)


def test_the_state_dict_brings_a_training_back() -> None:
    a, b = views()

    def train(mixer: AutoMixUnlabeled, steps: int) -> None:
        optimizer = torch.optim.SGD(mixer.param_groups(lr=0.1))
        for _ in range(steps):
            mixed = mixer(a, b)
            assert mixed.loss is not None
            z, z_b = (F.normalize(mixer.student(x)) for x in (mixed.a, b))
            optimizer.zero_grad()
            (mixed.target.cross_entropy(z @ z_b.T / 0.2) + mixed.loss).backward()
            optimizer.step()
            mixer.update(mixer.step / 10)

    whole, halves = make(), make()
    train(whole, 4)
    train(halves, 2)
    again = make(seed=0)
    again.load_state_dict(copy.deepcopy(halves.state_dict()))
    train(again, 2)
    assert again.step == 4
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in whole.state_dict().items())
    start = make().state_dict()
    changed = {name.partition(".")[0] for name, value in state.items() if not torch.equal(value, start[name])}
    assert changed == {"student", "teacher", "mix_block", "_extra_state"}


def test_parameter_groups_and_modes() -> None:
    mixer = make(block_lr=0.5)
    groups = {group["name"]: group for group in mixer.param_groups(lr=0.2, weight_decay=1e-4)}
    assert [groups[name]["lr"] for name in ("encoder", "mix_block")] == [0.2, 0.1]
    assert sum(len(group["params"]) for group in groups.values()) == sum(p.requires_grad for p in mixer.parameters())
    assert mixer.train().student.training
    assert not mixer.teacher.training


def test_a_block_that_was_trained_with_classes_is_used_without_them() -> None:
    mixer = make(mix_block=MixBlock(12, num_classes=5))
    mixed = mixer.mix(views()[0], lam=0.4, index=torch.arange(8).roll(1))
    torch.testing.assert_close(mixed.mask.mean(dim=(1, 2, 3)), torch.full((8,), 0.4))


def test_one_image_and_wrong_views() -> None:
    a, b = views()
    assert torch.isfinite(make()(a[:1], b[:1]).loss)
    with pytest.raises(ValueError, match="same shape"):
        make()(a, b[:4])
    with pytest.raises(ValueError, match="channels"):
        make(mix_block=MixBlock(8))
    with pytest.raises(ValueError, match="temperature must be > 0"):
        make(temperature=0.0)

    class Maps(HandWritten):
        def forward(self, x: Tensor) -> Tensor:
            return self.body(self.stem(x))

    with pytest.raises(ValueError, match=r"encoder must return embeddings \(N, D\)"):
        AutoMixUnlabeled(Maps(), layer="body")(a, b)
