"""`automix push RUN USER/NAME`: a trained classifier on the Hugging Face hub."""

import sys
from pathlib import Path

from automix.cli._flags import Switch, Which


def push(run: Path, repository: str, /, *, which: Which = "last", private: Switch = False) -> None:
    """Upload a trained classifier to the Hugging Face hub.

    The repository gets what `automix export --format timm` writes: the weights,
    the configuration that timm and transformers read, and a model card.
    Log in first: hf auth login.

    Args:
        run: A run folder, or a classifier's safetensors file.
        repository: USER/NAME; made if it does not exist.
        which: The weights of the run's last epoch or of its best.
        private: Make a new repository private.
    """
    from automix.deploy.pushing import push as push_classifier

    sys.stdout.write(push_classifier(run, repository, which=which, private=private) + "\n")
