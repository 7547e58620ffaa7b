"""The search: Optuna proposes configurations, and its pruner decides which of them are trained longer.

Every proposal and every score goes into a journal file at once, so that a search that was killed continues where it
was. A configuration is trained anew at each level, with a schedule of its own, rather than continued: its score is that
of a complete training.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from automix.core.draws import step_seed
from automix.core.errors import AutomixError
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_top1
from automix.studies.plan import Job, folder_name
from automix.studies.tuning.candidates import configure
from automix.studies.tuning.plan import RATES, REDUCTION, TunePlan
from automix.studies.tuning.record import Configuration

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

JOURNAL = "journal.log"
RUNS = "runs"


def open_study(folder: Path) -> "Study":
    """Open the study in a folder, or make one.

    Args:
        folder: The folder of the search, which exists.

    Returns:
        Optuna's study, in a journal file.
    """
    try:
        import optuna
    except ImportError:
        raise AutomixError("automix tune needs optuna; pip install 'automix[tune]'") from None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / JOURNAL))),
        study_name="automix tune",
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION),
    )


class Search:
    """The configurations of a search and their runs.

    Args:
        study: Optuna's study.
        plan: The settings of the search.
        folder: The folder of the search.
    """

    def __init__(self, study: "Study", plan: TunePlan, folder: Path) -> None:
        from optuna.samplers import TPESampler

        self.study, self.plan, self.folder = study, plan, folder
        if not study.trials:
            for candidate in plan.candidates:  # each of them with its usual settings first
                alpha = {f"alpha of {candidate.name}": candidate.alphas[0]} if candidate.alphas else {}
                study.enqueue_trial({"method": candidate.name, "rate": 1.0, **alpha})
        seed = step_seed(plan.base.seed, len(study.trials), stream="tuning") % 2**32
        study.sampler = TPESampler(seed=seed, n_startup_trials=len(plan.candidates))

    def ask(self) -> "Trial":
        """Ask for the next configuration.

        Returns:
            Optuna's trial, with all its parameters.
        """
        trial = self.study.ask()
        name = trial.suggest_categorical("method", [candidate.name for candidate in self.plan.candidates])
        trial.suggest_float("rate", *RATES, log=True)
        if alphas := self.plan.candidate(name).alphas:
            trial.suggest_categorical(f"alpha of {name}", alphas)
        return trial

    @property
    def asked(self) -> int:
        """Number of configurations that were proposed."""
        return sum("method" in trial.params for trial in self.study.get_trials(deepcopy=False))

    def unfinished(self) -> "list[Trial]":
        """List the trials that wait for a run: promoted ones, and those of a search that was killed."""
        from optuna.trial import Trial, TrialState

        frozen = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [Trial(self.study, trial._trial_id) for trial in frozen if "method" in trial.params]

    def level(self, trial: "Trial | FrozenTrial") -> int:
        """Tell which level a trial runs next: the number of its scores."""
        return len(self.study.trials[trial.number].intermediate_values)

    def config(self, params: dict[str, Any], epochs: int, **changes: object) -> TrainConfig:
        """Make the settings of a run.

        Args:
            params: Parameters of a trial.
            epochs: Length of the run.
            **changes: Further settings.

        Returns:
            The settings.
        """
        base, candidate = self.plan.base, self.plan.candidate(params["method"])
        return configure(base, candidate, self.rate(params), self.alpha(params), epochs, **changes)

    def rate(self, params: dict[str, Any]) -> float:
        """The learning rate of a trial, rounded to two digits."""
        return float(f"{self.plan.base.settings.lr * params['rate']:.2g}")

    def alpha(self, params: dict[str, Any]) -> float | None:
        """The alpha of a trial; None for the recipe's."""
        return params.get(f"alpha of {params['method']}")

    def job(self, params: dict[str, Any], level: int) -> Job:
        """Make the run of a trial at a level, in a folder named by its settings.

        Args:
            params: Parameters of the trial.
            level: The level.

        Returns:
            The job.
        """
        values = self.config(params, self.plan.epochs[level]).flat()
        return Job({**values, "out": str(self.folder / RUNS / folder_name(values))})

    def report(self, trial: "Trial", level: int) -> None:
        """Record the score of a finished run, and let the pruner decide whether the trial goes on.

        The first trial, plain training with the usual settings, always goes on: the others are compared with it.

        Args:
            trial: The trial.
            level: The level of the run.
        """
        from optuna.trial import TrialState

        score = deployed_top1(RunFolder(self.job(trial.params, level).folder).summary())
        if score is None:
            self.study.tell(trial, state=TrialState.FAIL)
            return
        trial.report(score, self.plan.step(level))
        if level == self.plan.last_level:
            self.study.tell(trial, score)
        elif trial.should_prune() and trial.number > 0:
            self.study.tell(trial, state=TrialState.PRUNED)

    def fail(self, trial: "Trial") -> None:
        """Record that a run failed, for instance because its loss became infinite."""
        from optuna.trial import TrialState

        self.study.tell(trial, state=TrialState.FAIL)

    def configurations(self) -> tuple[Configuration, ...]:
        """List what was tried, with its scores."""
        return tuple(self._configuration(trial) for trial in self.study.trials if "method" in trial.params)

    def _configuration(self, trial: "FrozenTrial") -> Configuration:
        scores = dict(zip(self.plan.epochs, trial.intermediate_values.values(), strict=False))
        folders = {epochs: self.job(trial.params, level).folder for level, epochs in enumerate(self.plan.epochs)}
        runs = {epochs: str(folders[epochs]) for epochs in scores}
        state = {"PRUNED": "stopped", "FAIL": "failed", "COMPLETE": "complete"}.get(trial.state.name, "waiting")
        return Configuration(
            number=trial.number,
            candidate=trial.params["method"],
            title=self.plan.candidate(trial.params["method"]).title,
            lr=self.rate(trial.params),
            alpha=self.alpha(trial.params),
            scores=scores,
            seconds=sum(float(RunFolder(Path(run)).summary()["seconds"]) for run in runs.values()),
            state=state,
            runs=runs,
        )
