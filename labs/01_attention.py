# %% [markdown]
# # 1. Attention from the inside
#
# What you will see: attention computed by hand for three tokens and then by the library; what the √d_k is for; masks,
# heads and three ways to score; how positions enter; and a self-attention layer that computes a given 3×3 convolution.
#
# Every number that you may change is marked `# change me`. Run the file as a script, or cell by cell in an editor or
# notebook that knows the percent format. `lab` is a file next to this one: plots, `answer`, which prints a
# question with its measured answer, and `check`, which runs the hidden test of an exercise.

# %%
import math

import torch
from lab import answer, check, maps, panels, plot
from torch import Tensor

import glassformer as gf
from glassformer.nn import attend, convolution_as_attention, convolve_by_attention, sinusoidal
from glassformer.nn.convolution import pixel_rows
from glassformer.nn.scores import AdditiveScore, DotScore, MultiplicativeScore
from glassformer.packing import Packing

torch.manual_seed(0)  # change me

# %% [markdown]
# ## Three tokens by hand
#
# **Idea.** A token is a row of numbers. Its *query* says what it looks for, its *key* what it offers, its *value* what it gives.
# The softmax turns numbers into shares that sum to 1: eˣ of each, divided by the sum of all.
# The weight of token j for token i is the softmax, over j, of qᵢ·kⱼ/√d_k; the output is the weighted mean of the values.
# d_k is the number of entries of a query and a key, here 2. The diagram, which calls it K, has other words and numbers than the cell.
# Where the library does this: [nn/attention.py](../src/glassformer/nn/attention.py), `attend`.
#
# ![One query compared with three keys](../docs/_static/diagrams/queries-keys-values.svg)

# %%
words = ["the", "cat", "sleeps"]
q = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]])  # change me
k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
v = torch.eye(3)  # with these, the output shows the weights


def attend_by_hand(i: int) -> list[float]:
    """The output row of token i."""
    scores = [sum(float(a * b) for a, b in zip(q[i], key)) / math.sqrt(2) for key in k]
    exponentials = [math.exp(s) for s in scores]
    weights = [e / sum(exponentials) for e in exponentials]
    return [sum(w * float(row[c]) for w, row in zip(weights, v)) for c in range(3)]


# %% [markdown]
# **Before you run**: the query of “sleeps” is (2, 2). Which token does it read most, and does “the” get the same weight as “cat”?

# %%
by_hand = torch.tensor([attend_by_hand(i) for i in range(3)])
out, weights = attend(q[None], k[None], v[None], return_weights=True)  # [1, 3, 3] each
for word, row in zip(words, by_hand.tolist()):
    print(f"{word:7s}", [round(w, 2) for w in row])
torch.testing.assert_close(out[0], by_hand)
print("the library gives the same")
maps(weights, words, ["three tokens"])

# %% [markdown]
# **Why.** “sleeps” has the product 1 with “the” and “cat” and 2 with its own key; divided by √2 and put through the softmax that is about a sixth, a
# sixth and two thirds. Equal products give equal weights, whatever the words are.
#
# **Your turn**: a softmax over the last axis that survives scores of 1,000. *(`stable_softmax`)*


# %%
def stable_softmax(scores: Tensor) -> Tensor:
    """[..., S] -> [..., S], each row sums to 1."""
    ...  # your turn


check("01", stable_softmax=stable_softmax)

# %% [markdown]
# ## Shapes
#
# **Idea.** B sequences of T tokens, D numbers each, in H heads of K = D / H numbers (K is the d_k of one head). Queries may come
# from T rows and keys from S others: then the weights are [B, H, T, S].
#
# **Before you run**: write down the shapes of queries, keys, values and weights for B = 2, T = 7, S = 5, D = 24, H = 3.

# %%
B, T, S, D, H = 2, 7, 5, 24, 3  # change me: H must divide D
K = D // H
queries, keys, values = torch.randn(B, H, T, K), torch.randn(B, H, S, K), torch.randn(B, H, S, K)
out, weights = attend(queries, keys, values, return_weights=True)
off = (weights.sum(-1) - 1).abs().max()
shapes = [tuple(x.shape) for x in (queries, keys, values, weights)]
answer("shapes", B=B, T=T, S=S, D=D, H=H, q=shapes[0], k=shapes[1], v=shapes[2], w=shapes[3], off=off)

