# %% [markdown]
# # 1. Attention from the inside
#
# What you will see: attention computed by hand for three tokens and then by the library; what the √d_k is for; masks,
# heads and three ways to score; how positions enter; and a self-attention layer that computes a given 3×3 convolution.
#
# Every number that you may change is marked `# change me`. Run the file as a script, or cell by cell in an editor or
# notebook that knows the percent format. `lab` is a file next to this one: colors, plots, and `answer`, which prints a
# question with its measured answer.

# %%
import math

import torch
from lab import RED, answer, check, maps, panels, plot, plt
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
# A token is a row of numbers. Its *query* says what it looks for, its *key* what it offers, its *value* what it gives.
# The softmax turns numbers into shares that sum to 1: eˣ of each, divided by the sum of all.
# The weight of token j for token i is the softmax, over j, of qᵢ·kⱼ/√d_k; the output is the weighted mean of the values.
# d_k is the number of entries of a query and a key, here 2. The diagram, which calls it K, has other words and numbers than the cell.
# Where the library does this: [nn/attention.py](../src/glassformer/nn/attention.py), `attend`.
#
# ![One query compared with three keys](../docs/_static/diagrams/queries-keys-values.svg)
#
# **Before you run**: the query of “sleeps” is (2, 2). Which token does it read most, and does “the” get the same weight as “cat”?

# %%
words = ["the", "cat", "sleeps"]
q = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]])  # change me
k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
v = torch.tensor(
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
)  # with these, the output shows the weights

by_hand = []
for i in range(3):
    scores = [sum(float(a * b) for a, b in zip(q[i], k[j])) / math.sqrt(2) for j in range(3)]
    exponentials = [math.exp(s) for s in scores]
    weights = [e / sum(exponentials) for e in exponentials]
    by_hand.append([sum(w * float(v[j, c]) for j, w in enumerate(weights)) for c in range(3)])
    print(f"{words[i]:7s} scores {[round(s, 2) for s in scores]}  weights {[round(w, 2) for w in weights]}")

out, weights = attend(q[None], k[None], v[None], return_weights=True)  # [1, 3, 3] each
difference = (out[0] - torch.tensor(by_hand)).abs().max()
assert difference < 1e-6
print(f"the library's answer differs by {difference:.1e}")
maps(weights, words, ["three tokens"])
plt.show()

# %% [markdown]
# **Why.** “sleeps” has the product 1 with “the” and “cat” and 2 with its own key; divided by √2 and put through the softmax that is about a sixth, a
# sixth and two thirds. Equal products give equal weights, whatever the words are.

# %% [markdown]
# ## Shapes
#
# B sequences of T tokens, D numbers each, in H heads of K = D / H numbers (K is the d_k of one head). Queries may come
# from T rows and keys from S others: then the weights are [B, H, T, S].
#
# **Before you run**: write down the shapes of queries, keys, values and weights for B = 2, T = 7, S = 5, D = 24, H = 3.

# %%
B, T, S, D, H = 2, 7, 5, 24, 3  # change me: H must divide D
K = D // H
queries, keys, values = torch.randn(B, H, T, K), torch.randn(B, H, S, K), torch.randn(B, H, S, K)
out, weights = attend(queries, keys, values, return_weights=True)
rows = float((weights.sum(-1) - 1).abs().max())
answer(
    "shapes",
    f"With B={B}, T={T}, S={S}, D={D}, H={H}: Q {list(queries.shape)}, K {list(keys.shape)}, V {list(values.shape)}, weights "
    f"{list(weights.shape)}; each row of weights sums to 1 (off by {rows:.0e} at most).",
)

# %% [markdown]
# **Why.** Q and the output have T rows, K and V have S, so the map is T×S for each head and text. Nothing else fixes its shape; that is why one
# function serves self-attention and cross-attention.

# %% [markdown]
# ## Without the √d_k
#
# The product of two rows of K independent numbers of mean 0 and variance 1 has variance K. Without the division, scores grow
# with the width, the softmax puts all weight on one token, and its gradient vanishes. The entropy of the weights, -Σ w ln w,
# says how even they are; in units of ln T, 1 is an even look, 0 one token. What that does to a training, where the
# weights may shrink to make up for it, is measured on reviews and images by
# [a long run](../benchmarks/quality/lab_questions.py), whose answer is below.
#
# **Before you run**: how large is the standard deviation of q·k at width 1,024, and what does a softmax over 32 such scores look like?

