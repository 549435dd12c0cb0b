"""Architecture diagrams of models, from input to logits, at two levels of detail.

``blocks`` describes the modules: type, output shape and number of parameters, which sum to the model's total.
``draw`` renders them as SVG; colors come from the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Literal

from torch import nn

from glassformer.nn.disentangled import DistanceTable

Detail = Literal["blocks", "layers"]
WIDTH, BOX, PART, GAP = 640, 46, 30, 22  # pixels: width of the diagram; height of a block, a part, a gap


@dataclass(frozen=True)
class Block:
    """One box of the diagram."""

    name: str
    about: str = ""  # description with sizes
    shape: str = ""  # output shape, in the letters of types.py
    parameters: int = 0  # of all repeats together
    repeat: int = 1
    residual: int = 0  # number of parts, up to this one, that the residual connection skips
    parts: list[Block] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Block:
        """The block that ``to_dict`` wrote."""
        parts = [Block.from_dict(part) for part in values.get("parts", [])]
        return Block(**{**values, "parts": parts})


# Names of child modules in the order of the forward pass.
ORDER = (
    "embeddings",
    "encoder",
    "patch_decoder",
    "bridge",
    "target_embeddings",
    "decoder",
    "attention",
    "combine",
    "pooling",
    "head",
    "nsp",
    "mlm",
)


def blocks(model: nn.Module) -> list[Block]:
    """The blocks of a model in the order of the forward pass; shared parameters are counted once.

    Unknown kinds of models are listed by their modules in the order of creation.
    """
    children = {name: child for name, child in model._modules.items() if child is not None}
    if getattr(model, "fixed", False):
        return _linear(model)
    if "embeddings" not in children or "encoder" not in children:
        return [_plain(name, child, Known()) for name, child in model.named_children()]
    known, translates = Known(), "decoder" in children
    children = {name: children[name] for name in sorted(children.keys() & set(ORDER), key=ORDER.index)}
    shapes = _shapes(model, translates)
    found = []
    for name, child in children.items():
        shape = shapes.get(name, "")
        if hasattr(child, "layers"):
            found.append(_layers(name, child, shape, known))
            if (relative := getattr(child, "relative", None)) is not None:
                shape_of = "[2 S, D]" if isinstance(relative, DistanceTable) else "[H, 2 T - 1]"
                found.append(_plain("relative positions", relative, known, shape_of))
            if isinstance(child.final_norm, nn.LayerNorm):
                found.append(_plain("final norm", child.final_norm, known, shape))
        elif name == "target_embeddings":
            found.append(_plain(name, child, known, shape, "target tokens [N] come in here"))
        else:
            found.append(_plain(name, child, known, shape))
        if name == "encoder" and "head" in children and "pooling" not in children:
            found.append(_pooled(model))
    if translates:
        found.append(_output(model, known))
    return found


def _linear(model: Any) -> list[Block]:
    """The blocks of a linear model: features and head."""
    features = Block("features", "weighted words and n-grams of characters", "[N]")
    if model.reads == "images":
        features = Block("features", "edges and colors of cells", f"[N, {model.config.embedding.d_model}]")
    return [features, _plain("head", model.head, Known(), f"[B, {_outputs(model.head)}]")]


class Known:
    """The parameters that are already counted in a block."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def new(self, module: nn.Module) -> int:
        """The number of parameters of ``module`` that are not counted yet."""
        return sum(p.numel() for p in module.parameters() if id(p) not in self.seen)

    def add(self, module: nn.Module) -> None:
        self.seen |= {id(p) for p in module.parameters()}


def _pooled(model: Any) -> Block:
    """The pooling block of a recurrent or convolutional classifier without a pooling module."""
    how = "largest value" if isinstance(model.encoder, nn.ModuleList) else "last state of each direction"
    return Block("pooling", how, f"[B, {model.head.d_model}]")


def _shapes(model: Any, translates: bool) -> dict[str, str]:
    """The output shape of each child, in the letters of types.py; in translators M is the source, N
    the target.
    """
    d, wide = _row_widths(model)
    if translates:
        encoded = dict.fromkeys(("embeddings", "encoder"), f"[M, {d}]")
        return (
            encoded
            | dict.fromkeys(("target_embeddings", "decoder", "attention", "combine"), f"[N, {d}]")
            | {"bridge": f"[B, {d}]"}
        )
    pooled = getattr(getattr(model, "pooling", None), "width", wide)  # of pairs apart both sides
    out = {"embeddings": f"[N, {d}]", "encoder": f"[N, {wide}]", "pooling": f"[B, {pooled}]"}
    out |= {"mlm": "[N, V]", "nsp": "[B, 2]"}
    head = getattr(model, "head", None)
    return out if head is None else out | {"head": f"[B, {_outputs(head)}]"}


