"""A plain PyTorch loop over Hugging Face's model as a contender: what one writes by hand, at its best.

bf16 autocast (fp32 where the processor has no bf16), batches of similar length padded to their longest row, no dropout, the faster of transformers'
attentions, fused AdamW with a constant rate, and the gradient's norm clipped at 1.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from benchmarks.harness.common import half
from benchmarks.speed.hf_trainer import Loop, Rows, pad
from glassformer.runtime import send

POOL = 50  # batches that are sorted by length together: reviews still meet others in every epoch


class PlainLoop(Loop):
    """Epochs of a model without the Trainer."""

    def setting(self) -> dict[str, Any]:
        """What a result file says of it."""
        return {
            "precision": "bf16 autocast" if half() else "fp32",
            "batch_size": self.batch,
            "padding": "to the longest of a batch of similar length",
            "dropout": max(m.p for m in self.model.modules() if isinstance(m, torch.nn.Dropout)),
            "attention": self.attention,
            "optimiser": "AdamW, fused",
        }

    def epoch(self, rows: Rows, seed: int) -> tuple[float, float]:
        """Seconds and mean loss of one pass over the rows."""
        device = self.model.device
        self.model.train()
        total, started = 0.0, time.perf_counter()
        for index in self.batches(rows, np.random.default_rng(seed)):
            batch = {key: send(x, device) for key, x in pad([rows[i] for i in index]).items()}
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half()):
                loss = self.model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            total += loss.item() * len(index)
        return time.perf_counter() - started, total / len(rows)

    def batches(self, rows: Rows, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers of each batch, all rows once."""
        lengths = np.array([len(row["input_ids"]) for row in rows.rows])
        order, found = rng.permutation(len(rows)), []
        for start in range(0, len(order), POOL * self.batch):
            pool = order[start : start + POOL * self.batch]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            found += [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
        return [found[i] for i in rng.permutation(len(found))]