# %%
widths = [4, 16, 64, 256, 1024]  # change me
tokens = 32
found: dict[str, list[tuple[float, float]]] = {"divided by √d_k": [], "not divided": []}
for width in widths:
    for name, factor in (("divided by √d_k", width**-0.5), ("not divided", 1.0)):
        x, y = torch.randn(64, tokens, width), torch.randn(64, tokens, width)
        scores = (factor * x @ y.transpose(1, 2)).requires_grad_()
        weights = scores.softmax(-1)
        entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean() / math.log(tokens)
        chosen = (weights * torch.randn_like(weights)).sum()  # any loss that reads the weights
        gradient = torch.autograd.grad(chosen, scores)[0].abs().mean()
        found[name].append((entropy.item(), gradient.item()))

# %%
for column, name in enumerate(
    ("entropy / ln T: how even the look is", "mean |gradient|: what training can still change")
):
    lines = {kind: [pair[column] for pair in line] for kind, line in found.items()}
    plot(lines, x=widths, xscale="log", yscale="log" if column else "linear", xlabel="width d_k", title=name)
(e1, g1), (e0, g0) = found["divided by √d_k"][-1], found["not divided"][-1]
answer(
    "scale",
    f"At width {widths[-1]} the entropy is {e0:.2f} without the division and {e1:.2f} with it; the mean gradient of the scores "
    f"is {g1 / g0:.0f} times smaller without it.",
)

# %% [markdown]
# **Why.** A sum of d_k products of independent numbers has a standard deviation of √d_k, 32 at width 1,024. The softmax of such scores is nearly 1 at
# the largest, and where the softmax is flat at 0 or 1 its derivative is nearly 0. Dividing by √d_k keeps the spread at 1 for every width.

# %% [markdown]
# ## Masks
#
# A mask takes keys away before the softmax: the rest shares the weight. *Causal* takes what comes later, a padding mask
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
scores = torch.tensor([
    [1.2, 2.3, 2.5, 1.2, 3.5],
    [2.3, 1.5, 0.5, 0.6, 1.2],
    [0.5, 1.4, 1.6, 0.3, 4.8],
    [0.6, 1.8, 2.4, 0.3, 1.2],
    [2.1, 2.3, 0.2, 2.0, 2.5],
])  # fmt: skip
finished = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
for piece, row in zip(pieces, finished):
    print(f"{piece:6s}", " ".join(f"{w:.2f}" for w in row))
printed = torch.tensor([[1.0, 0, 0, 0, 0], [0.69, 0.31, 0, 0, 0], [0.15, 0.38, 0.46, 0, 0]])
off = float((finished[:3] - printed).abs().max())

x = torch.randn(1, 5, 8)  # change me
_, free = attend(x, x, x, return_weights=True)
_, causal = attend(x, x, x, causal=True, return_weights=True)
rest = free.tril() / free.tril().sum(-1, keepdim=True)
assert torch.allclose(causal, rest, atol=1e-6)
maps([free[0], causal[0], finished], pieces, ["all see all", "causal", "the example, finished"])
plt.show()
answer(
    "mask",
    f"Row 2 of 5 had {float(free[0, 1, 2:].sum()):.0%} of its weight on later tokens and has 0 % under the causal mask; what is "
    f"left keeps its proportions exactly (largest difference {float((causal - rest).abs().max()):.0e}), and the last row does "
    f"not change ({float((causal - free)[0, 4].abs().max()):.0e}). The worked example's last two rows are "
    + " and ".join(" ".join(f"{w:.2f}" for w in row) for row in finished[3:])
    + f"; its three printed rows differ by at most {off:.3f} from what its scores give.",
)

# %% [markdown]
# **Why.** The softmax divides by the sum over the keys that are left, so the proportions among them do not change. The last row may see all keys, so
# the causal mask takes nothing from it; the first row sees itself alone and has the weight 1.

# %% [markdown]
# ## Heads
#
# In a layer the three come from the rows by three learned matrices: q = W_Q x + b_Q, k = W_K x + b_K, v = W_V x + b_V
# (*self-attention*: all from the same rows; *cross-attention*: keys and values from another sequence). The D numbers of each are
# cut into H pieces of K = D / H. Each head attends with its own piece; their outputs are laid side by side again, [T, D], and
# multiplied by one more matrix, the *output projection* W_O. That makes 4 (D² + D) parameters whatever H is, 1,088 for D = 16:
# several heads look at different things at the price of one. Only the maps grow, to H times T×S numbers.
#
# ![Heads](../docs/_static/diagrams/heads.svg)

# %%
layer = gf.nn.MultiHeadAttention(16, num_heads=2)  # change me
layer.qkv.weight.data *= 6  # larger than at the start of training, so that the maps are not flat
rows = torch.randn(5, 16)
record = gf.nn.trace.LayerRecord()
layer(rows, Packing((5,)), record=record)
maps(record.weights[0].detach(), pieces, ["head 1", "head 2"])
plt.show()
print(f"{sum(p.numel() for p in layer.parameters())} parameters with 2 heads; with 1 head just as many")

