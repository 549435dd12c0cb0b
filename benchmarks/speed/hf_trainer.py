"""Hugging Face's Trainer as a contender: one model and one optimiser, kept from window to window.

AdamW is fused, as the Trainer's own default is, with a constant rate and no weight decay; the gradient's norm is
clipped at 1, its default too.
"""

import copy
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.harness.results import half
from glassformer.runtime import copy_to_device

ATTENTIONS = ("sdpa", "eager")


def choose_attention(model: Any, work: Callable[[], Any]) -> str:
    """Leave ``model`` with the attention that makes ``work`` faster; what a result file says of the choice.

    Each is tried twice, in turn, and its better time counts. Training that happens in ``work`` is undone in the
    weights; an optimiser is the caller's to clear.
    """
    before = copy.deepcopy(model.state_dict())
    found = dict.fromkeys(ATTENTIONS, float("inf"))
    for name in ATTENTIONS * 2:
        model.set_attn_implementation(name)
        started = time.perf_counter()
        work()
        found[name] = min(found[name], time.perf_counter() - started)
        model.load_state_dict(before)
    first, second = sorted(found, key=lambda name: found[name])
    model.set_attn_implementation(first)
    return f"{first} ({second}: {found[second] / found[first]:.2f} times the time)"


Sampling = Literal["random", "sequential", "group_by_length"]
FILL = {"input_ids": 0, "token_type_ids": 0, "labels": -100}  # what stands where a row has ended


def batches_alike(lengths: Sequence[int], batch: int, seed: int) -> list[np.ndarray]:
    """Row numbers of whole batches, sorted by length and then in random order: what grouping makes of a long epoch."""
    order = np.argsort(lengths, kind="stable")
    batches = [order[i : i + batch] for i in range(0, len(order) - batch + 1, batch)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]


class Rows(torch.utils.data.Dataset):
    """Examples as Trainer's samplers and collators take them: ``input_ids`` ``[T]`` and what goes with them."""

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.rows = [{key: torch.as_tensor(value) for key, value in row.items()} for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return self.rows[i]


def pad(rows: Sequence[dict[str, torch.Tensor]], width: int | None = None) -> dict[str, torch.Tensor]:
    """A padded batch: to the longest row, or to a fixed width.

    Sequences become ``[B, T]``, single numbers ``[B]``; ``attention_mask`` is ``[B, T]``.
    """
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    width = width or int(lengths.max())
    out = {"attention_mask": (torch.arange(width) < lengths[:, None]).long()}
    for key, first in rows[0].items():
        if first.ndim == 0:
            out[key] = torch.stack([row[key] for row in rows])
            continue
        out[key] = torch.full((len(rows), width), FILL[key], dtype=torch.long)
        for padded, row in zip(out[key], rows, strict=True):
            padded[: len(row[key])] = row[key]
    return out


class Loop:
    """A model and its optimiser, kept from one epoch to the next; a subclass has ``epoch(rows, seed)``."""

    def __init__(self, model: Any, *, lr: float, batch: int):
        self.model, self.lr, self.batch = model, lr, batch
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, fused=True)
        self.attention = model.config._attn_implementation
        self.bf16, self.padding = half(), "to the longest of a batch of similar length"
        be_quiet()

    def setting(self) -> dict[str, Any]:
        """What a result file says of it."""
        return {
            "precision": "bf16 autocast" if self.bf16 else "fp32",
            "batch_size": self.batch,
            "padding": self.padding,
            "dropout": self.dropout(),
            "attention": self.attention,
            "optimiser": "AdamW, fused",
        }

    def dropout(self) -> float:
        return max(m.p for m in self.model.modules() if isinstance(m, torch.nn.Dropout))

    def epoch(self, rows: Rows, seed: int) -> tuple[float, float]:
        """Seconds and mean loss of one pass over the rows."""
        raise NotImplementedError

    def choose_attention(self, rows: Rows) -> None:
        """Take the attention that trains faster on these rows; weights and optimiser are as new afterwards."""
        self.attention = choose_attention(self.model, lambda: self.epoch(rows, seed=0))
        self.optimizer.state.clear()


