"""The process is its user's: an import changes nothing in it, ``tune_process`` what it says."""

import os
import subprocess
import sys

import pytest

from glassformer.process import SETTINGS, THREAD_WAITING


def ask(program: str, **settings: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS} | settings
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def test_importing_changes_neither_environment_nor_threads_nor_allocator():
    program = """
import ctypes, os, torch
before, threads = dict(os.environ), torch.get_num_threads()
class Watched(ctypes.CDLL):
    def __getattr__(self, name):
        assert name != "mallopt", "the allocator is asked"
        return super().__getattr__(name)
ctypes.CDLL = Watched
import glassformer as gf
for name in gf.__all__:
    getattr(gf, name)
gf.TextClassifier("encoder-mini", d_model=4, num_layers=1, num_heads=1, d_ff=4, epochs=1).fit(["a b", "b c"], [0, 1])
changed = {name for name in os.environ if before.get(name) != os.environ[name]}
ours = changed - {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"}  # scikit-learn's, torch's
print(not ours, torch.get_num_threads() == threads)
"""
    assert ask(program).split() == ["True", "True"]


def test_a_tuned_process_has_the_settings_that_its_user_has_not_made():
    program = f"""
import os, sys, glassformer as gf
gf.tune_process()
print("torch" in sys.modules, *[os.environ[name] for name in {sorted(SETTINGS)}])
"""
    told = ask(program, LRU_CACHE_CAPACITY="7").split()
    assert told == ["False", "1000", "7", "PASSIVE", "64"]


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_how_threads_wait_is_chosen_by_the_user_or_not_at_all(chosen):
    program = f"""
import os, glassformer as gf
gf.tune_process()
print(dict((name, os.environ[name]) for name in {sorted(THREAD_WAITING)} if name in os.environ))
"""
    assert ask(program, **chosen).strip() == str(chosen)


def test_reading_a_recipe_loads_neither_torch_nor_its_task():
    program = """
import sys
from glassformer.tasks.catalog import load_recipe
print(load_recipe("europe").task, "torch" in sys.modules, "glassformer.tasks.task" in sys.modules)
"""
    assert ask(program).split() == ["text-classification", "False", "False"]
