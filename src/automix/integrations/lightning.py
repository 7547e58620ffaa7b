"""Lightning: a task as a LightningModule. Needs ``pip install 'automix[lightning]'``.

    class Digits(LightningTask):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.task.param_groups(lr=0.1), momentum=0.9)
            return self.with_update(optimizer)

    Trainer(max_epochs=10).fit(Digits(automix.AutoMix(model)), train_loader, test_loader)

Lightning's checkpoint holds the whole task: student, teacher, Mix Block, step. Validation uses the classifier that
`deploy` returns: the teacher if there is one.
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from automix.core.accuracy import topk_correct
from automix.integrations.update import update_after_step
from automix.tasks.task import Task

try:
    import lightning
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"needs {error.name}: pip install 'automix[lightning]'", name=error.name) from None

__all__ = ["LightningTask"]


class LightningTask(lightning.LightningModule):
    """A LightningModule that trains a task and validates its classifier.

    Define ``configure_optimizers`` and pass your optimizer through `with_update`.

    Args:
        task: The task to train.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: Images, ``(N, C, H, W)``.

        Returns:
            Logits of the classifier, ``(N, num_classes)``.
        """
        return self.task.classifier(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Compute the task's loss and log its metrics as ``train_...``.

        Args:
            batch: Images and labels.
            batch_idx: Number of the batch; not used.

        Returns:
            The loss.
        """
        out = self.task(*batch)
        self.log_dict({f"train_{name}": value for name, value in out.metrics.items()}, batch_size=len(batch[0]))
        return out.loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log ``val_loss`` and ``val_accuracy`` (a share, 0 to 1) of the classifier.

        Args:
            batch: Images and class indices.
            batch_idx: Number of the batch; not used.
        """
        x, y = batch
        logits = self(x)
        accuracy = topk_correct(logits, y)[0].float().mean()
        values = {"val_loss": F.cross_entropy(logits, y), "val_accuracy": accuracy}
        self.log_dict(values, prog_bar=True, batch_size=len(x))

    def with_update(self, optimizer: Optimizer) -> Optimizer:
        """Let the steps of an optimizer update the task; for ``configure_optimizers``.

        Args:
            optimizer: An optimizer of ``task.param_groups``.

        Returns:
            The same optimizer.
        """
        update_after_step(self.task, optimizer, int(self.trainer.estimated_stepping_batches))
        return optimizer

    def deploy(self) -> nn.Module:
        """Return the plain classifier.

        Returns:
            The teacher if there is one, else the student; nothing of the task stays in it.
        """
        return self.task.deploy()