# %% [markdown]
# **Why.** Q and the output have T rows, K and V have S, so the map is T×S for each head and text. Nothing else fixes its shape; that is why one
# function serves self-attention and cross-attention.
#
# ## Without the √d_k
#
# **Idea.** The product of two rows of K independent numbers of mean 0 and variance 1 has variance K. Without the division, scores grow
# with the width, the softmax puts all weight on one token, and its gradient vanishes. The *entropy* of the weights, -Σ w ln w,
# says how even they are; in units of ln T, 1 is an even look, 0 one token. What that does to a training, where the
# weights may shrink to make up for it, is measured on reviews and images by
# [a long run](../benchmarks/quality/lab_questions.py), whose answer is below.


# %%
def evenness(width: int, factor: float, tokens: int = 32) -> tuple[float, float]:
    """Of random queries and keys: the entropy in units of ln T, and the mean gradient of the scores."""
    x, y = torch.randn(64, tokens, width), torch.randn(64, tokens, width)
    scores = (factor * x @ y.transpose(1, 2)).requires_grad_()
    weights = scores.softmax(-1)
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean() / math.log(tokens)
    loss = (weights * torch.randn_like(weights)).sum()  # any loss that reads the weights
    return entropy.item(), torch.autograd.grad(loss, scores)[0].abs().mean().item()


# %% [markdown]
# **Before you run**: how large is the standard deviation of q·k at width 1,024, and what does a softmax over 32 such scores look like?

# %%
widths = [4, 16, 64, 256, 1024]  # change me
divided = [evenness(width, width**-0.5) for width in widths]
undivided = [evenness(width, 1.0) for width in widths]
for column, title in enumerate(("entropy / ln T: how even", "mean |gradient|: what training can change")):
    lines = {"divided by √d_k": [d[column] for d in divided], "not divided": [u[column] for u in undivided]}
    plot(lines, x=widths, xscale="log", yscale=("linear", "log")[column], xlabel="width d_k", title=title)
(e1, g1), (e0, g0) = divided[-1], undivided[-1]
answer("scale", width=widths[-1], without=e0, divided=e1, times=g1 / g0)

# %% [markdown]
# **Why.** A sum of d_k products of independent numbers has a standard deviation of √d_k, 32 at width 1,024. The softmax of such scores is nearly 1 at
# the largest, and where the softmax is flat at 0 or 1 its derivative is nearly 0. Dividing by √d_k keeps the spread at 1 for every width.
#
# **Your turn**: the entropy of each row of weights in units of ln S; a weight of 0 counts nothing. *(`entropy_share`)*


# %%
def entropy_share(weights: Tensor) -> Tensor:
    """[..., S] -> [...], from 0 to 1."""
    ...  # your turn


check("01", entropy_share=entropy_share)

# %% [markdown]
# ## Masks
#
# **Idea.** A mask takes keys away before the softmax: the rest shares the weight. *Causal* takes what comes later, a padding mask
# what is not a token. Texts of unequal length are often filled up with empty tokens (*padding*), which a mask must then hide.
# This library lays the sequences one below the other instead, in one matrix [N, D], N the sum of their lengths: they are
# *packed*. `Packing((5, 3))` says that the first five rows are one sequence and the next three another; no row looks beyond
# its own, and there is no padding to hide.
#
# A published worked example ("I am learn #ing nlp") prints the scores of a causal 5×5 map, softmaxes its first three rows, and
# leaves the last two as scores. The cell finishes it.
#
# ![Three masks](../docs/_static/diagrams/masks.svg)
#
# **Before you run**: does the last row of a causal map change? And what is the first row of the example?

