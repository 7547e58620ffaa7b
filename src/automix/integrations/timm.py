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

from automix.core.errors import AutomixError
from automix.core.target import MixedTarget
from automix.core.transform import MixTransform
from automix.tasks.task import Task

__all__ = ["TimmMixup", "TimmTask"]


class TimmMixup:
    """A transform with ``mixup_enabled``, the switch of timm's ``--mixup-off-epoch``; labels stay rows when it is off.

    Takes batches of any size and leaves the caller's tensors unchanged; timm's own takes even sizes and writes into
    them. Use it in a loop without prefetcher (``--no-prefetcher``): timm's prefetcher mixes bytes while collating.

    Args:
        mix: The transform, for instance ``automix.CutMix(num_classes=1000)``.
    """

    def __init__(self, mix: MixTransform) -> None:
        self.mix = mix
        self.mixup_enabled = True

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.mixup_enabled:
            return self.mix(x, y)
        return x, MixedTarget.clean(y).soft(self.mix.num_classes, self.mix.label_smoothing)


class TimmTask(TrainingTask):
    """One of our tasks as a task of timm's loop.

    Build the optimizer from ``task.param_groups``, because the Mix Block has parameters too, and pass it to
    `update_after_step`, which moves the teacher. In the checkpoint of timm's saver, ``state_dict`` is the student,
    ``state_dict_ema`` the teacher, and ``task_state`` the rest, which resuming needs.

    Args:
        task: The task to train.
        **options: ``device`` and ``dtype``, as for timm's tasks.
    """

    def __init__(self, task: Task, **options: Any) -> None:
        super().__init__(**options)
        self.trainable_module: nn.Module = task

    @property
    def task(self) -> Task:
        """The task without the wrapper for several processes."""
        return unwrap_model(self.trainable_module)

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Compute the task's loss.

        Args:
            input: Images, ``(N, C, H, W)``.
            target: Labels, as the task takes them.

        Returns:
            ``loss``, ``output`` (logits), and the task's metrics.
        """
        out = self.trainable_module(input, target)
        return {**out.metrics, "loss": out.loss, "output": out.logits}

    def prepare_distributed(self, device_ids: list[Any] | None = None, **options: Any) -> "TimmTask":
        """Wrap the task for several processes.

        Args:
            device_ids: As for DistributedDataParallel.
            **options: As for DistributedDataParallel.

        Returns:
            This task.
        """
        self.trainable_module = DistributedDataParallel(self.trainable_module, device_ids=device_ids, **options)
        return self

    def setup_ema(self, *_: Any, **__: Any) -> nn.Module:
        """Return the teacher, which is the moving average already.

        Args:
            *_: Ignored.
            **__: Ignored.

        Returns:
            The teacher.
        """
        if self.task.teacher is None:
            raise AutomixError("the task has no teacher; create it with ema=True")
        return self.task.teacher

    def has_ema(self) -> bool:
        """Tell whether the task has a teacher."""
        return self.task.teacher is not None

    def update_ema(self, step: int | None = None) -> None:
        """Do nothing: `update_after_step` moves the teacher.

        Args:
            step: Ignored.
        """

    def get_eval_model(self, module: nn.Module | None = None, ema: bool = False) -> nn.Module | None:
        """Return the network to evaluate.

        Args:
            module: Ignored.
            ema: The teacher, not the student.

        Returns:
            The network; None for the teacher of a task without one.
        """
        return self.task.teacher if ema else self.task.student

    def get_clip_parameters(self, exclude_head: bool = False) -> list[nn.Parameter]:
        """Return the parameters whose gradients timm clips: all that are trained.

        Args:
            exclude_head: Leave out the last two of the student, as timm does.

        Returns:
            The parameters.
        """
        student = list(self.task.student.parameters())
        others = [p for name, p in self.task.named_parameters() if not name.startswith(("student.", "teacher."))]
        return [*(student[:-2] if exclude_head else student), *others]

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        """Return the state beyond student and teacher: the Mix Block, the step.

        Args:
            module: Ignored.
            ema: Whether the checkpoint's part is the teacher's, which has no further state.

        Returns:
            The state.
        """
        if ema:
            return {}
        state = self.task.state_dict()
        return {name: value for name, value in state.items() if not name.startswith(("student.", "teacher."))}

    def load_task_state(
        self, state: dict[str, Any] | None, strict: bool = True, module: nn.Module | None = None, ema: bool = False
    ) -> None:
        """Load the state that `get_task_state` returned.

        Args:
            state: The state.
            strict: Refuse missing and unknown names.
            module: Ignored.
            ema: Whether the checkpoint's part is the teacher's, which has no further state.
        """
        if state and not ema:
            self.task.load_state_dict({**self.task.state_dict(), **state}, strict=strict)
