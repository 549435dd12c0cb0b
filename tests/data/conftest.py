"""Files of a data set as tests write them, and what the doctor found by its codes."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.findings import DoctorReport, Finding

Content = str | bytes | Iterable[str]


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, Content], Path]:
    """``put("a.csv", content)``: the path of a file with this text, these bytes or these lines."""

    def write(name: str, content: Content) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, str | bytes) else "\n".join([*content, ""])
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def json_lines(records: Iterable[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def class_labels(
    path: Path, columns: dict[str, Sequence[Any]], names: Sequence[Any], several: bool = False
) -> Path:
    """A Parquet file whose last column has numbers, with the names that the package datasets notes for them."""
    feature: dict[str, Any] = {"names": list(names), "_type": "ClassLabel"}
    feature = {"feature": feature, "_type": "List"} if several else feature
    note = json.dumps({"info": {"features": {[*columns][-1]: feature}}})
    pq.write_table(pa.table(columns).replace_schema_metadata({"huggingface": note}), path)
    return path


def by_code(report: DoctorReport, *severities: str) -> dict[str, Finding]:
    """The findings by their codes (the last of a code); only those of the named severities, where some are named."""
    return {f.code: f for f in report.findings if not severities or f.severity in severities}


def dataset(**splits: tuple[Sequence[Any], Sequence[Any] | None]) -> TextDataset:
    """A data set of the texts and labels of each split."""
    return TextDataset("made up", {name: TextSplit(*given, name) for name, given in splits.items()})
