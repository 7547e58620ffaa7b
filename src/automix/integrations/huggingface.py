"""Hugging Face's Trainer. Needs ``pip install 'automix[huggingface]'``.

    network = Logits(AutoModelForImageClassification.from_config(config))     # or any network that returns logits
    task = automix.AutoMix(network, layer="model.resnet.encoder.stages.2")
    optimizer = torch.optim.AdamW(task.param_groups(lr=1e-3))
    Trainer(TrainerModel(task), arguments, optimizers=(optimizer, None), callbacks=[UpdateTask(task)], ...)

The items of a dataset are ``{"pixel_values": image, "labels": class}``, as everywhere with the Trainer.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from automix.tasks.task import Task

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"needs {error.name}: pip install 'automix[huggingface]'", name=error.name) from None


class Logits(nn.Module):
    """A model of transformers as a task wants it: images in, logits out. ``.model`` is the model itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(pixel_values=x).logits


class TrainerModel(nn.Module):
    """A task as the Trainer's model: the task's loss while training, else the loss and logits of its classifier."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if self.training:
            if labels is None:
                raise ValueError("labels are missing: accepted for training are pixel_values and labels")
            out = self.task(pixel_values, labels)
            return {"loss": out.loss, "logits": out.logits}
        logits = self.task.classifier(pixel_values)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


class UpdateTask(TrainerCallback):
    """Calls ``task.update`` after every step of the optimizer: once for all batches whose gradients accumulate."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.task.update(min(1.0, state.global_step / state.max_steps))