# %% [markdown]
# **Why.** Each head has a softmax of its piece of the numbers, so the maps differ even with random weights. The matrices are D×3D and D×D for any H.

# %% [markdown]
# ## Keys that are the values
#
# Decoders attend to encoder states that are keys and values in one, and `attend(q, k)` takes the keys for both. Is anything lost?
# With one head and an invertible W_V, nothing: the scores are X W_Q W_Kᵀ Xᵀ, and queries X W_Q W_Kᵀ W_V⁻ᵀ against keys X W_V give the
# same, so the queries take over what W_K did (in an orthonormal space W_V⁻ᵀ is W_V). With H heads each W_V is D by D/H,
# there is no inverse, and a head whose keys are its values can score only along the directions that it gives.


# %%
D = 16  # change me
x = torch.randn(1, 7, D)
w_q, w_k, w_v = torch.randn(3, D, D) / D**0.5
own = attend(x @ w_q, x @ w_k, x @ w_v)
queries = x @ w_q @ w_k.T @ torch.linalg.inv(w_v).T  # ... so that queries · (x W_V) is what q · k was
shared = attend(queries, x @ w_v)  # no values given: the keys are the values
lost = float((own - shared).abs().max())
half = D // 2  # two heads: a W_V of D rows and half as many columns
needed = w_q[:, :half] @ w_k[:, :half].T  # the scores of one head as a matrix
best = torch.linalg.lstsq(w_v[:, :half], needed.T).solution.T  # the queries that come nearest with keys x W_V
gap = float((best @ w_v[:, :half].T - needed).norm() / needed.norm())
assert lost < 1e-3
answer(
    "shared",
    f"With one head of {D} nothing is lost: queries that take W_K over give the same output (largest difference {lost:.0e}) with "
    f"{D * D} numbers fewer. With two heads the same W_V can hold only part of a score: the nearest leaves {gap:.0%} of it "
    "out, so the values must give way.",
)

# %% [markdown]
# ## Three scorers
#
# *Dot*: q·k/√K. *Multiplicative*: qWk, so that widths may differ. *Additive*: vᵀtanh(W₁q + W₂k + b), a small network. Where the
# library does this: [nn/scores.py](../src/glassformer/nn/scores.py).
#
# **Before you run**: which of the three has no parameters, and which needs memory for every pair of tokens and every hidden unit?

# %%
width = 32  # change me
scorers = {
    "dot": DotScore(width, width),
    "multiplicative": MultiplicativeScore(width, width),
    "additive": AdditiveScore(width, width),
}
queries, keys = torch.randn(1, 6, width), torch.randn(1, 6, width)
shown, numbers = [], {}
for name, scorer in scorers.items():
    shown.append(scorer(queries, keys).softmax(-1)[0].detach())
    numbers[name] = sum(p.numel() for p in scorer.parameters())
maps(shown, titles=list(scorers))
plt.show()
memory = 6 * 6 * width
answer(
    "scorers",
    f"At width {width} dot has {numbers['dot']} parameters, multiplicative {numbers['multiplicative']}, additive "
    f"{numbers['additive']}; additive also keeps a hidden layer for every pair, {memory} numbers for 6×6 tokens where the "
    "others keep 36.",
)

# %% [markdown]
# **Why.** The dot scorer only multiplies what is there. A matrix between query and key (multiplicative) can compare different features, and a hidden
# layer for each pair (additive) can compute functions other than a product, at the price of its memory.

# %% [markdown]
# ## Positions, and their shift
#
# Attention alone does not know the order. Sinusoidal positions add to each row sines and cosines of wavelengths from 2π
# towards 10000·2π: PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos of the same. Each pair (sin, cos) turns by a fixed angle when the place moves by k: PE(p + k) = M(k) PE(p), with one
# matrix for all p. Where the library does this: [nn/positions.py](../src/glassformer/nn/positions.py).


