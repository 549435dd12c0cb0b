"""The table of prediction in int8, from int8.json."""

from __future__ import annotations

from benchmarks.pages.tables_speed import measured, read, times

WAYS = {
    "torch, fp32": "fp32",
    "torch, bf16": "bf16",
    "torch._int_mm": "`_int_mm`",
    "onednn.qlinear_pointwise": "`qlinear_pointwise`",
    "glassformer": "ours",
}


def int8() -> str:
    """Prediction and products in int8 beside the other formats, at levels limited by switches, from int8.json."""
    result = read("int8")
    if result is None:
        return "Not measured yet: `benchmarks/speed/int8.py`.\n"
    lines = [
        "| Level | Reviews | Format | Seconds | int8 takes less | Labels as in fp32 | Accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    beside = ["| Level | Layer, 1,024 rows | " + " | ".join(WAYS.values()) + " |"]
    beside.append("|---|---|" + "---|" * len(WAYS))
    for level in result["levels"].values():
        found = level["prediction"]
        for name, seconds in found["seconds"].items():
            ratio = times(found["int8_against"].get(name))
            share, right = found["labels_as_in_fp32"][name], found["accuracy"][name]
            spent = f"{seconds['median']:.1f} ({seconds['min']:.1f} to {seconds['max']:.1f})"
            row = (
                level["level"],
                f"{found['reviews']:,}",
                name,
                spent,
                ratio,
                f"{share:.2%}",
                f"{right:.2%}",
            )
            lines.append("| " + " | ".join(row) + " |")
        for one in (product for product in level["products"] if product["rows"] == 1024):
            told = [one["microseconds"].get(way, {}).get("median") for way in WAYS]
            inexact = [way for way, right in one["exact"].items() if not right]
            shown = [
                "" if spent is None else f"{spent / 1000:.2f}" + " (sums wrong)" * (way in inexact)
                for way, spent in zip(WAYS, told, strict=True)
            ]
            beside.append(
                f"| {level['level']} | {one['inputs']} → {one['columns']} | " + " | ".join(shown) + " |"
            )
    told = [f"Products in milliseconds. Seconds of the process, {result['rounds']} rounds."]
    for level in result["levels"].values():
        gate = level["prediction"]["gate"]
        passed = f"gate {'passed' if gate['passed'] else 'not passed'}"
        agree = f"{gate['agree']:.2%} of {gate['n']:,} labels"
        told.append(f"{level['level']}: {passed}, {agree}. {measured(result | level)}")
    return "\n".join([*lines, "", *beside, "", " ".join(told)])
