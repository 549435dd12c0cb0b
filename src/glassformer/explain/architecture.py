"""Architecture diagrams of models.

``blocks`` describes the modules from input to logits: type, output shape and number of parameters. ``draw``
renders the blocks as SVG, with the colors of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Literal

from torch import nn

from glassformer.nn.disentangled import DistanceTable

Detail = Literal["blocks", "layers"]
WIDTH = 640  # width of the diagram in pixels
BOX, PART, GAP = 46, 30, 22  # heights in pixels: a block without parts, a part, the gap between blocks


@dataclass(frozen=True)
class Block:
    """One box of the diagram."""

    name: str
    about: str = ""  # description with sizes
    shape: str = ""  # output shape, with the letters that types.py explains
    parameters: int = 0  # total over all repeats
    repeat: int = 1  # number of identical layers
    residual: int = 0  # how many parts the residual connection that ends at this part skips
    parts: list[Block] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Block:
        """The block from the result of ``to_dict``."""
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

    If the kind of model is unknown, its modules are in the order of their creation.
    """
    children = {name: child for name, child in model._modules.items() if child is not None}
    if getattr(model, "is_linear", False):
        return _linear_blocks(model)
    if "embeddings" not in children or "encoder" not in children:
        return [_module_block(name, child, CountedParameters()) for name, child in model.named_children()]
    counted, is_translator = CountedParameters(), "decoder" in children
    children = {name: children[name] for name in sorted(children.keys() & set(ORDER), key=ORDER.index)}
    shapes = _output_shapes(model, is_translator)
    result = []
    for name, child in children.items():
        shape = shapes.get(name, "")
        if hasattr(child, "layers"):
            result.append(_layers_block(name, child, shape, counted))
            if (relative := getattr(child, "relative", None)) is not None:
                table_shape = "[2 S, D]" if isinstance(relative, DistanceTable) else "[H, 2 T - 1]"
                result.append(_module_block("relative positions", relative, counted, table_shape))
            if isinstance(child.final_norm, nn.LayerNorm):
                result.append(_module_block("final norm", child.final_norm, counted, shape))
        elif name == "target_embeddings":
            result.append(_module_block(name, child, counted, shape, "input: target tokens [N]"))
        else:
            result.append(_module_block(name, child, counted, shape))
        if name == "encoder" and "head" in children and "pooling" not in children:
            result.append(_pooling_block(model))
    if is_translator:
        result.append(_output_block(model, counted))
    return result


def _linear_blocks(model: Any) -> list[Block]:
    """The blocks of a linear model: features and head."""
    features = Block("features", "weighted words and n-grams of characters", "[N]")
    if model.reads == "images":
        features = Block("features", "edges and colors of cells", f"[N, {model.config.embedding.d_model}]")
    head = _module_block("head", model.head, CountedParameters(), f"[B, {_num_outputs(model.head)}]")
    return [features, head]


class CountedParameters:
    """The parameters that previous blocks have counted."""

    def __init__(self) -> None:
        self.ids: set[int] = set()

    def count_new(self, module: nn.Module) -> int:
        """The number of parameters of ``module`` that no block has counted yet."""
        return sum(p.numel() for p in module.parameters() if id(p) not in self.ids)

    def add(self, module: nn.Module) -> None:
        self.ids |= {id(p) for p in module.parameters()}


def _pooling_block(model: Any) -> Block:
    """The pooling block of a recurrent or convolutional classifier without a pooling module."""
    how = "largest value" if isinstance(model.encoder, nn.ModuleList) else "last state of each direction"
    return Block("pooling", how, f"[B, {model.head.d_model}]")


def _output_shapes(model: Any, is_translator: bool) -> dict[str, str]:
    """The output shape of each child, with the letters that types.py explains.

    For translators, M is the number of source tokens and N the number of target tokens.
    """
    d, output_width = _encoder_widths(model)
    if is_translator:
        return (
            dict.fromkeys(("embeddings", "encoder"), f"[M, {d}]")
            | dict.fromkeys(("target_embeddings", "decoder", "attention", "combine"), f"[N, {d}]")
            | {"bridge": f"[B, {d}]"}
        )
    pooled = getattr(getattr(model, "pooling", None), "width", output_width)
    out = {"embeddings": f"[N, {d}]", "encoder": f"[N, {output_width}]", "pooling": f"[B, {pooled}]"}
    out |= {"mlm": "[N, V]", "nsp": "[B, 2]"}
    head = getattr(model, "head", None)
    return out if head is None else out | {"head": f"[B, {_num_outputs(head)}]"}


def _encoder_widths(model: Any) -> tuple[int, int]:
    """The widths of the encoder's input and output."""
    config = model.config
    if hasattr(model.encoder, "layers"):
        return model.encoder.config.d_model, model.encoder.config.d_model
    embedding = getattr(config, "embedding", None)
    if embedding is None:  # a recurrent translator
        return config.d_model, config.d_model
    return embedding.d_model, model.head.d_model


def _output_block(model: Any, counted: CountedParameters) -> Block:
    """The output layer of a translator, tied to the target embeddings or separate."""
    weight, bias = model.output_layer()
    if model.output is None:
        about = "target embeddings, transposed, and a bias"
    else:
        about = f"linear {weight.shape[1]} → {weight.shape[0]}"
    num_weights = 0 if id(weight) in counted.ids else weight.numel()
    return Block("logits", about, "[N, V]", num_weights + bias.numel())


