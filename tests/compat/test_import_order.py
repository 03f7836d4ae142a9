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


@pytest.mark.parametrize(
    "before",
    [
        "import openprompt_meta",
        "import transformers, openprompt_meta",
        "import openprompt_meta, transformers",
        "import openprompt_meta, transformers.processing_utils",
        "import openprompt_meta, openprompt",
    ],
)
def test_adamw_is_found_in_transformers_whatever_is_imported_before(before: str) -> None:
    out = run_python(
        f"{before}\n"
        "from transformers import AdamW, get_linear_schedule_with_warmup\n"
        "import openprompt.trainer, transformers, torch\n"
        "print(AdamW is transformers.AdamW, openprompt.trainer.AdamW is AdamW)\n"
        "print(AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3).param_groups[0]['weight_decay'])\n"
        "print(hasattr(transformers, 'AdamZ'), hasattr(transformers.models, 'AdamW'))\n"
    )
    assert out.split() == ["True", "True", "0.0", "False", "False"]


def test_transformers_is_asked_before_the_stand_in() -> None:
    out = run_python(
        "import transformers\n"
        "transformers.AdamW = object\n"
        "import openprompt_meta\n"
        "from transformers import AdamW\n"
        "print(AdamW is object)\n"
    )
    assert out == "True"


def test_importing_transformers_after_ours_does_not_load_torch() -> None:
    lone = run_python("import sys, transformers; print('torch' in sys.modules)")
    assert run_python("import sys, openprompt_meta, transformers; print('torch' in sys.modules)") == lone


def test_learn2learn_is_imported_without_gym_and_torchvision() -> None:
    out = run_python(
        "import sys\n"
        "sys.modules['gym'] = sys.modules['torchvision'] = None\n"
        "import openprompt_meta\n"
        "import learn2learn as l2l, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "learner = l2l.algorithms.MAML(model, lr=0.1).clone()\n"
        "learner.adapt(learner(torch.ones(3, 2)).square().mean())\n"
        "texts = l2l.data.MetaDataset(torch.utils.data.TensorDataset(torch.zeros(3, 2), torch.tensor([0, 1, 1])))\n"
        "print(len(texts.labels), l2l.nn.Flatten, l2l.optim.LearnableOptimizer)\n"
        "print(l2l.clone_module(model).weight.requires_grad, l2l.__version__, hasattr(l2l, 'nothing'))\n"
        "from learn2learn.algorithms import MetaSGD\n"
        "for part in ('vision', 'gym'):\n"
        "    try:\n"
        "        getattr(l2l, part)\n"
        "    except ImportError as error:\n"
        "        print(type(error).__name__, error)\n"
        "from openprompt_meta.compat.maml import load_maml\n"
        "print(load_maml() is l2l.algorithms.MAML)\n"
    )
    lines = out.splitlines()
    assert lines[0].startswith("2 <class 'learn2learn.nn.misc.Flatten'>")
    assert lines[1] == "True 0.2.0 False"
    assert lines[2].startswith("CompatibilityError learn2learn.vision cannot be imported: torchvision")
    assert lines[3].startswith("CompatibilityError learn2learn.gym cannot be imported: gym")
    assert "algorithms, data, nn and optim work without it" in lines[3]
    assert lines[4] == "True"
