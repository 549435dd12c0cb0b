"""Requests made up from the server's own description, right and wrong ones: none may end in a 5xx but 503.

``GLASSFORMER_FUZZ`` sets how many are made for each operation; ``make fuzz`` sends 20,000 in all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from .conftest import Running

pytest.importorskip("schemathesis")
EXAMPLES = int(os.environ.get("GLASSFORMER_FUZZ", "100"))


@pytest.mark.slow
def test_made_up_requests(server: Running):
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing", "--mode", "all", "--seed", "1",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    started = time.monotonic()
    metrics = server.ask("/metrics").body.decode()
    assert time.monotonic() - started < 1
    counts = re.findall(r'glassformer_requests_total\{route="([^"]*)",status="(\d+)"\} ([\d.e+]+)', metrics)
    assert not [line for line in counts if line[1].startswith("5")]
    answered = {route: sum(float(n) for r, _, n in counts if r == route) for route, _, _ in counts}
    assert answered["/v1/predict"] >= EXAMPLES
