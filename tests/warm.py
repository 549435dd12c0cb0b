"""Programs as a user starts them, each in a process of its own, but for the seconds that imports take."""

import json
import os
import subprocess
import sys
from pathlib import Path

WARM = """
import atexit, json, os, runpy, sys, traceback
import sklearn.linear_model, sklearn.model_selection, torch
import glassformer as gf
for name in gf.__all__:
    getattr(gf, name)
for file in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        code = 0
        said = os.open(f"{file}.said", os.O_CREAT | os.O_WRONLY)
        os.dup2(said, 1), os.dup2(said, 2), os.chdir(os.path.dirname(file))
        try:
            runpy.run_path(file, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            code = 1
        atexit._run_exitfuncs()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    os.waitpid(child, 0)[1] and open(f"{file}.failed", "w").close()
"""


def run_all(programs: dict[str, str], folder: Path) -> dict[str, str]:
    """Run each program in a folder of its own; the names of those that failed, with what they said."""
    files = {name: folder / name / "program.py" for name in programs}
    for name, file in files.items():
        file.parent.mkdir()
        file.write_text(programs[name], encoding="utf-8")
    given = json.dumps([str(file) for file in files.values()])
    subprocess.run([sys.executable, "-c", WARM], input=given, text=True, check=True, env=os.environ)
    failed = {name: file for name, file in files.items() if Path(f"{file}.failed").exists()}
    return {name: Path(f"{file}.said").read_text(encoding="utf-8")[-3000:] for name, file in failed.items()}
