# %% [markdown]
# # 5. Sequence to sequence
#
# What you will see: a recurrent cell, teacher forcing, cross-attention and beam search, each built in a few lines; then what one thought vector
# can hold, what attention adds, and the alignment that it finds. Trainings on Multi30k (English to German) are read from result files.
#
# The task is made so that the truth is known: words are translated one by one and come out in *reverse* order. The
# right alignment is the anti-diagonal, and a sentence of 14 words needs all 14 to be remembered.
#
# You need [lab 0](00_transformer.py). The whole lab takes five to ten minutes on one CPU thread; with `GLASSFORMER_LAB_BUDGET=medium` it trains one seed of each model, leaves
# the slowest out and takes one to two minutes. What comes from `lab` draws plots and prints answers; you need not read it. Write each solution in place of `...`; `check` runs a hidden
# test. The solutions are in `labs/solutions/`, and at the end of the lab's page in the documentation.

# %%
import random
import time

import numpy as np
import torch
from lab import MEDIUM, alignments, answer, bars, budget, chance, check, groups, maps, plot, probe, recorded
from torch import Tensor, nn

import glassformer as gf
from glassformer.packing import Packing

# %%
torch.set_num_threads(1)
torch.manual_seed(0)
ENGLISH = ["the", "a", "dog", "cat", "man", "woman", "child", "runs", "sleeps", "eats", "sees", "big", "small", "red", "old", "young", "here",
           "now", "and", "not"]  # fmt: skip
FOREIGN = ["da", "un", "hundo", "kato", "viro", "virino", "infano", "kuras", "dormas", "manĝas", "vidas", "granda", "eta", "ruĝa", "olda", "juna",
           "tie", "nun", "kaj", "ne"]  # fmt: skip
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
# ## The recurrent cell
#
# **Idea.** A *recurrent* network reads one word after the other and keeps a vector of what it has read, its *state*. The cell makes the next state
# from the last one and the row of the next word: hₜ = tanh(W_h hₜ₋₁ + W_x xₜ + b). The same matrices serve at every word, so a sentence may have any
# length. The state is as wide for 14 words as for 2, and each step writes over it. A *GRU* adds two gates, numbers from 0 to 1 for each entry of the
# state, which say how much of the old state stays: z keeps, r resets. That makes it easier to carry a word over many steps.
# The translators of this lab use GRUs, and their encoders read in both directions.
#
# ![A recurrent cell](../docs/_static/diagrams/recurrent-cell.svg)


# %%
def gru_cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """[D] and [K] -> the next state [K]; the matrices hold the parts for r, z and the new state n, one below the other."""
    x_r, x_z, x_n = (w_x @ x + b_x).chunk(3)
    h_r, h_z, h_n = (w_h @ h + b_h).chunk(3)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return (1 - z) * torch.tanh(x_n + r * h_n) + z * h


# %% [markdown]
# **Before you run**: with z = 1 everywhere, what is the state after ten words?

# %%
rows, state = torch.randn(5, 8), torch.zeros(6)
theirs = gf.nn.PackedRNN("gru", 8, 6)
gru = theirs.rnn
weights = gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0
for x in rows:
    state = gru_cell(x, state, *weights)
last = theirs(rows, Packing((5,)))[1][0][0, 0]  # the last state of the only layer and text
torch.testing.assert_close(state, last)
print("five steps by hand and the library's layer: equal")

# %% [markdown]
# **Why.** z = 1 keeps the old state and reads nothing: after ten words it is still the first state. Between the extremes the network learns, word by word and
# entry by entry, what to keep.
#
# **Your turn**: the plain cell without gates, unrolled: all states of a sentence. *(`rnn_states`)*


# %%
def rnn_states(x: Tensor, w_x: Tensor, w_h: Tensor, b: Tensor) -> Tensor:
    """[T, D] -> [T, K], from a first state of zeros, with tanh(W_h h + W_x x + b)."""
    ...  # your turn


check("05", rnn_states=rnn_states)