class TrainerLoop(Loop):
    """Epochs of a model under HF Trainer.

    Args:
        bf16: autocast; otherwise everything is fp32.
        sampling: "sequential" where the rows come in batches of similar length already (``batches_alike``): the Trainer's own
            grouping ("group_by_length") needs an epoch of 6,400 rows and more to sort 50 batches together, and sorts less in a window.
        width: tokens that every row is padded to; None: to the longest of the batch.
    """

    def __init__(
        self, model: Any, *, lr: float, batch: int, bf16: bool, sampling: Sampling, width: int | None = None
    ):
        super().__init__(model, lr=lr, batch=batch)
        self.bf16, self.sampling, self.width = bf16, sampling, width
        if width or sampling == "random":
            self.padding = f"to {width}" if width else "to the longest of the batch"

    def dropout(self) -> float:
        return self.model.config.hidden_dropout_prob

    def epoch(self, rows: Rows, seed: int) -> tuple[float, float]:
        """Seconds and mean loss of one pass over the rows; making the Trainer is not timed."""
        from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

        class Clock(TrainerCallback):
            seconds = 0.0

            def on_train_begin(self, args, state, control, **kwargs):
                self.started = time.perf_counter()

            def on_train_end(self, args, state, control, **kwargs):
                self.seconds = time.perf_counter() - self.started

        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=self.batch,
                num_train_epochs=1,
                learning_rate=self.lr,
                lr_scheduler_type="constant",
                bf16=self.bf16,
                train_sampling_strategy=self.sampling,
                use_cpu=not torch.cuda.is_available(),
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                remove_unused_columns=False,
                seed=seed,
            )
            trainer = Trainer(
                model=self.model,
                args=arguments,
                train_dataset=rows,
                data_collator=lambda rows: pad(rows, self.width),
                optimizers=(self.optimizer, None),
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)
            loss = trainer.train().training_loss
        return clock.seconds, float(loss)


def precision_of(dtype: torch.dtype) -> str:
    """How glassformer computes in training, as a result file says it."""
    return "bf16 weights, fp32 masters" if dtype == torch.bfloat16 else "fp32"


def be_quiet() -> None:
    """No progress bars and no advice from transformers between the lines of a benchmark."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


POOL = 50  # batches that are sorted by length together: reviews still meet others in every epoch


def train_on(
    model: Any, optimizer: Any, batches: Iterable[Any], loss_of: Callable[[Any], Any]
) -> list[float]:
    """The loop that everybody writes: the loss of each batch, with a step after each."""
    losses = []
    for batch in batches:
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


class PlainLoop(Loop):
    """Epochs of a model without the Trainer."""

    def epoch(self, rows: Rows, seed: int) -> tuple[float, float]:
        """Seconds and mean loss of one pass over the rows."""
        self.model.train()
        started = time.perf_counter()
        batches = self.batches(rows, np.random.default_rng(seed))
        loss_of = lambda index: self.loss([rows[i] for i in index])  # noqa: E731
        losses = train_on(self.model, self.optimizer, batches, loss_of)
        total = sum(loss * len(index) for loss, index in zip(losses, batches))
        return time.perf_counter() - started, total / len(rows)

    def loss(self, rows: Sequence[dict[str, torch.Tensor]]) -> torch.Tensor:
        """The model's own, of one batch."""
        device = self.model.device
        batch = {key: copy_to_device(x, device) for key, x in pad(rows).items()}
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half()):
            return self.model(**batch).loss

    def batches(self, rows: Rows, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers of each batch, all rows once."""
        lengths = np.array([len(row["input_ids"]) for row in rows.rows])
        order, found = rng.permutation(len(rows)), []
        for start in range(0, len(order), POOL * self.batch):
            pool = order[start : start + POOL * self.batch]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            found += [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
        return [found[i] for i in rng.permutation(len(found))]
