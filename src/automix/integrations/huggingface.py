"""Hugging Face's Trainer. Needs ``pip install 'automix[huggingface]'``.

    network = Logits(AutoModelForImageClassification.from_config(config))     # or any network that returns logits
    task = automix.AutoMix(network, layer="model.resnet.encoder.stages.2")
    optimizer = torch.optim.AdamW(task.param_groups(lr=1e-3))
    Trainer(TrainerModel(task), arguments, optimizers=(optimizer, None), callbacks=[UpdateTask(task)], ...)

The items of a dataset are ``{"pixel_values": image, "labels": class}``, as usual with the Trainer.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.tasks.task import Task

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"needs {error.name}: pip install 'automix[huggingface]'", name=error.name) from None

__all__ = ["Logits", "TrainerModel", "UpdateTask"]


class Logits(nn.Module):
    """A model of transformers as a task expects a network: images in, logits out. ``.model`` is the model itself.

    Args:
        model: A model for image classification.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: Images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        return self.model(pixel_values=x).logits


class TrainerModel(nn.Module):
    """A task as the Trainer's model: the task's loss in training, loss and logits of its classifier in evaluation.

    Args:
        task: The task to train.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the loss and the logits of a batch.

        Args:
            pixel_values: Images, ``(N, C, H, W)``.
            labels: Class indices, ``(N,)``; required in training.

        Returns:
            ``loss`` (if there are labels) and ``logits``.
        """
        if self.training:
            if labels is None:
                raise AutomixError("labels must be given in training")
            out = self.task(pixel_values, labels)
            return {"loss": out.loss, "logits": out.logits}
        logits = self.task.classifier(pixel_values)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


class UpdateTask(TrainerCallback):
    """Callback that calls ``task.update`` after every step of the optimizer, also with accumulated gradients.

    Args:
        task: The task to update.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Update the task; called by the Trainer.

        Args:
            args: The Trainer's arguments; not used.
            state: The Trainer's state, with the number of the step.
            control: The Trainer's control; not used.
            **_: Further arguments of the Trainer; not used.
        """
        self.task.update(min(1.0, state.global_step / state.max_steps))
