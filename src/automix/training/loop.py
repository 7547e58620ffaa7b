"""The training loop. A step reads top to bottom: batch -> task -> loss -> optimizer -> task.update.

The loop knows nothing of any method. All randomness is a function of (seed, step, part), so that the step number is all
that resuming needs to know.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from automix.core.accuracy import topk_correct
from automix.core.draws import step_seed
from automix.networks.head import body_parameters
from automix.runs.metrics import deployed_top1
from automix.tasks.task import Task
from automix.training.distributed import World
from automix.training.hardware import Precision, autocast
from automix.training.log import RunLog
from automix.training.run import Run
from automix.training.signals import Stopped, StopRequest


class NotFiniteError(ArithmeticError):
    """The loss or a gradient is NaN or infinite; raised before the optimizer has moved anything."""

    exit_code = 1


def fit(run: Run, log: RunLog, stop: StopRequest) -> None:
    """Train from the run's step to the end; evaluate, draw and save on the way.

    Args:
        run: The run.
        log: Its log.
        stop: Polled in every step.
    """
    run.task.train()
    batches = run.data.loader.batches(run.step, run.total_steps)
    if run.step == 0:
        log.picture(run, epoch=0)
    log.start_clock()
    if run.open_epoch:  # a signal ended the run in the evaluation
        log.reopen_epoch(run.open_epoch)
        close_epoch(run, log, stop)
        run.save_checkpoint()
    while run.step < run.total_steps:
        log.step(run, training_step(run, batches, stop))
        if run.step % run.steps_per_epoch == 0:
            close_epoch(run, log, stop)
        leaving = stop.is_agreed and run.step < run.total_steps
        if leaving or run.checkpoint_is_due():
            run.save_checkpoint()
        if leaving:
            raise stopped(run, stop)


def stopped(run: Run, stop: StopRequest) -> Stopped:
    """The exception that ends a run whose state is saved."""
    done = f"stopped after step {run.step} of {run.total_steps}"
    return Stopped(f"{done}; continue with automix train --resume --out {run.folder.path}", stop.signal)


def training_step(run: Run, batches: Iterator[tuple[Tensor, Tensor]], stop: StopRequest) -> dict[str, float]:
    """Take one step of the optimizer and return the metrics, averaged over all parts and processes."""
    pieces = run.config.accumulate
    run.schedule.step_update(run.step)
    terms: list[dict[str, Tensor]] = []
    for piece in range(pieces):
        x, y = (tensor.to(run.device, non_blocking=True) for tensor in next(batches))
        part = run.data.loader.plan.micro_batch_index(piece)
        torch.manual_seed(step_seed(run.config.seed, run.step, part, stream="dropout"))
        with _no_sync_until_last(run, piece):
            with autocast(run.precision, run.device):
                out = run.network(x, y)
            run.scaler.scale(out.loss / pieces).backward()
        terms.append({"loss": out.loss.detach(), **out.metrics})
    if run.trains_head_only:
        for parameter in body_parameters(run.task.student):
            parameter.grad = None  # optimizers pass over it: no momentum, no weight decay
    run.scaler.unscale_(run.optimizer)
    clip = run.config.settings.clip_grad
    norms = gradient_norms(run.optimizer)
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(run.trained_parameters, clip, norms["gradient_norm"])
    metrics = _average(run, terms, norms, stop)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.optimizer.zero_grad()
    run.task.update(run.step / run.total_steps)
    run.step += 1
    return metrics


def gradient_norms(optimizer: Optimizer) -> dict[str, Tensor]:
    """The norm of all gradients, and that of each named part (student, mix_block) where there are several."""
    parts: dict[str, list[Tensor]] = {}
    for group in optimizer.param_groups:
        parts.setdefault(group["name"], []).extend(p.grad for p in group["params"] if p.grad is not None)
    norms = {f"gradient_norm_{name}": torch.nn.utils.get_total_norm(gradients) for name, gradients in parts.items()}
    total = torch.nn.utils.get_total_norm(list(norms.values()))
    return {"gradient_norm": total, **(norms if len(norms) > 1 else {})}


def _average(run: Run, terms: list[dict[str, Tensor]], norms: dict[str, Tensor], stop: StopRequest) -> dict[str, float]:
    """Average a step's numbers, with one exchange between processes and one read from the device.

    Whether to stop, and whether all is finite, is decided on these averages, so that all processes decide alike.
    """
    means = {name: torch.stack([piece[name].float() for piece in terms]).mean() for name in terms[0]}
    means |= {name: norm.float() for name, norm in norms.items()}
    means["stop"] = means["loss"].new_tensor(float(stop.poll()))
    values = run.world.mean(torch.stack(list(means.values()))).tolist()
    metrics = dict(zip(means, values, strict=True))
    stop.is_agreed = metrics.pop("stop") > 0
    if bad := not_finite(metrics, run.scaler):
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        named = " and ".join(bad)
        raise NotFiniteError(f"step {run.step}: {named} not finite ({numbers}); the weights are those before this step")
    return metrics


def not_finite(metrics: dict[str, float], scaler: torch.amp.GradScaler) -> list[str]:
    """List the loss terms and gradients that are NaN or infinite and must stop the run.

    With fp16 an infinite gradient is ordinary: the scaler leaves the step out and halves its factor. Where the factor
    has fallen below 1 and the gradient is still infinite, scaling is not the reason.
    """
    bad = [name for name, value in metrics.items() if not math.isfinite(value)]
    gradients = [name for name in bad if name.startswith("gradient_norm")]
    if gradients and len(gradients) == len(bad) and scaler.is_enabled() and scaler.get_scale() >= 1:
        return []
    return bad if "loss" in bad or gradients else []


def _no_sync_until_last(run: Run, piece: int) -> AbstractContextManager[None]:
    """Exchange gradients between processes once a step, with its last part."""
    if isinstance(run.network, DistributedDataParallel) and piece + 1 < run.config.accumulate:
        return run.network.no_sync()
    return nullcontext()


def close_epoch(run: Run, log: RunLog, stop: StopRequest) -> None:
    """Finish an epoch. A signal in its evaluation saves and leaves at once; the resumed run evaluates first."""
    if finish_epoch(run, log, stop):
        run.open_epoch = {}
        return
    run.open_epoch = log.open_epoch()
    run.save_checkpoint()
    raise stopped(run, stop)


def finish_epoch(run: Run, log: RunLog, stop: StopRequest) -> bool:
    """Evaluate, log, keep the best classifier, draw. Returns False if a signal ended the evaluation."""
    epoch, epochs = run.step // run.steps_per_epoch, run.config.settings.epochs
    accuracy: dict[str, float] = {}
    if epoch % run.config.eval_every == 0 or epoch > epochs - run.config.eval_last:
        test = run.data.loader.test_batches()
        measured = measure_accuracy(run.task, test, run.device, run.precision, run.world, stop)
        if measured is None:
            return False
        accuracy = measured
        log.diagnose(run, accuracy)
    log.epoch(run, epoch, accuracy)
    top1 = deployed_top1(accuracy)
    if top1 is not None and top1 > run.best["top1"]:
        run.best = {"top1": top1, "epoch": epoch}
        run.save_classifier("best", accuracy)
    if epoch == epochs:
        run.save_classifier("last", accuracy)
    if epoch % run.epochs_between_pictures == 0:
        log.picture(run, epoch)
    log.start_clock()
    return True


@torch.no_grad()
def measure_accuracy(
    task: Task,
    batches: Iterator[tuple[Tensor, Tensor]],
    device: torch.device,
    precision: Precision,
    world: World,
    stop: StopRequest | None = None,
) -> dict[str, float] | None:
    """Measure top-1 and top-5 accuracy of each network; every process evaluates its share of the test set.

    Args:
        task: The task; in training mode again afterwards.
        batches: Test images and labels of this process.
        device: Where the task is.
        precision: Precision of the forward pass.
        world: The processes that evaluate together.
        stop: Polled before every batch.

    Returns:
        Percentages ``student_top1``, ``student_top5`` and, with a teacher, ``teacher_top1``, ``teacher_top5``; None if
        any process was asked to stop.
    """
    networks: dict[str, nn.Module] = {"student": task.student}
    if task.teacher is not None:
        networks["teacher"] = task.teacher
    world.share_buffers(task)
    task.eval()
    right = torch.zeros(len(networks), 2, dtype=torch.float64)
    count, interrupted = torch.zeros(2, 1, dtype=torch.float64)
    for x, y in batches:
        if stop is not None and stop.is_requested:
            interrupted += 1
            break
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        count += len(y)
        for number, network in enumerate(networks.values()):
            with autocast(precision, device):
                logits = network(x)
            right[number] += topk_correct(logits, y, (1, 5)).sum(dim=1).cpu()
    task.train()
    if world.total(interrupted) > 0:
        return None
    per_cent = 100 * world.total(right) / world.total(count)
    names = [f"{network}_{top}" for network in networks for top in ("top1", "top5")]
    return dict(zip(names, per_cent.flatten().tolist(), strict=True))
