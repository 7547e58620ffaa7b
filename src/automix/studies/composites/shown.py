"""The run that stands for a row in a figure, and what it has kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automix.evaluation.results_file import read_results
from automix.pictures.mixed_samples import MixedSamples
from automix.runs.folder import RunFolder
from automix.runs.metrics import Network
from automix.studies.cells import NETWORKS
from automix.studies.results import ResultTable


@dataclass(frozen=True)
class ShownRun:
    """The first trial of a row.

    Attributes:
        title: The row's name in the figure.
        network: The network that the paper shows of it, or the one there is.
        folder: The run folder.
    """

    title: str
    network: Network
    folder: RunFolder

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.folder.read_values()["method"])

    def evaluation(self, evaluator: str) -> dict[str, Any] | None:
        """Read the entry of an evaluator, or None if it has not run, or has not kept its series."""
        entry = read_results(self.folder.evaluation_of(self.network)).get(evaluator)
        return entry if entry and "series" in entry else None

    def samples(self) -> MixedSamples | None:
        """Read the mixed samples that were kept, or None if there are none."""
        return MixedSamples.read(self.folder.samples) if self.folder.samples.is_file() else None


def shown_runs(tables: Sequence[ResultTable], out: Path) -> list[ShownRun]:
    """List the first trial of each row that has results.

    Args:
        tables: The results of an experiment.
        out: The folder of the runs.

    Returns:
        One run for each row, in the order of the rows.
    """
    found: dict[str, ShownRun] = {}
    for row in (row for table in tables for row in table.rows):
        for network in (row.paper_network, *NETWORKS):
            if (folders := row.results[network].folders) and row.row not in found:
                found[row.row] = ShownRun(row.title, network, RunFolder(out / folders[0]))
    return list(found.values())


def with_samples(runs: Sequence[ShownRun], lams: Sequence[float]) -> Iterator[tuple[ShownRun, MixedSamples]]:
    """Iterate over the runs that have kept mixed samples at all of the lams, with the samples.

    Figures share their runs, but not their lams: what a run has kept may be of another figure.
    """
    for run in runs:
        samples = run.samples()
        if samples is not None and all(lam in samples.mixed for lam in lams):
            yield run, samples
