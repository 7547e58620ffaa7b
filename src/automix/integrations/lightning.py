"""Lightning: a task as a LightningModule. Needs ``pip install 'automix[lightning]'``.

    class Digits(LightningTask):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.task.param_groups(lr=0.1), momentum=0.9)
            return self.with_update(optimizer)

    Trainer(max_epochs=10).fit(Digits(automix.AutoMix(model)), train_loader, test_loader)

Lightning's checkpoint holds all of the task: student, teacher, Mix Block, step. What is validated is the classifier
that `deploy` returns, the teacher where there is one.
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from automix.core.accuracy import topk_correct
from automix.integrations import update_after_step
from automix.tasks.task import Task

try:
    import lightning
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"needs {error.name}: pip install 'automix[lightning]'", name=error.name) from None


class LightningTask(lightning.LightningModule):
    """Trains `task` and validates its classifier; the optimizer is yours, passed through `with_update`."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Tensor) -> Tensor:
        """The classifier's logits."""
        return self.task.classifier(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        out = self.task(*batch)
        self.log_dict({f"train_{name}": value for name, value in out.metrics.items()}, batch_size=len(batch[0]))
        return out.loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        right = topk_correct(logits, y)[0].float().mean()
        self.log_dict({"val_loss": F.cross_entropy(logits, y), "val_accuracy": right}, prog_bar=True, batch_size=len(x))

    def with_update(self, optimizer: Optimizer) -> Optimizer:
        """`optimizer`, whose steps now move the teacher and the schedules too; for ``configure_optimizers``."""
        update_after_step(self.task, optimizer, int(self.trainer.estimated_stepping_batches))
        return optimizer

    def deploy(self) -> nn.Module:
        """The plain classifier to keep."""
        return self.task.deploy()