# %% [markdown]
# ## Teacher forcing
#
# **Idea.** The decoder is asked for the next word, given the source and all true words before it. In training these words are known: the decoder reads the
# target shifted by one place, with a begin token in front, and is asked for the target with an end token behind it. So all places are computed at
# once, and an early mistake does not spoil the rest of the sentence. The loss is the mean of -log p(true word) over all places. For a Transformer
# this needs a *causal mask*: without it, place t would simply read the word that it is asked for. At use there are no true words, and the decoder reads
# what it has said itself.
#
# ![Teacher forcing](../docs/_static/diagrams/teacher-forcing.svg)
#
# ![Three masks](../docs/_static/diagrams/masks.svg)

# %%
read, asked = [0, 5, 7, 6], [5, 7, 6, 1]  # 0 begins, 1 ends; change me
decoder = gf.nn.Decoder(gf.nn.EncoderConfig(16, 1, num_heads=2, d_ff=32)).eval()
words, memory = torch.randn(8, 16) / 4, torch.randn(3, 16)  # a row for each of 8 words, and 3 encoder states


def logits_of(read: list[int]) -> Tensor:  # [T, 8]
    here, there = Packing((len(read),)), Packing((3,))  # one text of T rows, and one of 3
    with torch.no_grad():
        return decoder(words[read], here, memory, there) @ words.T  # how well each row fits each word


# %% [markdown]
# **Before you run**: the third word that is read changes. Which rows of the logits change?

# %%
before, changed = logits_of(read), logits_of([0, 5, 2, 6])
print("changed by", [f"{float(d):.2f}" for d in (before - changed).abs().amax(1)])
loss = nn.functional.cross_entropy(before, torch.tensor(asked))
print(
    f"loss of {len(asked)} places at once: {float(loss):.2f}; equal probabilities for all 8 words: {np.log(8):.2f}"
)

# %% [markdown]
# **Why.** The rows before the change stay the same to the last digit: under the causal mask they cannot see it. So one pass gives the losses of all
# places, each computed from the words before it. With random weights it is above that of equal probabilities: the decoder is confident and wrong.
#
# **Your turn**: make both rows from a target sentence. *(`teacher_forced`)*


# %%
def teacher_forced(target: list[int], begin: int, end: int) -> tuple[list[int], list[int]]:
    """What the decoder reads, and what it is asked for."""
    ...  # your turn


check("05", teacher_forced=teacher_forced)

# %% [markdown]
# ## Cross-attention
#
# **Idea.** A decoder has its T rows, and the S states of the encoder, the *memory*. Cross-attention is attention ([lab 0](00_transformer.py)) whose
# queries come from the target rows and whose keys and values come from the memory. The map has T rows and S columns and need not be square. What a
# target word reads is its *alignment*. Only padding of the source is masked: the source is known from the start, so no causal mask is needed here.
#
# ![Cross-attention](../docs/_static/diagrams/cross-attention.svg)

# %%
target, memory = torch.randn(4, 16), torch.randn(6, 16)  # T = 4, S = 6
w_q, w_k, w_v = torch.randn(3, 16, 16) / 4
scores = (target @ w_q) @ (memory @ w_k).T / 16**0.5  # [T, S]
ours = scores.softmax(-1) @ (memory @ w_v)  # [T, 16]

# %% [markdown]
# **Before you run**: which shape has the map if the roles are exchanged, so that the source reads the target?

# %%
theirs = gf.nn.attend(target @ w_q, memory @ w_k, memory @ w_v, Packing((4,)), Packing((6,)))
torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
maps([scores.softmax(-1)], titles=["cross-attention, random weights"])

# %% [markdown]
# **Why.** Scores, softmax and weighted mean are those of self-attention; only where keys and values come from differs. That is why the library has one function
# for both. With the roles exchanged the map is [S, T]: one row for each row that reads.
#
# **Your turn**: the map of a perfect alignment when the words come out in reverse. *(`reversal`)*


# %%
def reversal(length: int) -> Tensor:
    """[length, length], row t has weight 1 on the source word that target word t translates."""
    ...  # your turn


check("05", reversal=reversal)

# %% [markdown]
# ## The bottleneck
#
# **Idea.** A recurrent encoder without attention hands one vector to the decoder, the *thought vector*, as wide for 14 words as for 2. With attention the
# decoder may look back at every state of the source. All models below see the same pairs for as many epochs.
# The decoder's state is the query q, the states of the source are the keys k, and three *scorers* say how well they fit: *dot* is q · k / √K, *multiplicative* is q W k with a learned
# matrix, *additive* is v · tanh(W₁ q + W₂ k), a small network. `beam=1` below takes the best next word each time; beams come last.
#
# ![Encoder and decoder](../docs/_static/diagrams/encoder-decoder.svg)
#
# **Before you run**: 64 numbers, 14 words out of 20: is there room in principle? And which share of words will be right?

