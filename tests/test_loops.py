"""Every method in every kind of loop has the gradients of the plain step."""

import pytest
import torch
from conftest import HandWritten, batch
from loops import LOOPS, Network, outcome
from torch import nn

import automix

REFUSED = {
    ("checkpointing", "alignmix"),  # its layer would run again in the backward pass, unmixed
    ("checkpointing", "manifoldmix"),
    ("checkpointing", "patchup"),
    ("reentrant", "alignmix"),
    ("reentrant", "manifoldmix"),
    ("reentrant", "patchup"),
    ("reentrant", "comixup"),  # torch has no gradients of images there
    ("reentrant", "puzzlemix"),
    ("reentrant", "supermix"),
}


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
@pytest.mark.parametrize("name", automix.methods())
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_has_the_gradients_of_the_plain_step(loop: str, name: str) -> None:
    found = outcome(loop, name)
    assert found in (("refused",) if (loop, name) in REFUSED else ("yes", "-"))
    assert found != "-" or loop in ("plain sum", "bf16") or (loop, name) == ("accumulation", "recursivemix")


@pytest.mark.parametrize("kind", ["non-reentrant", "reentrant"])
def test_a_layer_inside_a_checkpoint_is_not_mixed(kind: str) -> None:
    task = automix.create_task("manifoldmix", Network(checkpointing=kind), layers=("body",))
    with pytest.raises(automix.AutomixError, match=r"layer 'body' must not be inside torch\.utils\.checkpoint"):
        task(*batch())


def test_saved_tensors_may_be_watched() -> None:
    """A context around the whole step, such as one that keeps activations on the host, is no checkpoint."""
    task = automix.create_task("manifoldmix", HandWritten(), layers=("body",))
    with torch.autograd.graph.save_on_cpu():
        task(*batch()).loss.backward()
    assert isinstance(task.student, nn.Module)
    assert all(parameter.grad is not None for parameter in task.student.parameters())
