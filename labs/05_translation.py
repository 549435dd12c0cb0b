# %% [markdown]
# # 5. Sequence to sequence
#
# What you will see: what one thought vector can hold, what attention adds, the alignment that it finds, and greedy
# against beam search. Trainings on Multi30k (English to German) are read from result files.
#
# The task is made so that the truth is known: words are translated one by one and come out in *reverse* order. The
# right alignment is the anti-diagonal, and a sentence of 14 words needs all 14 to be remembered.
#
# Where the library does this: [translator.py](../src/glassformer/tasks/translation/estimator.py),
# [models/seq2seq_rnn.py](../src/glassformer/models/seq2seq_rnn.py), [models/seq2seq.py](../src/glassformer/models/seq2seq.py),
# [decode.py](../src/glassformer/models/decode.py).

# %%
import random
import time

import numpy as np
import torch
from lab import BLUE, GREEN, GREY, RED, answer, bars, budget, chance, plt, recorded, span

import glassformer as gf

torch.set_num_threads(1)
ENGLISH = [
    "the",
    "a",
    "dog",
    "cat",
    "man",
    "woman",
    "child",
    "runs",
    "sleeps",
    "eats",
    "sees",
    "big",
    "small",
    "red",
    "old",
    "young",
    "here",
    "now",
    "and",
    "not",
]
FOREIGN = [
    "da",
    "un",
    "hundo",
    "kato",
    "viro",
    "virino",
    "infano",
    "kuras",
    "dormas",
    "manĝas",
    "vidas",
    "granda",
    "eta",
    "ruĝa",
    "olda",
    "juna",
    "tie",
    "nun",
    "kaj",
    "ne",
]
WORD = dict(zip(ENGLISH, FOREIGN))