# %%
pieces = ["I", "am", "learn", "#ing", "nlp"]
scores = torch.tensor([[1.2, 2.3, 2.5, 1.2, 3.5], [2.3, 1.5, 0.5, 0.6, 1.2], [0.5, 1.4, 1.6, 0.3, 4.8], [0.6, 1.8, 2.4, 0.3, 1.2],
                       [2.1, 2.3, 0.2, 2.0, 2.5]])  # fmt: skip
finished = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
for piece, row in zip(pieces, finished):
    print(f"{piece:6s}", " ".join(f"{w:.2f}" for w in row))

x = torch.randn(1, 5, 8)  # change me
_, free = attend(x, x, x, return_weights=True)
_, causal = attend(x, x, x, causal=True, return_weights=True)
torch.testing.assert_close(causal, free.tril() / free.tril().sum(-1, keepdim=True))
maps([free[0], causal[0], finished], pieces, ["all see all", "causal", "the example, finished"])
answer("mask", later=free[0, 1, 2:].sum(), last=(causal - free)[0, 4].abs().max())

# %% [markdown]
# **Why.** The softmax divides by the sum over the keys that are left, so the proportions among them do not change. The last row may see all keys, so
# the causal mask takes nothing from it; the first row sees itself alone and has the weight 1.
#
# **Your turn**: both masks at once, for padded texts of a model that writes. *(`causal_and_real`)*


# %%
def causal_and_real(lengths: list[int]) -> Tensor:
    """Of B texts [B, T, T], T the longest: True where row t may read key s, a real token and not a later one."""
    ...  # your turn


check("01", causal_and_real=causal_and_real)

# %% [markdown]
# ## Heads
#
# **Idea.** In a layer the three come from the rows by three learned matrices: q = W_Q x + b_Q, k = W_K x + b_K, v = W_V x + b_V
# (*self-attention*: all from the same rows; *cross-attention*: keys and values from another sequence). The D numbers of each are
# cut into H pieces of K = D / H. Each head attends with its own piece; their outputs are laid side by side again, [T, D], and
# multiplied by one more matrix, the *output projection* W_O. That makes 4 (D² + D) parameters whatever H is, 1,088 for D = 16:
# several heads look at different things at the price of one. Only the maps grow, to H times T×S numbers.
#
# ![Heads](../docs/_static/diagrams/heads.svg)
#
# **Before you run**: the weights are random. Do the two heads look at the same tokens?

# %%
layer = gf.nn.MultiHeadAttention(16, num_heads=2)  # change me
layer.qkv.weight.data *= 6  # larger than at the start of training, so that the maps are not flat
record = gf.nn.trace.LayerRecord()
layer(torch.randn(5, 16), Packing((5,)), record=record)
maps(record.weights[0].detach(), pieces, ["head 1", "head 2"])
print(f"{sum(p.numel() for p in layer.parameters())} parameters with 2 heads; with 1 head just as many")

# %% [markdown]
# **Why.** Each head has a softmax of its piece of the numbers, so the maps differ even with random weights. The matrices are D×3D and D×D for any H.
#
# **Your turn**: cut rows into heads. *(`as_heads`)*


# %%
def as_heads(x: Tensor, heads: int) -> Tensor:
    """[T, D] -> [H, T, D / H]; head 0 has the first D / H numbers of each row."""
    ...  # your turn


check("01", as_heads=as_heads)

# %% [markdown]
# ## Keys that are the values
#
# **Idea.** Decoders attend to encoder states that are keys and values in one, and `attend(q, k)` takes the keys for both. Is anything lost?
# With one head and an invertible W_V, nothing: the scores are X W_Q W_Kᵀ Xᵀ, and queries X W_Q W_Kᵀ W_V⁻ᵀ against keys X W_V give the
# same, so the queries take over what W_K did (in an orthonormal space W_V⁻ᵀ is W_V). With H heads each W_V is D by D/H,
# there is no inverse, and a head whose keys are its values can score only along the directions that it gives.
#
# **Before you run**: with two heads, W_V has half as many columns. Which part of the scores can the best queries still reach?

