"""timm's training loop: our transforms in place of timm.data.Mixup, our tasks in place of timm's.

mixup_fn = TimmMixup(automix.FMix(num_classes=1000))               # x, soft = mixup_fn(x, y)

task = automix.AutoMix(model)
timm_task = TimmTask(task)                                         # timm_task(x, y)["loss"]
optimizer = create_optimizer_v2(task.param_groups(lr=0.1), opt="sgd", lr=0.1)
update_after_step(task, optimizer, total_steps)                    # from automix.integrations
"""

from typing import Any

from timm.task import TrainingTask
from timm.utils.model import unwrap_model
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from automix.core.target import MixedTarget
from automix.core.transform import MixTransform
from automix.tasks.task import Task


class TimmMixup:
    """A transform with the switch that timm's loop turns at ``--mixup-off-epoch``; labels stay rows then.

    Batches of any size do, and the tensors of the caller stay as they were: timm's own takes even ones and writes into
    them. For a loop without prefetcher (``--no-prefetcher``): its prefetcher mixes bytes while they are collated.
    """

    def __init__(self, mix: MixTransform) -> None:
        self.mix = mix
        self.mixup_enabled = True

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.mixup_enabled:
            return self.mix(x, y)
        return x, MixedTarget.clean(y).soft(self.mix.num_classes, self.mix.label_smoothing)


class TimmTask(TrainingTask):
    """One of our tasks where timm's loop expects one of its own; `options` are ``device`` and ``dtype``.

    Build the optimizer from ``task.param_groups``, for the Mix Block has parameters too, and give it
    `update_after_step`, which moves the teacher. In the checkpoint that timm's saver writes, ``state_dict`` is the
    student, ``state_dict_ema`` the teacher, and ``task_state`` the rest, which resuming needs.
    """

    def __init__(self, task: Task, **options: Any) -> None:
        super().__init__(**options)
        self.trainable_module: nn.Module = task

    @property
    def task(self) -> Task:
        return unwrap_model(self.trainable_module)

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        out = self.trainable_module(input, target)
        return {**out.metrics, "loss": out.loss, "output": out.logits}

    def prepare_distributed(self, device_ids: list[Any] | None = None, **options: Any) -> "TimmTask":
        self.trainable_module = DistributedDataParallel(self.trainable_module, device_ids=device_ids, **options)
        return self

    def setup_ema(self, *_: Any, **__: Any) -> nn.Module:
        """The teacher is the moving average already."""
        if self.task.teacher is None:
            raise ValueError("the task has no teacher: accepted is one with momentum, for instance by ema=True")
        return self.task.teacher

    def has_ema(self) -> bool:
        return self.task.teacher is not None

    def update_ema(self, step: int | None = None) -> None:
        """Nothing: `update_after_step` moves the teacher."""

    def get_eval_model(self, module: nn.Module | None = None, ema: bool = False) -> nn.Module | None:
        return self.task.teacher if ema else self.task.student

    def get_clip_parameters(self, exclude_head: bool = False) -> list[nn.Parameter]:
        student = list(self.task.student.parameters())
        others = [p for name, p in self.task.named_parameters() if not name.startswith(("student.", "teacher."))]
        return [*(student[:-2] if exclude_head else student), *others]

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        if ema:
            return {}
        state = self.task.state_dict()
        return {name: value for name, value in state.items() if not name.startswith(("student.", "teacher."))}

    def load_task_state(
        self, state: dict[str, Any] | None, strict: bool = True, module: nn.Module | None = None, ema: bool = False
    ) -> None:
        if state and not ema:
            self.task.load_state_dict({**self.task.state_dict(), **state}, strict=strict)
