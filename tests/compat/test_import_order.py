"""Each fact needs an interpreter of its own, because an import cannot be undone."""

from __future__ import annotations

import pytest

from tests.helpers.interpreters import run_python

pytestmark = pytest.mark.prompts

# What someone who patched OpenPrompt's imports himself would have written, for any supported transformers.
OWN_PATCH = """
import importlib, sys, types
import transformers.processing_utils, transformers, torch
def put(module, name, value):
    try:
        target = importlib.import_module(module)
    except ModuleNotFoundError:
        target = sys.modules[module] = types.ModuleType(module)
        target.__path__ = []
    if not hasattr(target, name):
        setattr(target, name, value)
transformers = sys.modules["transformers"]
put("transformers.generation_utils", "GenerationMixin", transformers.GenerationMixin)
put("transformers", "AdamW", torch.optim.AdamW)
put("transformers.tokenization_utils", "SPECIAL_TOKENS_MAP_FILE", "x.json")
put("transformers.data.processors", "own", True)
put("transformers.data.processors.utils", "InputExample", object)
put("transformers.data.processors.utils", "InputFeatures", object)
"""


def test_importing_the_package_loads_neither_torch_nor_transformers_nor_openprompt() -> None:
    heavy = "{'torch', 'transformers', 'openprompt', 'numpy'}"
    assert run_python(f"import openprompt_meta, sys; print(sorted({heavy} & set(sys.modules)))") == "[]"


@pytest.mark.parametrize(
    "statement",
    [
        "import openprompt_meta; import openprompt",
        "import openprompt_meta; from openprompt.prompts import load_template",
        "import openprompt_meta.verbalizers.rep",
        "from openprompt_meta import RepVerbalizer",
        "import openprompt_meta.encoder.loading",
        "import openprompt_meta.openprompt_runs",
    ],
)
def test_openprompt_finds_our_classes_whatever_is_imported_first(statement: str) -> None:
    out = run_python(
        f"{statement}\n"
        "import openprompt.prompts, openprompt_meta\n"
        "tables = openprompt.prompts\n"
        "print(tables.TEMPLATE_CLASS['prompt_pool_template'] is openprompt_meta.PromptPoolTemplate)\n"
        "print(tables.VERBALIZER_CLASS['rep_verbalizer'] is openprompt_meta.RepVerbalizer)\n"
    )
    assert out.split() == ["True", "True"]


def test_openprompt_imported_first_by_someone_who_patched_it_is_registered_with_at_once() -> None:
    out = run_python(
        OWN_PATCH + "import openprompt\n"
        "from openprompt.plms.utils import TokenizerWrapper\n"
        "from openprompt.prompts import TEMPLATE_CLASS\n"
        "own = lambda self, encoder_inputs: encoder_inputs\n"
        "TokenizerWrapper.add_special_tokens = own\n"
        "print('prompt_pool_template' in TEMPLATE_CLASS)\n"
        "import openprompt_meta\n"
        "print('prompt_pool_template' in TEMPLATE_CLASS, TokenizerWrapper.add_special_tokens is own)\n"
    )
    assert out.split() == ["False", "True", "True"]


def test_a_failed_import_of_openprompt_can_be_repeated_after_ours() -> None:
    out = run_python(
        "try:\n"
        "    import openprompt\n"
        "except ImportError:\n"
        "    print('failed')\n"
        "import openprompt_meta\n"
        "import openprompt.prompts\n"
        "print('rep_verbalizer' in openprompt.prompts.VERBALIZER_CLASS)\n"
    )
    assert out.split() == ["failed", "True"]


def test_what_a_late_failure_of_openprompt_leaves_behind_does_not_spoil_the_next_import() -> None:
    out = run_python(
        OWN_PATCH + "sys.modules['tensorboardX'] = None\n"  # the trainer asks for it, when much is imported already
        "try:\n"
        "    import openprompt\n"
        "except ImportError:\n"
        "    print('failed', 'openprompt.utils' in sys.modules)\n"
        "del sys.modules['tensorboardX']\n"
        "import openprompt_meta, openprompt\n"
        "print(all(hasattr(openprompt, name) for name in ('utils', 'data_utils', 'plms', 'prompts')))\n"
    )
    assert out.split() == ["failed", "True", "True"]


def test_asking_where_openprompt_is_does_not_import_anything() -> None:
    out = run_python(
        "import importlib.util, sys, openprompt_meta\n"
        "print(importlib.util.find_spec('openprompt').origin.endswith('__init__.py'), 'torch' in sys.modules)\n"
    )
    assert out == "True False"


def test_the_imported_openprompt_shows_nothing_of_the_hook() -> None:
    import openprompt

    module = type(openprompt.__loader__).__module__
    assert not module.startswith("openprompt_meta")
    assert openprompt.__spec__ is not None
    assert openprompt.__spec__.loader is openprompt.__loader__


def test_importing_ours_again_installs_no_second_finder() -> None:
    out = run_python(
        "import importlib, sys, openprompt_meta\n"
        "before = len(sys.meta_path)\n"
        "importlib.reload(openprompt_meta)\n"
        "print(len(sys.meta_path) - before)\n"
    )
    assert out == "0"