# %%
D = 16  # change me
x = torch.randn(1, 7, D)
w_q, w_k, w_v = torch.randn(3, D, D) / D**0.5
own = attend(x @ w_q, x @ w_k, x @ w_v)
queries = x @ w_q @ w_k.T @ torch.linalg.inv(w_v).T  # ... so that queries · (x W_V) is what q · k was
shared = attend(queries, x @ w_v)  # no values given: the keys are the values
torch.testing.assert_close(shared, own, atol=1e-3, rtol=1e-3)

half = D // 2  # two heads: a W_V of D rows and half as many columns
needed = w_q[:, :half] @ w_k[:, :half].T  # the scores of one head as a matrix
best = torch.linalg.lstsq(w_v[:, :half], needed.T).solution.T  # the queries that come nearest with keys x W_V
gap = (best @ w_v[:, :half].T - needed).norm() / needed.norm()
answer("shared", D=D, off=(own - shared).abs().max(), fewer=D * D, gap=gap)

# %% [markdown]
# **Why.** A product of two matrices is one matrix: what W_K did, the queries can do. A matrix of half the rank reaches only half of the directions, and the
# rest of the scores is lost.
#
# ## Three scorers
#
# **Idea.** *Dot*: q·k/√K. *Multiplicative*: qWk, so that widths may differ. *Additive*: vᵀtanh(W₁q + W₂k + b), a small network. Where the
# library does this: [nn/scores.py](../src/glassformer/nn/scores.py).
#
# **Before you run**: which of the three has no parameters, and which needs memory for every pair of tokens and every hidden unit?

# %%
width = 32  # change me
scorers = {"dot": DotScore, "multiplicative": MultiplicativeScore, "additive": AdditiveScore}
queries, keys = torch.randn(1, 6, width), torch.randn(1, 6, width)
shown, numbers = [], {}
for name, kind in scorers.items():
    scorer = kind(width, width)
    shown.append(scorer(queries, keys).softmax(-1)[0].detach())
    numbers[name] = sum(p.numel() for p in scorer.parameters())
maps(shown, titles=list(scorers))
answer("scorers", width=width, numbers=numbers, memory=6 * 6 * width)

# %% [markdown]
# **Why.** The dot scorer only multiplies what is there. A matrix between query and key (multiplicative) can compare different features, and a hidden
# layer for each pair (additive) can compute functions other than a product, at the price of its memory.
#
# **Your turn**: the additive scorer, without a loop. *(`additive_scores`)*


