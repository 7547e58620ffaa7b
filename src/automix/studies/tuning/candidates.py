"""What is tried: methods, each with the alphas among which the search chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from automix.core.validation import unknown_name
from automix.methods import methods
from automix.runs.config import TrainConfig
from automix.studies.settings import Values, merge_values
from automix.training.defaults import warmup_for


@dataclass(frozen=True)
class Candidate:
    """A method to try.

    Attributes:
        name: Its name for ``automix tune --methods``.
        title: Its name in tables.
        values: Settings of `automix train` that make it.
        alphas: Alphas to choose from, the usual one first; the recipe's if there is none.
    """

    name: str
    title: str
    values: Values = field(default_factory=dict)
    alphas: tuple[float, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it mixes nothing."""
        return self.values["method"] == "vanilla"


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("plain-ema", "plain + EMA", {"method": "vanilla", "ema": True}),
    Candidate("regmixup", "RegMixup", {"method": "regmixup"}, (10.0, 20.0)),
    Candidate("automix", "AutoMix", {"method": "automix"}),
    Candidate("mixup", "Mixup", {"method": "mixup"}, (0.2, 1.0)),
    Candidate("resizemix", "ResizeMix", {"method": "resizemix"}, (1.0, 0.2)),
    Candidate("cutmix", "CutMix", {"method": "cutmix"}, (1.0, 0.2)),
    Candidate("automix-fast", "AutoMix (fast)", {"method": "automix", "preset": "fast"}),
    Candidate("plain", "plain", {"method": "vanilla", "ema": False}),
)
"""The methods that are tried if none are given, in this order: a short search tries the first few."""

OTHER_ALPHAS = (1.0, 0.2)


def find_candidates(names: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Look up methods to try.

    Args:
        names: Names of `CANDIDATES` or of any method; all of `CANDIDATES` if empty.

    Returns:
        The candidates. Plain training with EMA is always the first: the others are compared with it.
    """
    known = {candidate.name: candidate for candidate in CANDIDATES}
    for name in names:
        if name not in known and name not in methods():
            raise unknown_name("method", name, dict.fromkeys([*known, *methods()]))
    others = {name: Candidate(name, name, {"method": name}, OTHER_ALPHAS) for name in methods() if name != "vanilla"}
    others["vanilla"] = known["plain"]
    chosen = {name: known.get(name) or others[name] for name in names} or known
    unique = {candidate.name: candidate for candidate in (CANDIDATES[0], *chosen.values())}
    return tuple(unique.values())


def configure(
    base: TrainConfig, candidate: Candidate, lr: float, alpha: float | None, epochs: int, **changes: object
) -> TrainConfig:
    """Make the settings of one run.

    Args:
        base: The settings that all runs share.
        candidate: The method.
        lr: The learning rate.
        alpha: The alpha; the recipe's if None.
        epochs: Length of the training. It is evaluated once, at its end.
        **changes: Further settings.

    Returns:
        The settings.
    """
    warmup = warmup_for(epochs) if base.settings.warmup_epochs else 0
    own = {
        "lr": lr, "lr_floor": base.settings.lr_floor * lr / base.settings.lr, "alpha": alpha, "epochs": epochs,
        "warmup_epochs": warmup, "freeze": min(base.settings.freeze, epochs), "eval_every": epochs, "eval_last": 1,
    }  # fmt: skip
    values = merge_values(base.flat(), candidate.values)
    return TrainConfig.from_flat({**values, **own, **changes})