def pairs(count: int, shortest: int, longest: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences of random words, and their translations in reverse order."""
    rng = random.Random(seed)
    found = [[rng.choice(ENGLISH) for _ in range(rng.randint(shortest, longest))] for _ in range(count)]
    return [" ".join(s) for s in found], [" ".join(WORD[w] for w in reversed(s)) for s in found]


LONGEST = 14  # change me
train = pairs(budget(150, 4_000), 2, LONGEST, 0)
print(train[0][0], "->", train[1][0])

# %% [markdown]
# ## The bottleneck
#
# A *recurrent* network reads one word after the other and keeps a vector, its state, of what it has read. A recurrent encoder hands one vector to the decoder, the *thought vector*, as wide for 14 words as for 2. With attention the
# decoder may look back at every state of the source. All models below see the same pairs for as many epochs.

# %%
base = dict(tokenizer="word", min_count=1, d_model=64, num_layers=1, dropout=0.0, epochs=budget(1, 15), lr=4e-3, batch_size=64,
            shared_vocabulary=False, threads=1)  # fmt: skip
seeds = budget((0,), (0, 1, 2))  # change me
arms = {
    "thought vector": dict(model="rnn", attention="none"),
    "dot": dict(model="rnn", attention="dot"),
    "multiplicative": dict(model="rnn", attention="multiplicative"),
    "additive": dict(model="rnn", attention="additive"),
    "Transformer": dict(model="transformer", num_heads=2, d_ff=128),
}  # change me
lengths = budget((3, 8), (2, 4, 6, 8, 10, 12, 14))
tests = {n: pairs(budget(10, 60), n, n, 100 + n) for n in lengths}
models, right = {}, {}


def word_accuracy(said: list[str], true: list[str]) -> float:
    """The share of the true words that stand at their place."""
    places = [(a.split()[i : i + 1] == [w]) for a, b in zip(said, true) for i, w in enumerate(b.split())]
    return float(np.mean(places))


for name, changes in arms.items():
    started = time.perf_counter()
    models[name] = [gf.Translator(**(base | changes), seed=seed).fit(*train) for seed in seeds]
    right[name] = [
        [word_accuracy(m.translate(x, beam=1), y) for m in models[name]] for x, y in tests.values()
    ]
    means = [round(float(np.mean(r)), 2) for r in right[name]]
    print(
        f"{name:15s} {time.perf_counter() - started:4.0f} s  words right at lengths {lengths}: {means}, seeds: {len(seeds)}"
    )
figure, ax = plt.subplots(figsize=(6, 3))
for (name, line), colour in zip(right.items(), (RED, BLUE, "#7fb0e0", "#23303d", "#4f8a5b")):
    ax.plot(lengths, np.mean(line, 1), "o-", color=colour, label=name)
    ax.fill_between(lengths, np.min(line, 1), np.max(line, 1), color=colour, alpha=0.15)
ax.set(xlabel="words of the sentence", ylabel="words right", ylim=(0, 1.03))
ax.legend(frameon=False, fontsize=8)
plt.show()
answer(
    "bottleneck",
    f"From {lengths[0]} to {lengths[-1]} words the share of right words goes, with a thought vector of {base['d_model']} numbers, from "
    f"{span(right['thought vector'][0], '{:.0%}')} to {span(right['thought vector'][-1], '{:.0%}')}; with attention: "
    + ", ".join(
        f"{n} {span(r[0], '{:.0%}')} to {span(r[-1], '{:.0%}')}"
        for n, r in right.items()
        if n != "thought vector"
    )
    + f" ({len(seeds)} seeds, {len(tests[lengths[0]][0])} sentences of each length).",
)

# %% [markdown]
# ## Alignment
#
# What each target word was read from. The truth is the anti-diagonal.

# %%
sentence = tests[lengths[-1]][0][0] if len(lengths) < 3 else tests[8][0][0]
shown, found = {}, {}
looked = [t for n in lengths if 3 < n < 13 for t in tests[n][0][: budget(5, 20)]]
for name in ("dot", "additive", "Transformer"):
    shown[name] = models[name][0].align(sentence, beam=1)
    off = []
    for model, x in ((m, t) for m in models[name] for t in looked):
        a = model.align(x, beam=1)
        words, w = x.split(), a.weights
        offset = int(
            len(a.source) > len(words) and a.source[0] not in words
        )  # a special token before the words
        places = range(min(len(words), len(w) - 1))
        off += [abs(int(w[i].argmax()) - (offset + len(words) - 1 - i)) for i in places]
    found[name] = float(np.mean([o == 0 for o in off] or [0])), float(np.mean([o <= 1 for o in off] or [0]))
figure, axes = plt.subplots(1, len(shown), figsize=(10, 3.2))
for ax, (name, a) in zip(axes, shown.items()):
    ax.imshow(a.weights, vmin=0, vmax=1)
    ax.set_xticks(range(len(a.source)), a.source, rotation=70, fontsize=7)
    ax.set_yticks(range(len(a.target)), a.target, fontsize=7)
    ax.set(title=f"{name}: {found[name][0]:.0%} on the anti-diagonal")
plt.show()
answer(
    "alignment",
    "The most attended source word is the right one for "
    + ", ".join(f"{a:.0%} ({n})" for n, (a, _) in found.items())
    + " of the target words; the right one or its neighbour for "
    + ", ".join(f"{b:.0%}" for _, b in found.values())
    + f" ({len(looked)} sentences, {len(seeds)} seeds). A recurrent state holds its neighbours too, so a map may point beside the word that was read.",
)

# %% [markdown]
# ## Greedy and beam
#
# Greedy takes the best next word; a beam keeps several beginnings and compares whole sentences.

# %%
x, y = ([text for test in tests.values() for text in test[side]] for side in (0, 1))
search = {}
for name in ("thought vector", "dot"):
    for beam in (1, 5):  # change me
        started = time.perf_counter()
        said = [model.translate(x, beam=beam) for model in models[name]]
        search[f"{name}, beam {beam}"] = (
            [float(np.mean([a == b for a, b in zip(one, y)])) for one in said],
            (time.perf_counter() - started) / len(said),
        )
figure, ax = plt.subplots(figsize=(6, 1.9))
bars(
    ax,
    {n: float(np.mean(s)) for n, (s, _) in search.items()},
    form="{:.0%}",
    colour=GREY,
    title="sentences right in full",
)
plt.show()
answer(
    "beam",
    f"Of {len(x)} sentences right in full: "
    + "; ".join(f"{n} {span(s, '{:.0%}')} in {t:.1f} s" for n, (s, t) in search.items())
    + f" ({len(seeds)} seeds; by the draw of sentences a share of one half may be {chance(0.5, len(x), '{:.0%}')}).",
)

# %% [markdown]
# And on real text: Multi30k's test set of 1,000 sentences, English to German, in BLEU (0 to 100; sacrebleu on plain text).

# %%
bleu = {}
for name in ("rnn", "rnn-dot", "rnn-multiplicative", "rnn-additive", "transformer"):
    if full := recorded(f"recipe-multi30k-{name}"):
        runs = [run["scores"]["test"] for run in full["runs"]]
        for kind in ("greedy", "beam"):
            bleu[f"{name}, {kind} ({len(runs)})"] = sum(one[kind]["bleu"] for one in runs) / len(runs)
if bleu:
    figure, ax = plt.subplots(figsize=(6, 0.4 + 0.3 * len(bleu)))
    bars(ax, bleu, form="{:.1f}", colour=GREEN, title="BLEU on Multi30k's test set, mean of so many seeds")
    plt.show()

# %% [markdown]
# ## Exercises
#
# 1. BLEU-1 without its brevity penalty: the share of said words that the reference has, each counted as often as there.
#    *(`precision`)*
# 2. Write greedy search over a function `step(words) -> {word: probability}`. *(`greedy`)*
# 3. Write beam search over the same function, and a step where greedy loses. *(`beam_search`)*
#
# Where the library does this: [nn/decoder.py](../src/glassformer/nn/decoder.py), [nn/scores.py](../src/glassformer/nn/scores.py),
# [targets/target_text.py](../src/glassformer/targets/target_text.py).
