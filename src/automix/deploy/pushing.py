"""A trained classifier on the Hugging Face hub: one folder of timm's, one upload."""

import tempfile
from pathlib import Path

from automix.core.errors import AutomixError, one_line
from automix.deploy.timm_folder import export_timm
from automix.runs.folder import Which


def push(
    run: Path,
    repository: str,
    *,
    which: Which = "last",
    private: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Upload a classifier to the Hugging Face hub, as the folder that `export_timm` writes, in one commit.

    Args:
        run: A run folder, or a classifier's safetensors file.
        repository: The repository, ``user/name``; made if it does not exist.
        which: In a run folder, the weights of the last epoch or of the best one on the test set.
        private: Make a new repository private.
        token: The access token; that of ``hf auth login`` if not given.
        endpoint: Address of the hub; huggingface.co, or HF_ENDPOINT, if not given.

    Returns:
        The address of the commit.

    Raises:
        AutomixError: The name is not of the form user/name, the network cannot be exported, or the hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    owner, slash, name = repository.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise AutomixError(f"repository must be user/name, got {repository!r}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = export_timm(run, Path(temporary) / "model", which)
        api = HfApi(endpoint=endpoint, token=token, library_name="automix")
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Classifier trained with automix"
            )
        except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError) as error:
            raise AutomixError(f"{repository}: the hub refused ({one_line(error)[:200]})") from None
    return str(done.commit_url)