# %%
base = dict(tokenizer="word", min_count=1, d_model=64, num_layers=1, dropout=0.0, epochs=budget(1, 15), lr=4e-3, batch_size=64,
            shared_vocabulary=False, threads=1)  # fmt: skip
seeds = budget((0,), (0, 1, 2), medium=(0,))  # change me
variants = {
    "thought vector": dict(model="rnn", attention="none"),
    "dot": dict(model="rnn", attention="dot"),
    "multiplicative": dict(model="rnn", attention="multiplicative"),
    "additive": dict(model="rnn", attention="additive"),
    "Transformer": dict(model="transformer", num_heads=2, d_ff=128),
}  # change me
if MEDIUM:
    del variants["additive"]  # the slowest
lengths = budget((3, 8), (2, 4, 6, 8, 10, 12, 14))
tests = {n: pairs(budget(10, 60), n, n, 100 + n) for n in lengths}
print(f"{LONGEST} words out of {len(ENGLISH)}: {LONGEST * np.log2(len(ENGLISH)):.0f} bits")


# %%
def word_accuracy(said: list[str], true: list[str]) -> float:
    """The share of the true words that stand at their place."""
    places = [(a.split()[i : i + 1] == [w]) for a, b in zip(said, true) for i, w in enumerate(b.split())]
    return float(np.mean(places))


models, right = {}, {}
for name, changes in variants.items():
    started = time.process_time()
    models[name] = [gf.Translator(**(base | changes), seed=seed).fit(*train) for seed in seeds]
    right[name] = [
        [word_accuracy(m.translate(x, beam=1), y) for m in models[name]] for x, y in tests.values()
    ]
    means = [round(float(np.mean(r)), 2) for r in right[name]]
    print(
        f"{name:15s} {time.process_time() - started:4.0f} s  words right at lengths {lengths}: {means}, seeds: {len(seeds)}"
    )

# %%
lines = {name: np.array(line).T for name, line in right.items()}  # [seeds, lengths]
plot(lines, x=lengths, xlabel="words of the sentence", ylabel="words right", ylim=(0, 1.03))
short, long = ({name: line[:, i].tolist() for name, line in lines.items()} for i in (0, -1))
answer("bottleneck", shortest=lengths[0], longest=lengths[-1], width=base["d_model"], short=short, long=long, seeds=len(seeds),
       n=len(tests[lengths[0]][0]))  # fmt: skip

# %% [markdown]
# **Why.** A sentence of 14 words is one of 20¹⁴: that is 14 · log₂ 20 = 61 bits, and one 64-bit integer holds it. In 64 floats there is room enough. What fails is
# learning: gradient descent has to find a way to pack the words into the vector and to unpack them in order, from 4,000 sentences. With attention nothing
# needs to be packed.
#
# Why does the Transformer fall at the longest length? Every length is equally frequent in training, but place 3 of a translation exists in nearly every sentence,
# the last place in one of 13. What a model knows of a place it has learned from the sentences that reach it. If that is the reason, the last words
# are wrong first, and training on longer sentences helps.
#
# **Before you run**: at which places is the Transformer wrong?

# %%
x, y = tests[lengths[-1]]
ours = models["Transformer"][0].translate(x, beam=1)
said, true = ([text.split() for text in texts] for texts in (ours, y))
places = [np.mean([a[i : i + 1] == b[i : i + 1] for a, b in zip(said, true)]) for i in range(lengths[-1])]
print("words right at each place:", [round(float(p), 2) for p in places])
print(f"too short: {sum(len(a) < len(b) for a, b in zip(said, true))} of {len(x)} translations")
longer = pairs(len(train[0]), 2, LONGEST + 2, 0)
again = gf.Translator(**(base | variants["Transformer"]), seed=0).fit(*longer).translate(x, beam=1)
print(f"words right: {word_accuracy(ours, y):.0%}; trained on sentences of up to {LONGEST + 2} words: {word_accuracy(again, y):.0%} (one training each)")  # fmt: skip

