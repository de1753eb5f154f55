"""Model folders on the Hugging Face Hub: the three files of one, and nothing else."""

from pathlib import Path
from typing import Any

from tsformer import __version__
from tsformer.errors import ConfigError, ModelFolderError
from tsformer.model.folder import FILES


def download_folder(name: str, revision: str | None) -> tuple[Path, Path]:
    """Download a model folder, or find it in the cache.

    Args:
        name: of the repository.
        revision: branch, tag or commit.

    Returns:
        The folder, and the cache of its repository, to which its links lead.

    Raises:
        ModelFolderError: it cannot be had; says why.
        ConfigError: the package huggingface_hub is missing.
    """
    hub = _library()
    try:
        folder = hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(FILES),
            library_name="tsformer",
            library_version=__version__,
        )
    except Exception as error:  # of the address, the network, the server or the cache
        at = f" at {revision!r}" if revision else ""
        raise ModelFolderError(
            f"{name}: neither a folder here nor a repository that can be downloaded{at} "
            f"({_reason(error)})."
        ) from error
    path = Path(folder)
    return path, path.parents[1]


def upload_folder(
    folder: Path, name: str, *, private: bool, revision: str | None, message: str
) -> str:
    """Upload a model folder, and return the address of the commit.

    Raises:
        ModelFolderError: it failed; says why.
        ConfigError: the package huggingface_hub is missing.
    """
    api = _library().HfApi(library_name="tsformer", library_version=__version__)
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=revision,
            commit_message=message,
            allow_patterns=list(FILES),
        )
    except Exception as error:  # of the name, the network, the server or a right that is missing
        raise ModelFolderError(f"{name}: the upload failed ({_reason(error)}).") from error
    return str(commit.commit_url)


def _library() -> Any:
    try:
        import huggingface_hub  # here, as it is an extra that few need
    except ImportError as error:
        raise ConfigError(
            "the Hugging Face Hub needs the package huggingface_hub: pip install 'tsformer[hub]'"
        ) from error
    return huggingface_hub


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