# %%
def shift_matrix(steps: int, width: int) -> Tensor:
    """M with PE(p + steps) = M PE(p) for every p, ``[width, width]``."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = steps / 10_000 ** (i / width)
        c, s = math.cos(angle), math.sin(angle)
        matrix[i : i + 2, i : i + 2] = torch.tensor([[c, s], [-s, c]])
    return matrix


steps, width = 17, 64  # change me
table = sinusoidal(512, width).double()
off = float((table[steps:] - table[:-steps] @ shift_matrix(steps, width).T).abs().max())
panels({"PE(p), 100 positions": table[:100].T}, aspect="auto", cmap="RdBu")
near = table[60:181] @ table[120]
plot(
    {"PE(p) · PE(p + k)": near.tolist()},
    x=range(-60, 61),
    xlabel="distance k",
    title="near positions are alike",
)
assert off < 1e-4
answer(
    "shift",
    f"Yes: one {width}×{width} matrix of rotations moves all {512 - steps} positions by {steps}, off by {off:.0e} at most (the "
    "table is in fp32).",
)

# %% [markdown]
# **Why.** The addition theorems: sin(a + b) and cos(a + b) are sums of sin a and cos a with factors that depend on b only. So “17 places further” is
# one linear map, which a layer can learn once for all places.

# %% [markdown]
# ## A self-attention layer that is a 3×3 convolution
#
# A convolution has fixed, shared, local weights; attention has weights that depend on content and reach everywhere. One
# contains the other (Cordonnier et al., 2020): nine heads, one for each neighbor. Head h scores the key at place p' for a
# query at p with -β|p' - (p + Δₕ)|², where Δₕ is the step to neighbor h and β says how sharply the head looks. Multiplied out it
# is -β|p'|² + 2β p'·(p + Δₕ) - β|p + Δₕ|². The last term is the same for all keys, so the softmax drops it; what is left is the
# product of a query and a key that are linear in (row, column, row² + column², 1) of their places. β = 60 leaves e⁻⁶⁰ for every other place: nothing in fp32. The output projection holds the kernel.
# The image has a ring of zeros around it, as a convolution's padding is. Where the library does this:
# [nn/convolution.py](../src/glassformer/nn/convolution.py), `convolution_as_attention`, forty lines that fill the matrices.

# %%
size = 10  # change me
kernel = torch.randn(4, 3, 3, 3)
image = torch.rand(1, 3, size, size)
convolved = torch.nn.functional.conv2d(image, kernel, padding=1)
attended = convolve_by_attention(image, kernel)
error = float((attended - convolved).abs().max())
layer, record = convolution_as_attention(kernel), gf.nn.trace.LayerRecord()
rows, packing = pixel_rows(image, kernel)  # [144, 27]: 12 × 12 pixels with the ring
with torch.no_grad():
    layer(rows, packing, record=record)
wide = size + 2
at = wide * (wide // 2) + wide // 2  # a pixel in the middle

# %%
looks = record.weights[0][2, at].view(wide, wide)  # head 3 looks up and to the right
axes = panels({"image": image[0].permute(1, 2, 0), "convolution": convolved[0, 0], "attention": attended[0, 0], "head 3, one query": looks})  # fmt: skip
axes[3].plot(wide // 2, wide // 2, "o", color=RED, markersize=5)
plt.show()
blurred = float((convolve_by_attention(image, kernel, sharpness=0.5) - convolved).abs().max())
assert error < 1e-4
answer(
    "convolution",
    f"Yes: nine heads reproduce a random 3×3 kernel of 3 to 4 channels at all {size}×{size} places, off by {error:.0e} at most; the "
    f"layer has {sum(p.numel() for p in layer.parameters())} numbers where the convolution has {kernel.numel()}. Heads that look less "
    f"sharply (β = 0.5) are off by up to {blurred:.1f}.",
)

# %% [markdown]
# **Why.** A score that falls with the square of a distance is a product of a query and a key that are linear in row, column and their squares, so two matrices can
# express it. A sharp softmax then makes each head a shift by one pixel, and the output projection weighs the nine shifted images as a kernel does.
#
# ## Exercises
#
# Write the functions and run the cell: `check` runs their hidden tests.
#
# 1. Write the softmax so that scores of 1000 do not overflow. *(`stable_softmax`)*
# 2. Attention without positions does not know the order: permute the rows of X and say what happens to the output, then
#    check it with `attend`: return the output of the permuted rows, and the permuted output. *(`permuted`)*
# 3. Which kernel shifts an image one pixel to the right? Give it to `convolve_by_attention` and look at the image.
#    *(`shift_kernel`)*


# %%
def stable_softmax(scores: Tensor) -> Tensor:
    """Over the last axis."""
    ...  # your turn


def permuted(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """[1, T, D] and a permutation [T] -> two [1, T, D]."""
    ...  # your turn


def shift_kernel() -> Tensor:
    """[3, 3, 3, 3]: three colors in, three out."""
    ...  # your turn


check("01", stable_softmax=stable_softmax)
check("01", permuted=permuted)
check("01", shift_kernel=shift_kernel)

# %% [markdown]
# Where the library does this: [nn/attention.py](../src/glassformer/nn/attention.py) (`attend`, `MultiHeadAttention`),
# [nn/maps.py](../src/glassformer/nn/maps.py) (the masked softmax), [nn/convolution.py](../src/glassformer/nn/convolution.py),
# [packing.py](../src/glassformer/packing.py).