# %% [markdown]
# The end of the sentence goes wrong first, and some translations stop a word early.
#
# **Your turn**: show that there is room: pack the ids of a sentence into one integer, from which they can be read again. *(`packed`)*


# %%
def packed(ids: list[int], words: int) -> int:
    """One integer below words ** len(ids) for ids below ``words``; another sentence of this length gives another integer."""
    ...  # your turn


check("05", packed=packed)

# %% [markdown]
# ## Alignment
#
# **Idea.** The most attended source word is what a target word was read from, one would think. The truth is known here: the anti-diagonal. We count how far the
# most attended place is from it, with its sign: +1 is the word to the right, which the decoder has just translated, for it goes from right to left.
#
# **Before you run**: all three models translate nearly everything rightly. Must their maps then be on the anti-diagonal?


# %%
def offsets(model, text: str) -> list[int]:
    """For each target word: the most attended source place minus the right one."""
    a, words = model.align(text, beam=1), text.split()
    first = int(len(a.source) > len(words) and a.source[0] not in words)  # a special token before the words
    places = range(min(len(words), len(a.weights) - 1))
    return [int(a.weights[i].argmax()) - (first + len(words) - 1 - i) for i in places]


# %%
looked = [text for n in lengths if 3 < n < 13 for text in tests[n][0][: budget(5, 20)]]
shown = [name for name in ("dot", "additive", "Transformer") if name in models]
seen = {name: np.array([o for m in models[name] for x in looked for o in offsets(m, x)]) for name in shown}
exact = {name: np.mean(o == 0) for name, o in seen.items()}
near = {name: np.mean(abs(o) <= 1) for name, o in seen.items()}
sentence = tests[lengths[-1]][0][0] if len(lengths) < 3 else tests[8][0][0]
alignments({f"{name}: {exact[name]:.0%} on the anti-diagonal": models[name][0].align(sentence, beam=1) for name in shown})  # fmt: skip
answer("alignment", exact=exact, near=near, last=np.mean(seen["dot"] == 1), n=len(looked), seeds=len(seeds))

# %% [markdown]
# **Why is dot attention off the diagonal, and right?** Two things come together. First, a state of the encoder is not a word: both GRUs have passed over
# the words next to it, so the state at place j can hold the word at j - 1 as well, and a map over *states* is not a map over *words*. Second, the dot
# scorer has no matrix. A query fits the keys that *resemble* it. The decoder's state has just read the word that it said last, so without help
# it resembles the state of that word, one place to the right of the one needed. The multiplicative scorer has a matrix and the additive one a
# small network to turn “I have just said this” into “look one further left”. The dot scorer has neither, so the encoder learns to keep the needed word
# where the query looks. If that is so, the state at j must hold the word at j - 1, which is needed there, and hold it better than the word at j + 1, which is not. We train a linear
# classifier for each: `probe` fits it on half of the sentences and counts on the other half.
#
# **Before you run**: which share of the words next to it does a linear classifier read from a state of 64 numbers?

# %%
texts = [x for n in lengths if n > 3 for x in tests[n][0]]
where = {"the word before": -1, "its word": 0, "the word after": 1}
table = {
    name: {
        place: np.mean([probe(m, texts, ENGLISH, shift) for m in models[name]])
        for place, shift in where.items()
    }
    for name in ("thought vector", "dot", "additive")
    if name in models
}
groups(table, title="what a linear classifier reads from an encoder state", ylabel="share read")
reading = {name: row for name, row in table.items() if name != "thought vector"}
before, itself, after = ({name: row[place] for name, row in reading.items()} for place in where)
answer("off-diagonal", before=before, itself=itself, after=after, chance=1 / len(ENGLISH), n=len(texts), seeds=len(seeds))  # fmt: skip

# %% [markdown]
# Within a model, compare the bar of the word before with that of the word after. Where dot's states hold the word before better than the word after, the map points at the state to the right because the
# word is there. Additive needs no such shift, and its states may hold both alike: we had expected them to hold the word before *less* than dot's, which need not be so.
# In either case, read a map of a recurrent model as “about here”.

