# %% [markdown]
# # 0. A Transformer in 100 lines
#
# What you will see: a classifier of film reviews built in plain PyTorch, from text to training loop, in fewer than 100 lines; then each
# part exchanged for the library's, with equal results.
#
# You need Python, matrices, and what a loss and a gradient are. Run the cells from top to bottom: `python labs/00_transformer.py`, or
# open the file in an editor that knows cells, or its notebook. It takes one to two minutes on one CPU thread.
#
# Each section has the same parts: the *idea*, a diagram, code, a question to answer *before you run* the cell, the result and
# the reason, and an exercise. Write your solution in place of `...` and run the cell: `check` runs a hidden test. The solutions are in
# `labs/solutions/`, and at the end of the lab's page in the documentation.
#
# `lab` is a file next to this one that you need not read. It loads the reviews and draws the plots; `lab.answer` prints a question of the course with what
# the cells have measured, and `lab.budget(300, 4_000)` is 4,000, or 300 if you set `GLASSFORMER_LAB_BUDGET=small`. The reviews are those of IMDb if
# `GLASSFORMER_DATA` names a folder that has them ([where data sets are](../docs/guide/commands.md#where-data-sets-are)). Otherwise the lab generates reviews, and your scores differ from those of the page.

# %%
import re
import time
from collections import Counter

import lab
import torch
from torch import Tensor, nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(0)  # change me
(train_x, train_y), (test_x, test_y), is_imdb = lab.film_reviews(
    lab.budget(300, 4_000), lab.budget(100, 2_000)
)
print(len(train_x), "reviews to learn from,", len(test_x), "unseen ones")

# %% [markdown]
# ## From text to rows
#
# **Idea.** A network multiplies numbers, so a text must become numbers first. We cut it into words and punctuation marks, the *tokens*.
# A *vocabulary* lists the most frequent tokens, and the place of a token in the list is its *id*.
# Tokens that are not in the list share one id, [UNK]. An *embedding table* has one row of D numbers for each id; the rows are learned.
# The texts of a batch have unequal lengths, so short ones are filled up with the id of [PAD].
# The result is a matrix of ids [B, T]: B texts of T tokens. Looking each id up gives [B, T, D].
#
# ![Tokens, ids and rows](../docs/_static/diagrams/text-to-rows.svg)

# %%
PAD, UNK, LONGEST = 0, 1, 128  # change me: tokens read of each review


def tokens_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,!?]", text.lower())


counts = Counter(token for text in train_x for token in tokens_of(text))
vocabulary = ["[PAD]", "[UNK]", *(token for token, n in counts.most_common(8_000) if n > 1)]
id_of = {token: i for i, token in enumerate(vocabulary)}


