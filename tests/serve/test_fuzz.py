"""Requests made up from the server's own description, right and wrong ones: none may end in a 5xx but 503.

``GLASSFORMER_FUZZ`` sets how many are made for each operation; ``make fuzz`` sends 20,000 in all, and names in
``GLASSFORMER_FUZZ_RESULT`` the file that holds what came back.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from glassformer.runtime import machine_facts, versions

from .conftest import Running, asked_for_health

pytest.importorskip("schemathesis")
EXAMPLES = int(os.environ.get("GLASSFORMER_FUZZ", "100"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
RESULT = os.environ.get("GLASSFORMER_FUZZ_RESULT")


@pytest.mark.slow
def test_made_up_requests(server: Running):
    options = (
        f"--checks {CHECKS} --max-examples {EXAMPLES} --phases examples,coverage,fuzzing --mode all --seed 1"
    )
    address = f"http://127.0.0.1:{server.port}/openapi.json"
    command = [sys.executable, "-m", "schemathesis.cli", "run", address, *options.split()]
    with asked_for_health(server) as seconds:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    metrics = server.ask("/metrics").body.decode()
    counts = re.findall(r'glassformer_requests_total\{route="([^"]*)",status="(\d+)"\} ([\d.e+]+)', metrics)
    statuses = Counter()
    for _, status, number in counts:
        statuses[f"{status[0]}xx"] += int(float(number))
    statuses["2xx"] -= len(seconds) + 1  # those of this test: /health, and the description
    if RESULT:
        write(Path(RESULT), statuses, max(seconds))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert not [line for line in counts if line[1].startswith("5")]
    answered = {route: sum(float(n) for r, _, n in counts if r == route) for route, _, _ in counts}
    assert answered["/v1/predict"] >= EXAMPLES
    assert max(seconds) < 1  # /health, throughout


def write(path: Path, statuses: Counter, slowest: float) -> None:
    """The counts, with when and where they were made."""
    about = {
        "benchmark": "made-up requests",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "versions": versions("fastapi", "uvicorn", "schemathesis"),
        "examples": EXAMPLES,
        "statuses": dict(statuses),
        "slowest_health_ms": round(1000 * slowest, 1),
    }
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
