// Colours the words of each example by the attention of one layer and head.
// Reads numbers only; every text stands in the page already and is never parsed again.
"use strict";
(() => {
  const LEVELS = 10;
  const byId = (id) => document.getElementById(id);
  const decode = (text) => Float32Array.from(atob(text), (c) => (c.charCodeAt(0) / 255) ** 2);
  const maps = JSON.parse(byId("maps").textContent).map((map, i) => {
    const article = document.querySelectorAll("article.map")[i];
    return {
      ...map,
      rows: decode(map.rows),
      rollout: decode(map.rollout),
      words: [...article.querySelectorAll(".w")],
      shares: article.querySelector(".shares"),
    };
  });
  const [layers, heads] = maps[0].shape;
  const hasRollout = maps.every((map) => map.rollout.length);

  // The row of one layer and head; head -1 is the mean of all, layer -1 the rollout.
  function row(map, layer, head) {
    if (layer < 0) return map.rollout;
    const size = map.owner.length;
    const wanted = head < 0 ? [...Array(heads).keys()] : [head];
    const sum = new Float32Array(size);
    for (const h of wanted) {
      const start = (layer * heads + h) * size;
      for (let t = 0; t < size; t++) sum[t] += map.rows[start + t] / wanted.length;
    }
    return sum;
  }

  function perWord(map, weights) {
    const words = new Float32Array(map.words.length);
    map.owner.forEach((word, t) => { if (word >= 0) words[word] += weights[t]; });
    return words;
  }

  const total = (values) => values.reduce((a, b) => a + b, 0);
  const percent = (share) => `${(100 * share).toFixed(0)}\u202f%`;

  function show(layer, head) {
    for (const map of maps) {
      const weights = row(map, layer, head);
      const words = perWord(map, weights);
      const most = Math.max(1e-9, ...words);
      map.words.forEach((span, i) => {
        span.className = `w h${Math.round((LEVELS * words[i]) / most)}`;
        span.title = `${(100 * words[i]).toFixed(1)}\u202f%`;
      });
      const special = Object.entries(map.special).map(([t, name]) => `${name} ${percent(weights[t])}`);
      map.shares.textContent = [...special, `words ${percent(total(words))}`].join(" \u00b7 ");
    }
    byId("layer").value = layer;
    byId("head").value = head;
    byId("head").disabled = layer < 0;
    for (const cell of byId("grid").querySelectorAll("button")) {
      const { l, h } = cell.dataset;
      cell.classList.toggle("on", Number(l) === layer && (head < 0 || Number(h) === head));
    }
  }

  function fill(select, options) {
    for (const [value, name] of options) select.add(new Option(name, value));
    select.addEventListener("change", () => show(Number(byId("layer").value), Number(byId("head").value)));
  }

  function count(n) { return Array.from({ length: n }, (_, i) => [i, String(i + 1)]); }

  // Share of a head's attention that falls on words, over all examples.
  function wordShare(layer, head) {
    return total(maps.map((map) => total(perWord(map, row(map, layer, head))))) / maps.length;
  }

  function drawGrid(grid) {
    for (let l = 0; l < layers; l++) {
      const line = document.createElement("div");
      const name = document.createElement("span");
      name.textContent = l + 1;
      line.append(name);
      for (let h = 0; h < heads; h++) {
        const cell = document.createElement("button");
        const share = wordShare(l, h);
        cell.type = "button";
        cell.tabIndex = -1; // the two lists above serve the keyboard
        cell.className = `g${Math.round(LEVELS * share)}`;
        cell.title = `layer ${l + 1}, head ${h + 1}: ${percent(share)} on words`;
        Object.assign(cell.dataset, { l, h });
        cell.addEventListener("click", () => show(l, h));
        line.append(cell);
      }
      grid.append(line);
    }
  }

  fill(byId("layer"), [...(hasRollout ? [[-1, "all (rollout)"]] : []), ...count(layers)]);
  fill(byId("head"), [[-1, "mean of all"], ...count(heads)]);
  drawGrid(byId("grid"));
  document.querySelector(".controls").hidden = false;
  show(hasRollout ? -1 : layers - 1, -1);
})();