def _row_widths(model: Any) -> tuple[int, int]:
    """The widths of the encoder's input and output."""
    config = model.config
    if hasattr(model.encoder, "layers"):
        return model.encoder.config.d_model, model.encoder.config.d_model
    embedding = getattr(config, "embedding", None)
    if embedding is None:  # a recurrent translator
        return config.d_model, config.d_model
    return embedding.d_model, model.head.d_model


def _output(model: Any, known: Known) -> Block:
    """The output layer of a translator, tied to the target embeddings or separate."""
    weight, bias = model.output_layer()
    tied = model.output is None
    about = (
        "target table, transposed, and a bias" if tied else f"linear {weight.shape[1]} → {weight.shape[0]}"
    )
    own = 0 if id(weight) in known.seen else weight.numel()
    return Block("logits", about, "[N, V]", own + bias.numel())


def _layers(name: str, stack: Any, shape: str, known: Known) -> Block:
    """The block of an encoder or decoder, with the parts of one layer and the number of layers."""
    c, layer = stack.config, stack.layers[0]
    past = 2 if c.norm == "pre" else 1  # with pre-norm the residual connection also skips the norm
    heads = f"{c.num_heads} heads of {c.d_model // c.num_heads}"
    if c.attention != "full":
        reach = f", {c.attention_window} places on either side" if c.attention == "local" else ""
        heads += f", {c.attention}{reach}"
    branches = [("self-attention", layer.attention, heads)]
    if hasattr(layer, "cross"):
        branches.append(("cross-attention", layer.cross, f"{heads}, over the encoder's rows"))
    inside = f"{c.d_model} → {c.d_ff} → {c.d_model}, {layer.feed_forward.activation}"
    branches.append(("feed-forward", layer.feed_forward, inside))
    parts = []
    for number, (what, module, about) in enumerate(branches, 1):
        branch, norm = (
            _part(what, module, known, about, past),
            _part("norm", getattr(layer, f"norm{number}"), known),
        )
        if scale := known.new(getattr(layer, f"scale{number}", nn.Identity())):
            branch = replace(branch, about=f"{branch.about}; scaled", parameters=branch.parameters + scale)
        parts += [norm, branch] if c.norm == "pre" else [branch, norm]
    about = f"{c.norm}-norm, d_model {c.d_model}, {c.num_heads} heads, d_ff {c.d_ff}"
    made = Block(f"{name} layer", about, shape, known.new(stack.layers), c.num_layers, parts=parts)
    known.add(stack.layers)
    return made


def _part(name: str, module: nn.Module, known: Known, about: str = "", residual: int = 0) -> Block:
    new = known.new(module)
    shared = "" if new or not _count(module) else "shared with the source: "
    return Block(name, shared + (about or _about(module)), "", new, residual=residual)


def _plain(name: str, module: nn.Module, known: Known, shape: str = "", about: str = "") -> Block:
    children = {} if hasattr(module, "rnn") else dict(module.named_children())
    parts = [_part(_words(module, key), child, known) for key, child in children.items() if _count(child)]
    total = known.new(module)
    own = total - sum(part.parameters for part in parts)
    if own and parts:  # parameters of the module itself
        parts.append(Block("own parameters", "", "", own))
    if not about:
        about = _about(module) if not parts else type(module).__name__
    known.add(module)
    return Block(name.replace("_", " "), about, shape, total, parts=parts)


def _words(module: nn.Module, key: str) -> str:
    return f"filter {int(key) + 1}" if isinstance(module, nn.ModuleList) else key.replace("_", " ")


def _about(module: nn.Module) -> str:
    if isinstance(rnn := getattr(module, "rnn", module), nn.RNNBase):
        ways = "bidirectional " if rnn.bidirectional else ""
        layers = f", {rnn.num_layers} layers" if rnn.num_layers > 1 else ""
        return f"{ways}{type(rnn).__name__}, {rnn.input_size} → {rnn.hidden_size}{layers}"
    if isinstance(conv := getattr(module, "conv", module), nn.Conv1d):
        return f"{conv.out_channels} filters over {conv.kernel_size[0]} tokens"
    if isinstance(module, nn.Linear):
        return f"linear {module.in_features} → {module.out_features}"
    if isinstance(module, nn.Embedding):
        return f"table {module.num_embeddings:,} × {module.embedding_dim}"
    if isinstance(module, nn.LayerNorm):
        return f"layer norm {module.normalized_shape[0]}"
    if isinstance(module, nn.Conv2d):
        k = module.kernel_size
        return f"convolution {k[0]} × {k[1]}, {module.in_channels} → {module.out_channels}"
    return type(module).__name__