def encode(texts: list[str]) -> Tensor:  # [B, T]
    rows = [torch.tensor([id_of.get(token, UNK) for token in tokens_of(text)[:LONGEST]]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


# %% [markdown]
# **Before you run**: which share of the matrix of all training reviews is padding? Guess a number.

# %%
train_ids, test_ids = encode(train_x), encode(test_x)
print("The story is not dull .", "->", encode(["The story is not dull ."])[0].tolist())
share = float((train_ids == PAD).float().mean())
lengths = torch.tensor([float(len(tokens_of(text))) for text in train_x])
uncut, cut = float(1 - lengths.mean() / lengths.max()), float((lengths > LONGEST).float().mean())
print(
    f"padding: {share:.0%} of the ids; without the cut at {LONGEST} tokens {uncut:.0%}. Cut: {cut:.0%} of the reviews"
)

# %%
unknown = (train_ids == UNK).float().mean()
lab.answer("padding-share", share=share, ids=train_ids.numel(), n=len(train_ids), longest=LONGEST, uncut=uncut, cut=cut,
           most=int(lengths.max()), unknown=unknown, words=len(vocabulary))  # fmt: skip

# %% [markdown]
# **Why.** The matrix is as wide as its longest text. Cutting long reviews keeps it narrow, and throws words away. Every padded place costs as much as a word, and its result is thrown away.
# The last section shows how the library avoids it.
#
# **Your turn**: which share of the tokens of a text does the vocabulary know? *(`known_share`)*


# %%
def known_share(tokens: list[str], vocabulary: list[str]) -> float:
    """The share of the tokens that are in the vocabulary, from 0 to 1."""
    ...  # your turn


lab.check("00", known_share=known_share)

# %% [markdown]
# ## Attention
#
# **Idea.** After the embedding, the row of “dull” is the same in every text; it does not know of the “not” before it. Attention lets
# each row read the others. Every row has a *query*, what it looks for, a *key*, what it offers, and a *value*, what it gives: vectors of K numbers.
# The product of a query and a key is a *score*: how much this row should read of that one. The softmax of all scores of a row
# gives *weights* that sum to 1. The new row is the mean of all values under these weights. Padding must get no weight, so its scores
# become -∞ before the softmax. The division by √K keeps the scores small enough for the softmax to be trained ([lab 1](01_attention.py)).
#
# ![One query compared with three keys](../docs/_static/diagrams/queries-keys-values.svg)


# %%
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """[..., T, K] each, and a mask that is True where a row may be read."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [..., T, T]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights @ v, weights


# %% [markdown]
# **Before you run**: three tokens and one [PAD]. The third row has the query (2, 2), the keys are (1, 0), (0, 1), (1, 1) and (9, 9).
# Which token gets the largest weight, and which weight has [PAD], whose key is by far the longest?

# %%
q = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0], [0.0, 0.0]])
k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [9.0, 9.0]])
_, weights = attention(q, k, torch.eye(4), torch.tensor([True, True, True, False]))
print(weights.numpy().round(2))
lab.maps([weights], ["the", "cat", "sleeps", "[PAD]"], ["who reads what"], top=1)

# %% [markdown]
# **Why.** e⁻∞ is 0: the mask acts before the softmax, so the other weights still sum to 1. Had we set the weight of [PAD] to 0
# afterwards, the rest would sum to less. The row of [PAD] itself reads something too, but nobody reads it.
#
# **Your turn**: attention for a model that writes, in which row t may read rows 0 to t only: the map in the middle. *(`causal`)*
#
# ![Three masks](../docs/_static/diagrams/masks.svg)


# %%
def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, T, K] each -> [B, T, K]; row t reads rows 0 to t."""
    ...  # your turn


lab.check("00", causal=causal)

# %% [markdown]
# ## Heads
#
# **Idea.** One softmax can hardly look at two things at once: the noun that an adjective belongs to, and the “not” before it.
# So the D numbers of queries, keys and values are cut into H pieces of D / H. Each piece, a *head*, has weights of its piece alone.
# The outputs of the heads are laid side by side and multiplied by one more matrix, so that later layers can mix them.
# Queries, keys and values come from the rows by three learned matrices, written here as one matrix with 3 D columns.
# No step depends on H except the cutting, which is a `view`.
#
# ![Heads](../docs/_static/diagrams/heads.svg)


# %%
class MultiHead(nn.Module):
    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # [B, T, D], [B, T] -> [B, T, D]
        B, T, D = x.shape
        parts = self.qkv(x).view(B, T, 3, self.heads, D // self.heads)  # K = D / H
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # [B, H, T, K] each
        rows, self.weights = attention(q, k, v, mask[:, None, None])  # one mask [B, 1, 1, T] for all heads
        return self.out(rows.transpose(1, 2).reshape(B, T, D))


# %% [markdown]
# **Before you run**: how many parameters has the layer with 1, 4 and 16 heads?

# %%
for number in (1, 4, 16):  # change me
    part = MultiHead(64, number)
    print(
        f"{number:2d} heads: {sum(p.numel() for p in part.parameters()):,} parameters, maps {number} x T x T"
    )

# %% [markdown]
# **Why.** The matrices are D × 3 D and D × D whatever H is: heads cost no parameters, only H maps in place of one.
#
# **Your turn**: the number of parameters of an attention layer, biases included, from D alone. *(`attention_parameters`)*


# %%
def attention_parameters(d_model: int) -> int:
    """Weights and biases of the four matrices."""
    ...  # your turn


lab.check("00", attention_parameters=attention_parameters)

# %% [markdown]
# ## A layer
#
# **Idea.** Attention moves information between rows. A *feed-forward network*, two matrices with a ReLU between them, then changes each row by itself.
# Each of the two is a *branch*: its result is added to what went in, the *residual connection*. A row can so pass a layer unchanged, and the
# gradient has a way past every branch. A *layer norm* in front of each branch brings a row to mean 0 and variance 1, so that the branch sees
# numbers of one size however deep the network is. That order is called *pre-norm*; BERT normalizes after the sum (*post-norm*).
#
# ![A layer in its two orders](../docs/_static/diagrams/encoder-layer.svg)


# %%
class Layer(nn.Module):
    def __init__(self, d_model: int, heads: int, d_ff: int):
        super().__init__()
        self.attention, self.norm1 = MultiHead(d_model, heads), nn.LayerNorm(d_model)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.relu(self.up(self.norm2(x))))


# %% [markdown]
# **Before you run**: 50 layers with random weights, one after the other. How large are the rows at the end with residual connections, and how
# much do two different rows differ without them?

# %%
mask, x = torch.ones(1, 8, dtype=torch.bool), torch.randn(1, 8, 64)
with torch.no_grad():
    deep, alone = x, x
    for layer in [Layer(64, 4, 128) for _ in range(50)]:
        deep = layer(deep, mask)
        alone = layer.attention(layer.norm1(alone), mask)  # the same two branches without the sums
        alone = layer.down(F.relu(layer.up(layer.norm2(alone))))
print(f"rows at the start: {x.std():.2f}, different rows differ by {x.std(1).mean():.2f}")
print(f"with residual connections: {deep.std():.2f}, {deep.std(1).mean():.2f}")
print(f"without:                   {alone.std():.2f}, {alone.std(1).mean():.5f}")

# %% [markdown]
# **Why.** Random attention averages rows. Without the residual connection nothing brings back what a row was, and after some layers all rows are
# alike. With it, each layer adds a correction to the row.
#
# **Your turn**: the other order. `f` is a branch and `norm` a layer norm. *(`post_norm`)*


# %%
def post_norm(x: Tensor, f, norm) -> Tensor:
    """A branch as BERT has it."""
    ...  # your turn


lab.check("00", post_norm=post_norm)

# %% [markdown]
# ## The whole model
#
# **Idea.** Attention treats its rows as a set: without more, “not good, but long” and “long, but not good” are the same to it.
# So a second table has one learned row for each *position*, which is added to the token's row. Then come the layers, and a last norm.
# For one decision about the text we need one row: *pooling* takes the mean of the rows of real tokens. The *head* multiplies it by a matrix with two
# columns, which gives two *logits*, one for each class. (An attention head is something else; the word is used for both.)


# %%
class Transformer(nn.Module):
    def __init__(self, words: int, d_model=64, heads=4, d_ff=128, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, d_model), nn.Embedding(LONGEST, d_model)
        nn.init.normal_(self.tokens.weight, std=0.1)
        nn.init.normal_(self.positions.weight, std=0.1)
        self.layers = nn.ModuleList(Layer(d_model, heads, d_ff) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, 2)

    def forward(self, ids: Tensor) -> Tensor:  # [B, T] -> [B, 2]
        mask = ids != PAD
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return self.head((self.norm(x) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


# %% [markdown]
# **Before you run**: where do most of the parameters sit?

# %%
model = Transformer(len(vocabulary))  # change me
for name, part in model.named_children():
    print(f"{name:10s} {sum(p.numel() for p in part.parameters()):8,}")

# %% [markdown]
# **Why.** The table has one row for every word. In a small model the layers are the smaller part, which is one reason for
# vocabularies of sub-words.
#
# **Your turn**: another pooling: of each of the D numbers, the largest among the rows of real tokens. *(`max_of_real`)*


# %%
def max_of_real(x: Tensor, mask: Tensor) -> Tensor:
    """[B, T, D] and a mask [B, T], True at real tokens -> [B, D]."""
    ...  # your turn


lab.check("00", max_of_real=max_of_real)

# %% [markdown]
# ## Loss and training loop
#
# **Idea.** The softmax of the logits gives a probability for each class. The *loss* is -log of the probability of the true class: 0 if the model
# is sure and right, large if it is sure and wrong. `cross_entropy` is the mean of that over a batch, computed from the logits, which is
# numerically safer than the log of a softmax. The training loop repeats four lines: loss, gradient, step, gradient back to zero.
# AdamW gives each parameter its own step size. An *epoch* is one pass over all reviews in a new random order.


# %%
def fit(model, ids: Tensor, targets: Tensor, epochs: int, lr=1e-3, after=lambda: None) -> list[float]:
    """Train, and return the loss of each step; ``after`` is called after each epoch."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr), []
    for _ in range(epochs):
        for rows in torch.randperm(len(ids)).split(32):
            loss = F.cross_entropy(model(ids[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        after()
    return losses


# %% [markdown]
# **Before you run**: which loss has a model that gives each of two classes the probability 1/2? That is where the curve begins.

# %%
classes = sorted(set(train_y))
targets, truth = (torch.tensor([classes.index(label) for label in y]) for y in (train_y, test_y))


@torch.no_grad()
def accuracy(ids: Tensor, truth: Tensor) -> float:
    return float((torch.cat([model(part).argmax(1) for part in ids.split(100)]) == truth).float().mean())


def report():
    seen = accuracy(train_ids[: len(truth)], targets[: len(truth)])
    print(f"right after this epoch: training {seen:.1%}, unseen {accuracy(test_ids, truth):.1%}")


# %%
started = time.process_time()
losses = fit(model, train_ids, targets, lab.budget(1, 3 if is_imdb else 6), after=report)  # change me
seconds = time.process_time() - started
print(
    f"first loss {losses[0]:.2f}, last 20 steps {sum(losses[-20:]) / len(losses[-20:]):.2f}, {seconds:.0f} s on one thread, evaluations included"
)
lab.plot({"training loss": losses}, xlabel="step", ylabel="loss, mean of 20 steps", mean_over=20)

# %% [markdown]
# **Why.** Both classes at 1/2 give -log ½ = 0.69. The training loss falls as long as you train. Accuracy on unseen reviews stops rising while that on training reviews goes up: the model learns these
# reviews by heart, which is *over-fitting*. Choose the number of epochs on validation reviews, never on the test.
#
# Unseen reviews tell what was learned. We compare with always predicting one class, and with a simple strong model: logistic regression on counted words (TF-IDF),
# which knows no order. TF-IDF usually reads whole reviews and our model only the first 128 tokens, so we also fit it on what our model reads.
#
# **Before you run**: is the Transformer ahead of TF-IDF? And how much accuracy is lost if the words of each unseen review are shuffled?


# %%
def shuffled(row: Tensor) -> Tensor:
    n = int((row != PAD).sum())
    return torch.cat([row[:n][torch.randperm(n)], row[n:]])


first = [[" ".join(tokens_of(text)[:LONGEST]) for text in texts] for texts in (train_x, test_x)]
found = {
    "always one class": max(float((truth == c).float().mean()) for c in (0, 1)),
    "TF-IDF, whole reviews": lab.tfidf_accuracy(train_x, train_y, test_x, test_y),
    f"TF-IDF, first {LONGEST} tokens": lab.tfidf_accuracy(first[0], train_y, first[1], test_y),
    "our Transformer": accuracy(test_ids, truth),
    "the same, words shuffled": accuracy(torch.stack([shuffled(row) for row in test_ids]), truth),
}

# %%
lab.bars(found, title=f"accuracy on {len(test_x)} unseen reviews")

# %%
one_class, whole_text, first_tokens, ours, mixed = found.values()
print(
    f"TF-IDF loses {100 * (whole_text - first_tokens):.1f} points by the cut; our model is {100 * (first_tokens - ours):.1f} points below it"
)
lab.answer("from-scratch", ours=ours, n=len(test_x), between=lab.chance(ours, len(test_x)), seconds=seconds, first=first_tokens,
           longest=LONGEST, whole=whole_text, one_class=one_class, mixed=mixed)  # fmt: skip

# %% [markdown]
# **Why.** Most of TF-IDF's lead comes from the words that our model never reads: most reviews are longer than 128 tokens. The rest is the model's: a few thousand
# labels teach which words are good or bad news, and TF-IDF learns that with fewer parameters.
# Where the label hangs on single words, shuffling costs little; where it hangs on “not good” against “good”, it costs much. A Transformer pays off
# with more data, or after pre-training on text without labels ([lab 6](06_pretraining.py), [lab 8](08_fine_tune.py)).
#
# **Your turn**: the loss from the logits, without `cross_entropy`. It must survive logits of 1,000. *(`loss_of`)*


# %%
def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """[B, C] and [B] -> the mean of -log p(true class), a single number."""
    ...  # your turn


lab.check("00", loss_of=loss_of)

# %% [markdown]
# ## What the model reads
#
# **Idea.** The maps are still in `model.layers[i].attention.weights`. Here are the four heads of the second layer on a sentence that we write.
#
# **Before you run**: which word should “dull” read? And does the model say that the sentence is praise?

# %%
sentence = "the story is not dull ."  # change me
with torch.no_grad():
    logits = model(encode([sentence]))
print(f"probability of {classes[1]!r}: {float(logits.softmax(1)[0, 1]):.2f}")
lab.maps(model.layers[1].attention.weights[0], sentence.split(), [f"head {h + 1}" for h in range(4)], top=0.5)

# %% [markdown]
# **Why.** Nobody told the heads what to read; the loss did. Where a map is of one shade in every row, the head reads nearly the mean of all words, whoever asks;
# stripes are words that every row reads more. If the probability is near 0, the model takes the sentence for blame: “dull” has won against “not”. A few thousand long
# reviews say little about two words next to each other. Change the sentence and find one that is read rightly. Whether a map explains a prediction is the subject of [lab 3](03_sentiment.py).
#
# ## Every part exchanged
#
# **Idea.** The library has the same parts. The proof that two parts are the same is that they compute the same from the same weights.
# So we copy our trained weights into each of the library's parts, give both the same input, and let `torch.testing.assert_close` compare:
# the cell stops if they differ by more than rounding. One thing differs inside: the library *packs*. The texts of a batch lie one below
# the other in a matrix [N, D] without padding, and a `Packing` says where each begins.

# %%
import glassformer as gf
from glassformer.packing import Packing

model.eval()
ids = test_ids[:20]
mask = ids != PAD
packing, real = Packing.from_mask(mask)  # lengths of the texts, and the places [N] of real tokens
rows = model.tokens(ids) + model.positions.weight[: ids.shape[1]]  # [B, T, D]
parts = model.layers[0].attention.qkv(rows).view(*ids.shape, 3, 4, 16)
q, k, v = parts.permute(2, 0, 3, 1, 4)  # [B, H, T, K] each
theirs = gf.nn.attend(q, k, v, mask=mask[:, None, None])
torch.testing.assert_close(theirs, attention(q, k, v, mask[:, None, None])[0], atol=1e-5, rtol=1e-5)
print(f"attention: equal; {ids.numel():,} padded places, {packing.total:,} packed rows")

# %% [markdown]
# Heads and layer: the library's `MultiHeadAttention` has matrices of the same names, so `load_state_dict` takes ours. Its layer calls the two matrices
# of the feed-forward network `feed_forward.up` and `feed_forward.down`; `lab.renamed` replaces these parts of the names.

# %%
our_layer, packed = model.layers[0], rows.flatten(0, 1)[real]  # [N, D]
theirs = gf.nn.MultiHeadAttention(64, num_heads=4)
theirs.load_state_dict(our_layer.attention.state_dict())
torch.testing.assert_close(
    theirs(packed, packing), our_layer.attention(rows, mask)[mask], atol=1e-5, rtol=1e-5
)

config = gf.nn.EncoderConfig(
    64, 2, num_heads=4, d_ff=128, norm="pre", activation="relu", eps=1e-5, final_norm=True
)
RENAMED = {"up.": "feed_forward.up.", "down.": "feed_forward.down."}
layer = gf.nn.EncoderLayer(config)
layer.load_state_dict(lab.renamed(our_layer.state_dict(), RENAMED))
torch.testing.assert_close(layer(packed, packing), our_layer(rows, mask)[mask], atol=1e-5, rtol=1e-5)
print("heads: equal; layer: equal")

# %% [markdown]
# The whole model, with its logits. A table of names is all that separates two programs that hold the same network: that is how the library
# reads checkpoints of others.

# %%
from glassformer.models.text import TextEncoder, TextEncoderConfig

embedding = gf.nn.EmbeddingConfig(len(vocabulary), 64, max_positions=LONGEST, segments=0, norm=False)
whole = TextEncoder(
    TextEncoderConfig(embedding, config, pooling="mean", head="classification", num_labels=2)
).eval()
PLACES = {"tokens": "embeddings.tokens", "positions": "embeddings.positions", "layers": "encoder.layers", "norm.": "encoder.final_norm.",
          "head.": "head.out."}  # fmt: skip
whole.load_state_dict(lab.renamed(model.state_dict(), RENAMED | PLACES))
with torch.inference_mode():
    mine, theirs = model(ids), whole(ids, mask.long()).logits
torch.testing.assert_close(theirs, mine, atol=1e-5, rtol=1e-5)
print(f"logits: equal, largest difference {float((theirs - mine).abs().max()):.0e}")

# %% [markdown]
# And the loop: both models learn from the same batches with `fit`, and must stay equal; `lab.LogitsOf` calls the library's model as `fit` calls ours. Then the library's `TextClassifier` does
# all of this page in one call, with its own vocabulary and first weights, and a learning rate of 3e-3 where `fit` has 1e-3.
#
# **Before you run**: after some steps of training, are the logits still equal to the last digit?

# %%
torch.manual_seed(1)
fit(model.train(), train_ids[:320], targets[:320], epochs=1)
torch.manual_seed(1)
fit(lab.LogitsOf(whole.train(), PAD), train_ids[:320], targets[:320], epochs=1)
with torch.inference_mode():
    mine, theirs = model.eval()(ids), whole.eval()(ids, mask.long()).logits
torch.testing.assert_close(theirs, mine, atol=1e-3, rtol=1e-3)
drift, steps = float((theirs - mine).abs().max()), -(-len(train_ids[:320]) // 32)
print(f"after {steps} steps: equal within {drift:.0e}")

# %%
started = time.process_time()
clf = gf.TextClassifier("encoder-small", tokenizer="word", d_model=64, num_layers=2, num_heads=4, d_ff=128, max_length=LONGEST, pooling="mean",
                        epochs=lab.budget(1, 3 if is_imdb else 6), lr=3e-3, seed=0, threads=1).fit(train_x, train_y)  # fmt: skip
library, took = clf.score(test_x, test_y), time.process_time() - started
print(f"in one call: {library:.1%} after {took:.0f} s")

# %%
lab.answer("exchange", steps=steps, drift=drift, library=library, took=took, ours=ours, seconds=seconds)

# %% [markdown]
# **Why.** The arithmetic is the same, so nothing is hidden: what the library adds is around it. It computes no padding, stops and resumes, and checks
# the input; its command `glassformer train` compares with TF-IDF and writes a report.
#
# **Your turn**: pack a padded batch: the real ids one after the other, and the length of each text. *(`packed_ids`)*


# %%
def packed_ids(ids: Tensor, pad: int = 0) -> tuple[Tensor, list[int]]:
    """[B, T] -> [N] and B lengths."""
    ...  # your turn


lab.check("00", packed_ids=packed_ids)

# %% [markdown]
# ## Where to go from here
#
# [Lab 1](01_attention.py) looks inside attention, [lab 2](02_words.py) trains the rows of words, [lab 3](03_sentiment.py) takes the classifier apart.
# The library's own files, in the order of this page: [nn/embed.py](../src/glassformer/nn/embed.py), [nn/attention.py](../src/glassformer/nn/attention.py),
# [nn/encoder.py](../src/glassformer/nn/encoder.py), [models/text.py](../src/glassformer/models/text.py), [train/loop.py](../src/glassformer/train/loop.py).