# %%
def additive_scores(q: Tensor, k: Tensor, w1: Tensor, w2: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """[T, K] and [S, K], matrices [hidden, K], b and v [hidden] -> [T, S]."""
    ...  # your turn


check("01", additive_scores=additive_scores)

# %% [markdown]
# ## Positions, and their shift
#
# **Idea.** Attention alone does not know the order. Sinusoidal positions add to each row sines and cosines of wavelengths from 2π
# towards 10000·2π: PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos of the same. Each pair (sin, cos) turns by a fixed angle when
# the place moves by k: PE(p + k) = M(k) PE(p), with one
# matrix for all p. Where the library does this: [nn/positions.py](../src/glassformer/nn/positions.py).


# %%
def shift_matrix(steps: int, width: int) -> Tensor:
    """M with PE(p + steps) = M PE(p) for every p, [width, width]."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = steps / 10_000 ** (i / width)
        c, s = math.cos(angle), math.sin(angle)
        matrix[i : i + 2, i : i + 2] = torch.tensor([[c, s], [-s, c]])
    return matrix


# %% [markdown]
# **Before you run**: the product of the rows of two positions: does it depend on where they are, or on their distance?

# %%
steps, width = 17, 64  # change me
table = sinusoidal(512, width).double()
off = (table[steps:] - table[:-steps] @ shift_matrix(steps, width).T).abs().max()
assert off < 1e-4
panels({"PE(p), 100 positions": table[:100].T}, aspect="auto", cmap="RdBu")
near = {
    "PE(120) · PE(120 + k)": table[60:181] @ table[120],
    "PE(300) · PE(300 + k)": table[240:361] @ table[300],
}
plot(near, x=range(-60, 61), xlabel="distance k", title="near positions are alike")
answer("shift", width=width, count=512 - steps, steps=steps, off=off)

# %% [markdown]
# **Why.** The addition theorems: sin(a + b) and cos(a + b) are sums of sin a and cos a with factors that depend on b only. So “17 places further” is
# one linear map, which a layer can learn once for all places. The same theorems make the product of two rows depend on the distance alone.
#
# **Your turn**: attention without positions does not know the order. Show it with `attend`: permute the rows of X. *(`permuted`)*


# %%
def permuted(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """[1, T, D] and a permutation [T] -> the output of the permuted rows, and the permuted output."""
    ...  # your turn


check("01", permuted=permuted)

# %% [markdown]
# ## A self-attention layer that is a 3×3 convolution
#
# **Idea.** A convolution has fixed, shared, local weights; attention has weights that depend on content and reach everywhere. One
# contains the other (Cordonnier et al., 2020): nine heads, one for each neighbor. Head h scores the key at place p' for a
# query at p with -β|p' - (p + Δₕ)|², where Δₕ is the step to neighbor h and β says how sharply the head looks. Multiplied out it
# is -β|p'|² + 2β p'·(p + Δₕ) - β|p + Δₕ|². The last term is the same for all keys, so the softmax drops it; what is left is the
# product of a query and a key that are linear in (row, column, row² + column², 1) of their places. β = 60 leaves e⁻⁶⁰ for every other place:
# nothing in fp32. The output projection holds the kernel.
# The image has a ring of zeros around it, as a convolution's padding is. Where the library does this:
# [nn/convolution.py](../src/glassformer/nn/convolution.py), `convolution_as_attention`, forty lines that fill the matrices.
#
# **Before you run**: where does the head for the upper right neighbor look, from a pixel in the middle? And what does a smaller β do?

# %%
size = 10  # change me
kernel, image = torch.randn(4, 3, 3, 3), torch.rand(1, 3, size, size)
convolved = torch.nn.functional.conv2d(image, kernel, padding=1)
attended = convolve_by_attention(image, kernel)
torch.testing.assert_close(attended, convolved, atol=1e-4, rtol=1e-4)
layer, record = convolution_as_attention(kernel), gf.nn.trace.LayerRecord()
rows, packing = pixel_rows(image, kernel)  # [144, 27]: 12 × 12 pixels with the ring
layer(rows, packing, record=record)

# %%
wide, middle = size + 2, (size + 2) // 2
looks = (
    record.weights[0][2, wide * middle + middle].detach().view(wide, wide)
)  # head 3 looks up and to the right
shown = {"convolution": convolved[0, 0], "attention": attended[0, 0].detach(), "head 3, one query": looks}
panels({"image": image[0].permute(1, 2, 0)} | shown, dot=(middle, middle))
numbers = sum(p.numel() for p in layer.parameters())
blurred = (convolve_by_attention(image, kernel, sharpness=0.5) - convolved).abs().max()
error = (attended - convolved).abs().max()
answer("convolution", size=size, error=error, numbers=numbers, kernel=kernel.numel(), blurred=blurred)

# %% [markdown]
# **Why.** A score that falls with the square of a distance is a product of a query and a key that are linear in row, column and their squares, so two matrices can
# express it. A sharp softmax then makes each head a shift by one pixel, and the output projection weighs the nine shifted images as a kernel does.
#
# **Your turn**: which kernel shifts an image one pixel to the right? *(`shift_kernel`)*


# %%
def shift_kernel() -> Tensor:
    """[3, 3, 3, 3]: three colors in, three out."""
    ...  # your turn


check("01", shift_kernel=shift_kernel)

# %% [markdown]
# Where the library does this: [nn/attention.py](../src/glassformer/nn/attention.py) (`attend`, `MultiHeadAttention`),
# [nn/maps.py](../src/glassformer/nn/maps.py) (the masked softmax), [nn/convolution.py](../src/glassformer/nn/convolution.py),
# [packing.py](../src/glassformer/packing.py).