def _outputs(head: nn.Module) -> int | str:
    linear = [m for m in head.modules() if isinstance(m, nn.Linear)]
    return linear[-1].out_features if linear else "C"


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# --- the diagram --------------------------------------------------------------------------------


def draw(found: Sequence[Block], detail: Detail = "blocks", *, source: str = "tokens [N]") -> str:
    """An ``<svg>`` element with a box per block, and with ``detail="layers"`` the parts of each.

    It uses the CSS variables ``--ink``, ``--muted``, ``--rule``, ``--sheet`` and ``--held`` of the page, or
    light colors without them. It contains no style attributes, scripts or links.
    """
    out: list[str] = []
    y = 34
    arrows = [_text(WIDTH / 2, 16, source, "muted", "middle"), _arrow(20, y)]  # drawn last, above the boxes
    for block in found:
        y = _block(out, block, y, open_=detail == "layers")
        arrows.append(_arrow(y + 4, y + GAP - 2))
        y += GAP
    out += arrows
    total = sum(block.parameters for block in found)
    out.append(_text(WIDTH / 2, y + 12, f"{total:,} parameters in all", "ink", "middle", bold=True))
    title = "From input to output: " + ", ".join(
        f"{b.repeat} times {b.name}" if b.repeat > 1 else b.name for b in found
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {y + 24}" role="img" aria-label="{escape(title)}" '
        'font-family="sans-serif" '
        f'font-size="13">{"".join(out)}</svg>'
    )


def picture(model: nn.Module, detail: Detail = "layers", *, source: str = "tokens [N]") -> str:
    """The diagram of a model as the contents of an ``.svg`` file."""
    svg = draw(blocks(model), detail, source=source)
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _block(out: list[str], block: Block, y: int, open_: bool) -> int:
    parts = block.parts if open_ else []
    height = BOX + (PART + 6) * len(parts) + (6 if parts else 0)
    x, width = 90, WIDTH - 180
    for k in range(min(block.repeat, 3) - 1, 0, -1):  # repeated blocks are drawn as a stack
        out.append(_box(x + 5 * k, y - 5 * k, width, height, "rule", 0.5))
    out.append(_box(x, y, width, height, "held", 1.0))
    name = f"{block.repeat} × {block.name}" if block.repeat > 1 else block.name
    out.append(_text(x + 14, y + 19, name, "ink", bold=True))
    out.append(_text(x + 14, y + 37, block.about, "muted"))
    out.append(
        _text(x + width - 14, y + 19, f"{block.parameters:,}" if block.parameters else "–", "ink", "end")
    )
    out.append(_text(x + width - 14, y + 37, block.shape, "muted", "end"))
    top = y + BOX
    for part in parts:
        out.append(_box(x + 34, top, width - 48, PART, "rule", 1.0))
        out.append(_text(x + 46, top + 20, part.name, "ink"))
        out.append(_text(x + 170, top + 20, part.about, "muted"))
        out.append(_text(x + width - 26, top + 20, f"{part.parameters:,}", "muted", "end"))
        if part.residual:  # the residual connection
            start = top - 3 - (part.residual - 1) * (PART + 6)
            out.append(
                f'<path d="M{x + 34} {start}H{x + 18}V{top + PART + 3}H{x + 30}m-5 -4l5 4l-5 4" fill="none" '
                f'stroke="{_color("held")}" stroke-width="1.4"/>'
            )
        top += PART + 6
    return y + height


COLORS = {"ink": "#16212a", "muted": "#586773", "rule": "#dbe2e6", "held": "#0b7285", "sheet": "#ffffff"}


def _color(name: str) -> str:
    return f"var(--{name}, {COLORS[name]})"


def _box(x: float, y: float, width: float, height: float, line: str, opacity: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" fill="{_color("sheet")}" '
        f'stroke="{_color(line)}" opacity="{opacity:g}"/>'
    )


def _text(x: float, y: float, text: str, color: str, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" fill="{_color(color)}" text-anchor="{anchor}"{weight}'
    return f"<text {place}>{escape(text)}</text>"


def _arrow(top: float, bottom: float) -> str:
    x = WIDTH / 2
    return (
        f'<path d="M{x:g} {top:g}V{bottom - 1:g}m-4 -5l4 5l4 -5" fill="none" stroke="{_color("muted")}" '
        f'stroke-width="1.2"/>'
    )
