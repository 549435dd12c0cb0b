// The attention view: colors the words (or patches) of each input by the scores of a method, by the rollout, or
// by the attention of a layer and head. The attention is that of the pooled positions or of a selected word.
// The script reads only numbers. The texts are elements of the page and are not parsed again.
"use strict";
(() => {
  const LEVELS = 10, SCORES = -2, ROLLOUT = -1, MEAN = -1, NAMED = 5;
  const byId = (id) => document.getElementById(id);
  const decode = (text) => Float32Array.from(atob(text), (c) => (c.charCodeAt(0) / 255) ** 2);
  const articles = [...document.querySelectorAll("article.map")];
  const views = JSON.parse(byId("maps").textContent).map((data, i) => ({
    ...data,
    rows: decode(data.rows),
    rollout: decode(data.rollout),
    flow: decode(data.flow),
    pairs: decode(data.pairs),
    special: new Set(data.special),
    words: [...articles[i].querySelectorAll(".w")].slice(0, data.shape[2]),
    caption: articles[i].querySelector(".shares"),
    figures: articles[i].querySelector(".figures"),
    chosen: -1,
  }));
  const [layers, heads] = views[0].shape;
  const state = { layer: layers - 1, head: MEAN, direction: "from" };
  const total = (values) => values.reduce((a, b) => a + b, 0);
  const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u202f%`;
  const minus = (text) => text.replace("-", "\u2212");
  const figure = (value) => minus(Number(value.toPrecision(3)).toString());
  const isScores = () => state.layer === SCORES;

  // The attention of the pooled positions in a layer: of one head, or the mean of all heads.
  function summary(view, layer, head) {
    if (layer === ROLLOUT) return view.rollout;
    const size = view.shape[2];
    const selectedHeads = head === MEAN ? [...Array(heads).keys()] : [head];
    const sum = new Float32Array(size);
    for (const h of selectedHeads) {
      const start = (layer * heads + h) * size;
      for (let u = 0; u < size; u++) sum[u] += view.rows[start + u] / selectedHeads.length;
    }
    return sum;
  }

  const hasPairs = (view) => view.pairs.length > 0 || view.flow.length > 0;

  // The row of a selected word (attention from the word) or its column (attention to the word).
  function wordAttention(view, word) {
    const size = view.shape[2];
    const rollout = state.layer === ROLLOUT;
    const matrix = rollout ? view.flow : view.pairs;
    if (!matrix.length) return null;
    const perLayer = rollout ? 1 : view.pairHeads;
    const all = [...Array(perLayer).keys()];
    const selectedHeads = rollout || perLayer === 1 || state.head === MEAN ? all : [state.head];
    const out = new Float32Array(size);
    for (const h of selectedHeads) {
      const start = ((rollout ? 0 : state.layer) * perLayer + h) * size * size;
      for (let u = 0; u < size; u++) {
        const at = state.direction === "from" ? word * size + u : u * size + word;
        out[u] += matrix[start + at] / selectedHeads.length;
      }
    }
    return out;
  }

  function currentValues(view) {
    if (isScores()) return view.scores;
    return (view.chosen >= 0 && wordAttention(view, view.chosen)) || summary(view, state.layer, state.head);
  }

  // The name of a unit: the word itself, or row and column of a patch.
  function unitName(view, unit) {
    const element = view.words[unit];
    if (!(element instanceof SVGElement)) return element.textContent;
    const columns = Math.round(element.ownerSVGElement.viewBox.baseVal.width / element.width.baseVal.value);
    const patch = unit - view.special.size;
    return `row ${Math.floor(patch / columns) + 1}, column ${(patch % columns) + 1}`;
  }

  function captionText(view, values) {
    if (isScores()) {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return `scores from ${figure(low)} to ${figure(high)}, ${figure(total(values))} in all`;
    }
    if (view.chosen < 0) {
      const names = [...view.special].map((u) => `${unitName(view, u)} ${percent(values[u])}`);
      const rest = total([...values].filter((_, u) => !view.special.has(u)));
      return [...names, `${view.parts} ${percent(rest)}`].join(" \u00b7 ");
    }
    const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, NAMED);
    const list = order.map((u) => `${unitName(view, u)} ${percent(values[u], 1)}`).join(" \u00b7 ");
    const onlyMean = state.layer >= 0 && view.pairHeads === 1 && heads > 1 ? " (mean of all heads)" : "";
    const verb = state.direction === "from" ? "reads" : "is read by";
    return `\u201c${unitName(view, view.chosen)}\u201d ${verb}${onlyMean}: ${list}`;
  }

  function paint(view) {
    const values = currentValues(view);
    const size = Math.max(1e-12, ...[...values].map(Math.abs));
    const strongest = [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 3);
    const format = (value) => (isScores() ? figure(value) : percent(value, 1));
    view.words.forEach((word, u) => {
      const shade = `${values[u] >= 0 ? "h" : "n"}${Math.round((LEVELS * Math.abs(values[u])) / size)}`;
      const names = ["w", shade];
      if (view.special.has(u)) names.push("special");
      if (strongest.includes(u)) names.push("top");
      if (view.chosen === u && !isScores()) names.push("chosen");
      word.setAttribute("class", names.join(" "));
      word.setAttribute("title", format(values[u]));
      if (word.hasAttribute("role")) {
        word.setAttribute("aria-label", `${unitName(view, u)}, ${format(values[u])}`);
        word.setAttribute("aria-pressed", String(view.chosen === u));
      }
    });
    view.caption.textContent = captionText(view, values);
    if (view.figures && view.figures.open) fillTable(view, values, format);
  }

  function fillTable(view, values, format) {
    const order = [...values.keys()].sort((a, b) => values[b] - values[a]);
    view.figures.querySelector("tbody").replaceChildren(...order.map((u) => {
      const line = document.createElement("tr");
      const [name, value] = ["th", "td"].map((tag) => line.appendChild(document.createElement(tag)));
      name.scope = "row";
      name.textContent = unitName(view, u);
      value.className = "n";
      value.textContent = format(values[u]);
      return line;
    }));
  }

  function show(change) {
    Object.assign(state, change);
    views.forEach(paint);
    byId("layer").value = state.layer;
    byId("head").value = state.head;
    byId("head").disabled = state.layer < 0;
    byId("direction").disabled = isScores() || !views.some(hasPairs);
    for (const cell of byId("grid").querySelectorAll("button")) {
      const { l, h } = cell.dataset;
      cell.classList.toggle("on", Number(l) === state.layer && (state.head < 0 || Number(h) === state.head));
    }
  }

  function choose(view, unit) {
    view.chosen = view.chosen === unit ? -1 : unit;
    if (isScores()) state.layer = view.flow.length ? ROLLOUT : layers - 1;
    show({});
  }

  // Words become buttons. The tab key reaches one word, the arrow keys reach all words.
  function makeChoosable(view) {
    const focus = (unit) => {
      const next = Math.max(0, Math.min(view.words.length - 1, unit));
      view.words.forEach((word, u) => word.setAttribute("tabindex", u === next ? "0" : "-1"));
      view.words[next].focus();
    };
    view.words.forEach((word, u) => {
      word.setAttribute("role", "button");
      word.setAttribute("tabindex", u ? "-1" : "0");
      word.addEventListener("click", () => { focus(u); choose(view, u); });
      word.addEventListener("keydown", (event) => {
        const goes = { ArrowRight: u + 1, ArrowLeft: u - 1, ArrowDown: u + 1, ArrowUp: u - 1, Home: 0, End: 1e9 };
        if (event.key in goes) focus(goes[event.key]);
        else if (event.key === "Enter" || event.key === " ") choose(view, u);
        else if (event.key === "Escape" && view.chosen >= 0) choose(view, view.chosen);
        else return;
        event.preventDefault();
      });
    });
  }

  // Mean share of a head's attention on words, over all inputs.
  function wordShare(layer, head) {
    const shares = views.map((view) =>
      total([...summary(view, layer, head)].filter((_, u) => !view.special.has(u))));
    return total(shares) / views.length;
  }

  function drawGrid(grid) {
    for (let l = 0; l < layers; l++) {
      const line = document.createElement("div");
      line.append(Object.assign(document.createElement("span"), { textContent: l + 1 }));
      for (let h = 0; h < heads; h++) {
        const share = wordShare(l, h);
        const cell = Object.assign(document.createElement("button"), {
          type: "button",
          tabIndex: -1, // for the keyboard there are the two lists above
          className: `g${Math.round(LEVELS * share)}`,
          title: `layer ${l + 1}, head ${h + 1}: ${percent(share)} on ${views[0].parts}`,
        });
        Object.assign(cell.dataset, { l, h });
        cell.addEventListener("click", () => show({ layer: l, head: h }));
        line.append(cell);
      }
      grid.append(line);
    }
  }

  function fill(id, options, read) {
    for (const [value, name] of options) byId(id).add(new Option(name, value));
    byId(id).addEventListener("change", () => show({ [id]: read(byId(id).value) }));
  }

  const numbered = (n, what) => Array.from({ length: n }, (_, i) => [i, `${what}${i + 1}`]);
  const hasScores = views.every((view) => view.scores);
  const hasRollout = views.every((view) => view.rollout.length);
  for (const view of views) {
    if (!view.figures) continue;
    view.figures.hidden = false;
    view.figures.addEventListener("toggle", () => paint(view));
  }
  if (layers) {
    const first = [...(hasScores ? [[SCORES, views[0].method]] : []), ...(hasRollout ? [[ROLLOUT, "all layers (rollout)"]] : [])];
    fill("layer", [...first, ...numbered(layers, "layer ")], Number);
    fill("head", [[MEAN, "mean of all"], ...numbered(heads, "")], Number);
    fill("direction", [], String);
    drawGrid(byId("grid"));
    views.filter(hasPairs).forEach(makeChoosable);
    document.querySelector(".controls").hidden = false;
  }
  if (layers || hasScores) show({ layer: hasScores ? SCORES : hasRollout ? ROLLOUT : layers - 1 });
})();