def _layers_block(name: str, stack: Any, shape: str, counted: CountedParameters) -> Block:
    """The block of an encoder or decoder, with the parts of one layer and the number of layers."""
    c, layer = stack.config, stack.layers[0]
    residual = 2 if c.norm == "pre" else 1  # with pre-norm, the residual connection also skips the norm
    heads = f"{c.num_heads} heads of {c.d_model // c.num_heads}"
    if c.attention != "full":
        window = f", {c.attention_window} tokens on either side" if c.attention == "local" else ""
        heads += f", {c.attention}{window}"
    branches = [("self-attention", layer.attention, heads)]
    if hasattr(layer, "cross"):
        branches.append(("cross-attention", layer.cross, f"{heads}, over the encoder's output"))
    widths = f"{c.d_model} → {c.d_ff} → {c.d_model}, {layer.feed_forward.activation}"
    branches.append(("feed-forward", layer.feed_forward, widths))
    parts = []
    for number, (branch_name, module, about) in enumerate(branches, 1):
        branch = _part(branch_name, module, counted, about, residual)
        norm = _part("norm", getattr(layer, f"norm{number}"), counted)
        if scale := counted.count_new(getattr(layer, f"scale{number}", nn.Identity())):
            branch = replace(branch, about=f"{branch.about}; scaled", parameters=branch.parameters + scale)
        parts += [norm, branch] if c.norm == "pre" else [branch, norm]
    about = f"{c.norm}-norm, d_model {c.d_model}, {c.num_heads} heads, d_ff {c.d_ff}"
    total = counted.count_new(stack.layers)
    counted.add(stack.layers)
    return Block(f"{name} layer", about, shape, total, c.num_layers, parts=parts)


def _part(
    name: str, module: nn.Module, counted: CountedParameters, about: str = "", residual: int = 0
) -> Block:
    num_new = counted.count_new(module)
    shared = "" if num_new or not _has_parameters(module) else "shared with the source: "
    return Block(name, shared + (about or _describe(module)), "", num_new, residual=residual)


def _module_block(
    name: str, module: nn.Module, counted: CountedParameters, shape: str = "", about: str = ""
) -> Block:
    children = {} if hasattr(module, "rnn") else dict(module.named_children())
    parts = [
        _part(
            f"filter {int(key) + 1}" if isinstance(module, nn.ModuleList) else key.replace("_", " "),
            child,
            counted,
        )
        for key, child in children.items()
        if _has_parameters(child)
    ]
    total = counted.count_new(module)
    own = total - sum(part.parameters for part in parts)
    if own and parts:  # parameters of the module itself
        parts.append(Block("own parameters", "", "", own))
    if not about:
        about = _describe(module) if not parts else type(module).__name__
    counted.add(module)
    return Block(name.replace("_", " "), about, shape, total, parts=parts)


def _describe(module: nn.Module) -> str:
    if isinstance(rnn := getattr(module, "rnn", module), nn.RNNBase):
        directions = "bidirectional " if rnn.bidirectional else ""
        layers = f", {rnn.num_layers} layers" if rnn.num_layers > 1 else ""
        return f"{directions}{type(rnn).__name__}, {rnn.input_size} → {rnn.hidden_size}{layers}"
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


def _num_outputs(head: nn.Module) -> int | str:
    linear = [m for m in head.modules() if isinstance(m, nn.Linear)]
    return linear[-1].out_features if linear else "C"


def _has_parameters(module: nn.Module) -> bool:
    return any(p.numel() for p in module.parameters())


# --- the diagram --------------------------------------------------------------------------------


def draw(blocks: Sequence[Block], detail: Detail = "blocks", *, source: str = "tokens [N]") -> str:
    """An ``<svg>`` element with one box per block; ``detail="layers"`` adds the parts of each block.

    The colors are the CSS variables ``--ink``, ``--muted``, ``--rule``, ``--sheet`` and ``--held`` of the
    page, or light colors if the page does not define them. The element has no style attributes, scripts or
    links.
    """
    out: list[str] = []
    y = 34
    arrows = [_text(WIDTH / 2, 16, source, "muted", "middle"), _arrow(20, y)]  # drawn last, above the boxes
    for block in blocks:
        y = _draw_block(out, block, y, with_parts=detail == "layers")
        arrows.append(_arrow(y + 4, y + GAP - 2))
        y += GAP
    out += arrows
    total = sum(block.parameters for block in blocks)
    out.append(_text(WIDTH / 2, y + 12, f"{total:,} parameters in all", "ink", "middle", bold=True))
    title = "From input to output: " + ", ".join(
        f"{b.repeat} times {b.name}" if b.repeat > 1 else b.name for b in blocks
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {y + 24}" role="img" aria-label="{escape(title)}" '
        f'font-family="sans-serif" font-size="13">{"".join(out)}</svg>'
    )


def picture(model: nn.Module, detail: Detail = "layers", *, source: str = "tokens [N]") -> str:
    """The diagram of a model as the contents of an ``.svg`` file."""
    svg = draw(blocks(model), detail, source=source)
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _draw_block(out: list[str], block: Block, y: int, with_parts: bool) -> int:
    """Append the SVG of a block to ``out``; returns the y coordinate of its bottom."""
    parts = block.parts if with_parts else []
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
    attributes = f'x="{x:g}" y="{y:g}" fill="{_color(color)}" text-anchor="{anchor}"{weight}'
    return f"<text {attributes}>{escape(text)}</text>"


def _arrow(top: float, bottom: float) -> str:
    x = WIDTH / 2
    return (
        f'<path d="M{x:g} {top:g}V{bottom - 1:g}m-4 -5l4 5l4 -5" fill="none" stroke="{_color("muted")}" '
        f'stroke-width="1.2"/>'
    )