# %% [markdown]
# ## Greedy and beam
#
# **Idea.** The decoder gives probabilities for the next word; a sentence is worth their product. *Greedy* search takes the best next word each time and can never
# go back. A *beam* keeps the `width` best beginnings, extends each by every word, and again keeps the best: whole sentences are compared. Products of
# probabilities become tiny, so one adds logarithms. Every word makes the sum smaller, so long sentences lose: real searches divide by a power of
# the length, the *length penalty*. A beam of 1 is greedy search.
#
# ![Beam search](../docs/_static/diagrams/beam.svg)


# %%
def beam_search(step, width: int, longest: int = 20) -> tuple[str, ...]:
    """``step`` gives the probabilities of the next word after some words; a dot ends a sentence."""
    alive = [(0.0, ())]  # log of the probability, and the words
    for _ in range(longest):
        grown = [(score, words) for score, words in alive if words[-1:] == (".",)]
        for score, words in alive:
            if words[-1:] != (".",):
                grown += [(score + np.log(p), (*words, word)) for word, p in step(words).items()]
        alive = sorted(grown, reverse=True)[:width]
    return alive[0][1]


# %% [markdown]
# **Before you run**: which sentence do beams of 1 and of 2 find in the tree of the diagram?

# %%
tree = {(): {"a": 0.6, "b": 0.4}, ("a",): {"c": 0.45, "d": 0.55}, ("b",): {"e": 1.0}}  # change me
for width in (1, 2):
    print(width, beam_search(lambda words: tree.get(words, {".": 1.0}), width))

# %% [markdown]
# Then the same with the models of this lab, by the library's search.
#
# **Before you run**: which model gains more from a beam, the one that is often wrong or the one that is nearly always right?

# %%
x, y = ([text for test in tests.values() for text in test[side]] for side in (0, 1))
search, seconds = {}, {}
for name in ("thought vector", "dot"):
    for beam in (1, 5):  # change me
        started = time.process_time()
        said = [model.translate(x, beam=beam) for model in models[name]]
        seconds[f"{name}, beam {beam}"] = (time.process_time() - started) / len(said)
        search[f"{name}, beam {beam}"] = [np.mean([a == b for a, b in zip(one, y)]) for one in said]
bars(search, form="{:.0%}", title="sentences right in full")
answer("beam", n=len(x), search=search, seconds=seconds, seeds=len(seeds), between=chance(0.5, len(x), "{:.0%}"))  # fmt: skip

# %% [markdown]
# And on real text: Multi30k's test set of 1,000 sentences, English to German, in BLEU (0 to 100; sacrebleu on plain text).

# %%
bleu = {}
for name in ("rnn", "rnn-dot", "rnn-multiplicative", "rnn-additive", "transformer"):
    if full := recorded(f"recipe-multi30k-{name}"):
        runs = [run["scores"]["test"] for run in full["runs"]]
        for kind in ("greedy", "beam"):
            bleu[f"{name}, {kind} ({len(runs)})"] = sum(one[kind]["bleu"] for one in runs) / len(runs)
bars(bleu, form="{:.1f}", title="BLEU on Multi30k's test set, mean of so many seeds")

# %% [markdown]
# **Why.** A beam repairs what greedy search spoils: a sentence that the model itself finds more probable. It adds no knowledge; where the model is sure, both
# say the same.
#
# **Your turn**: greedy search over a function `step(words) -> {word: probability}`, and BLEU-1 without its brevity penalty: the share of said words that
# the reference has, each counted as often as there. *(`greedy`)* *(`precision`)*


# %%
def precision(said: str, reference: str) -> float: ...  # your turn


def greedy(step, longest: int = 20) -> tuple[str, ...]:
    """The words up to and with the final dot, at most ``longest``."""
    ...  # your turn


check("05", precision=precision)
check("05", greedy=greedy)

# %% [markdown]
# Where the library does this: [nn/recurrent.py](../src/glassformer/nn/recurrent.py), [nn/decoder.py](../src/glassformer/nn/decoder.py),
# [nn/scores.py](../src/glassformer/nn/scores.py), [models/seq2seq_rnn.py](../src/glassformer/models/seq2seq_rnn.py), [models/seq2seq.py](../src/glassformer/models/seq2seq.py),
# [models/decode.py](../src/glassformer/models/decode.py), [tasks/translation/estimator.py](../src/glassformer/tasks/translation/estimator.py), [targets/target_text.py](../src/glassformer/targets/target_text.py).
