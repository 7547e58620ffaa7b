"""Choosing method, learning rate and alpha for a dataset: the search behind `automix tune`.

`tune` trains short runs of many configurations and longer ones of the better half, all on a part of the training
images, and scores them on the rest. Optuna proposes the configurations and decides which of them are trained longer.
"""

from automix.studies.tuning.candidates import CANDIDATES, Candidate, find_candidates
from automix.studies.tuning.plan import TunePlan, plan_tuning
from automix.studies.tuning.record import Configuration, Margin, TuneRecord, read_record
from automix.studies.tuning.tune import tune

__all__ = [
    "CANDIDATES",
    "Candidate",
    "Configuration",
    "Margin",
    "TunePlan",
    "TuneRecord",
    "find_candidates",
    "plan_tuning",
    "read_record",
    "tune",
]
