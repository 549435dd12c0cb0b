// The page: inputs, model, prediction and explanation. Its state is in the URL fragment.

import { drawAnswer, drawExplanation, drawFound, drawNothing, drawTags, element, figure, look, named, percent } from "./draw.js";
import { Pad } from "./pad.js";

const byId = (id) => document.getElementById(id);
const WAIT = 350; // milliseconds after the last key press
const BETWEEN = "\u001f"; // separator of the texts of a pair in one input
const FEW_LABELS = 12; // labels that are shown at once
const METRICS = { // name, and whether it is a share
  accuracy: ["accuracy", true], macro_f1: ["macro-F1", true], entity_f1: ["entity F1", true], f1: ["F1", true],
  found: ["partners found", true], r2: ["R\u00b2", false], mae: ["mean absolute error", false], spearman: ["Spearman", false],
};
const LONGEST_LINK = 8000; // characters per input in a link
const TARGETED = ["occlusion", "integrated_gradients", "gradient_x_input", "attention_gradient", "gim", "decomposition", "shapley", "weights"];
const GIVES = { answers: "answer", tags: "tag" }; // noun for what is explained; default: label
const ABOUT = {
  attention: "How much attention the pooled position pays to each part in one layer. It shows where information was read, not why the model predicts this.",
  rollout: "Attention followed through all layers. It shows where information could have come from, not why the model predicts this.",
  gradient_x_input: "The first-order contribution of each part to the logit of the label explained.",
  integrated_gradients: "The contribution of each part to the logit, compared with a fully masked input; the scores add up to the difference of the two logits.",
  attention_gradient: "Attention followed through all layers, weighted by how much it raises the logit of the label explained.",
  gim: "The first-order contribution of each part to the logit of the label explained, with a gradient that is not weakened if parts can replace each other.",
  decomposition: "The contribution of each part to the logit, with attention weights and other factors held constant: the scores and the biases add up to the logit.",
  shapley: "What each part adds to the logit of the label explained, averaged over random orders of adding parts.",
  weights: "The weights of the words and character n-grams in the text: the scores and the bias add up to the logit.",
  occlusion: "How much the logit of the label explained falls if the part is masked.",
};

let models = [];
let key = "";
let copying = 0;
const state = { model: "", method: "", layer: "-1", head: "", target: "", compare: false };
const inputs = ["", ""]; // texts, or images as base64
const panels = [];

const modelNow = () => models.find((m) => m.name === state.model);

// --- requests -------------------------------------------------------------------------------------

async function ask(path, body, signal) {
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...(body && { "Content-Type": "application/json" }) };
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (response.status === 401) byId("entry").hidden = false;
  const { what = `status ${response.status}`, where, fix } = answer.error || {};
  throw new Error(`${where ? `${where}: ` : ""}${what}${fix ? `. ${fix}` : ""}`);
}

class Panel {
  constructor(number) {
    this.number = number;
    this.root = byId("panel").content.cloneNode(true).firstElementChild;
    this.text = this.root.querySelector(".first");
    this.second = this.root.querySelector(".second");
    for (const box of [this.text, this.second]) {
      box.addEventListener("input", () => this.changed(this.written(), WAIT));
      box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.changed(this.written(), 0);
      });
    }
    this.pad = new Pad(this.root, (content) => this.changed(content, WAIT / 2));
    this.timer = 0;
    this.asked = new AbortController();
    this.word = null; // for taggers: the word to explain; null: the first one in a span
  }

  // The text in the box; for pairs, both texts.
  written() {
    return modelNow().pairs ? this.text.value + BETWEEN + this.second.value : this.text.value;
  }

  // A new input: predicted after a pause, so that not every key press is a request.
  changed(content, wait) {
    inputs[this.number] = content;
    this.word = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { remember(); this.run(); }, wait);
  }

  show(content) {
    this.word = null;
    inputs[this.number] = content;
    if (modelNow().kind === "text") [this.text.value, this.second.value = ""] = modelNow().pairs ? content.split(BETWEEN) : [content];
    else this.pad.show(content, modelNow().size);
  }

  // The first input: the model's example, or a drawing.
  opening() {
    const { example, pairs, channels, labels, size } = modelNow();
    if (example) return pairs ? example.join(BETWEEN) : example;
    this.pad.size = size;
    const letter = channels === 1 && labels.find((label) => [...label].length === 1);
    return letter ? this.pad.letter(letter) : this.pad.landscape();
  }

  dress() {
    const { kind, pairs, labels, examples, channels } = modelNow();
    const text = kind === "text";
    if (!text) this.pad.suit(channels);
    this.root.querySelector(".sources .small").textContent = channels === 1 ? "Or drop one here, paste one, or draw." : "Or drop one here, or paste one.";
    this.root.querySelector(".as-text").hidden = !text;
    this.root.querySelector(".beside").hidden = !pairs;
    const asks = modelNow().gives === "answers";
    this.root.querySelector(".which").textContent = asks ? "Question" : pairs ? "First text" : "Text";
    this.root.querySelector(".beside span").textContent = asks ? "Text with its answer" : "Second text";
    this.root.querySelector(".as-image").hidden = text;
    this.root.querySelector(".name").textContent = state.compare ? `Input ${"AB"[this.number]}` : "";
    const letters = channels === 1 ? labels.filter((label) => [...label].length === 1).slice(0, 10) : [];
    this.root.querySelector(".examples").replaceChildren(...(text ? examples : letters).map((example) => {
      const button = element("button", "", example);
      button.type = "button";
      button.addEventListener("click", () => {
        const content = text ? example : this.pad.letter(example);
        this.show(content);
        this.changed(content, 0);
      });
      return button;
    }));
  }

  async run(explainOnly = false) {
    this.asked.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    const [model, content] = [modelNow(), inputs[this.number]];
    const parts = model.pairs ? content.split(BETWEEN) : [content];
    if (!parts.every((part) => part.trim()) || (model.pairs && parts.length < 2)) {
      drawAnswer(this.root, null, model);
      drawNothing(this.root);
      return;
    }
    const text = model.kind === "text";
    const why = this.root.querySelector(".why");
    try {
      if (model.gives === "tags" && !explainOnly) {
        const answer = await ask("/v1/tag", { model: model.name, text: content }, signal);
        this.draw(answer.sentences[0], model);
      } else if (model.gives === "answers" && !explainOnly) {
        const [question, context] = parts;
        const answer = await ask("/v1/answer", { model: model.name, question, context, n_best: 5 }, signal);
        drawFound(this.root, answer.answers[0], context, model);
      } else if (!explainOnly) {
        const what = model.pairs ? "pairs" : text ? "texts" : "images";
        const answer = await ask("/v1/predict", { model: model.name, [what]: [model.pairs ? parts : content] }, signal);
        drawAnswer(this.root, answer.predictions[0] ?? answer.numbers[0], model);
      }
      message("");
    } catch (error) {
      if (error.name === "AbortError") return;
      drawAnswer(this.root, null, model);
      drawNothing(this.root);
      message(error.message, true);
      return;
    }
    if (!model.methods.length) return;
    why.setAttribute("aria-busy", "true");
    try {
      drawExplanation(this.root, await ask("/v1/explain", this.question(model, content), signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      drawNothing(this.root, error.message, true);
    }
    why.removeAttribute("aria-busy");
  }

  // Draw a tagged sentence; a click on a word explains it.
  draw(sentence, model) {
    drawTags(this.root, sentence, model, this.word, (word) => {
      this.word = word;
      this.draw(sentence, model);
      this.root.querySelectorAll(".tagged button")[word].focus();
      this.run(true);
    });
  }

  question(model, content) {
    const asked = { model: model.name, method: state.method, [model.kind]: content };
    if (model.gives === "tags" && this.word !== null) asked.word = this.word;
    if (model.pairs) [asked.text, asked.text_pair] = content.split(BETWEEN);
    if (state.method === "attention") {
      asked.layer = Number(state.layer);
      if (state.head !== "") asked.head = Number(state.head);
    }
    if (TARGETED.includes(state.method) && state.target) asked.target = state.target;
    return asked;
  }
}

// --- the controls ---------------------------------------------------------------------------------

function fill(id, options, value) {
  byId(id).replaceChildren(...options.map(([v, name]) => new Option(name, v)));
  byId(id).value = options.some(([v]) => v === value) ? value : options[0]?.[0] ?? "";
  return byId(id).value;
}

function dress() {
  const m = modelNow();
  const numbers = (count, what) => Array.from({ length: count || 0 }, (_, i) => [String(i), `${what}${i + 1}`]);
  fill("model", models.map(({ name }) => [name, name]), m.name);
  state.method = fill("method", m.methods.map((name) => [name, name.replaceAll("_", " ")]), state.method);
  state.layer = fill("layer", [["-1", "last"], ...numbers(m.layers, "")], state.layer);
  state.head = fill("head", [["", "mean of all"], ...numbers(m.heads, "")], state.head);
  state.target = fill("target", [["", "predicted"], ...m.labels.map((label) => [label, label])], state.target);
  for (const id of ["layer", "head"]) {
    byId(id).disabled = state.method !== "attention";
    byId(id).parentElement.hidden = !m.layers; // models without attention have no layers
  }
  byId("method").parentElement.hidden = !m.methods.length;
  byId("target").disabled = !TARGETED.includes(state.method);
  byId("compare").setAttribute("aria-pressed", String(state.compare));
  const noun = GIVES[m.gives] ?? (m.labels.length ? "label" : "number");
  byId("whose").textContent = `For the ${noun}`;
  byId("about").textContent = (ABOUT[state.method] || "").replaceAll("label", noun);
  const shown = state.compare ? panels : panels.slice(0, 1);
  panels.forEach((panel) => panel.dress());
  byId("panels").replaceChildren(...shown.map((panel) => panel.root));
  return shown;
}

// The model's name, what it predicts, and how good it is.
function introduce() {
  const m = modelNow();
  const chips = (labels) => {
    const list = element("ul");
    list.append(...labels.map((label) => {
      const item = element("li");
      item.append(named("span", m.gives === "tags" ? `span ${look(label, m)}` : "chip", label)); // for spans: the legend
      return item;
    }));
    return list;
  };
  byId("name").textContent = m.name;
  document.title = `${m.name} \u00b7 glassformer`;
  const own = m.gives === "tags" ? m.spans : m.gives === "labels" ? m.labels : [];
  const many = own.length > 1 ? `${own.length} ` : "";
  const facts = [
    { tags: `Finds spans of ${many}kinds in a text`, answers: "Answers questions from a text" }[m.gives]
      ?? (!own.length ? "Predicts a number" : m.multi_label ? `Predicts any of ${many}labels` : `Predicts one of ${many}labels`),
  ];
  if (m.score) {
    const { metric, value, split, examples } = m.score;
    const [called, share] = METRICS[metric] ?? [metric, false];
    facts.push(`${split} ${called} ${share ? percent(value) : figure(value)}${examples === null ? "" : ` on ${examples.toLocaleString("en")} examples`}`);
  }
  byId("facts").textContent = facts.join(" \u00b7 ");
  const few = m.gives === "tags" ? own.length : FEW_LABELS;
  const more = element("details");
  more.append(element("summary", "", `${own.length - few} more`), chips(own.slice(few)));
  byId("labels").replaceChildren(chips(own.slice(0, few)), ...(own.length > few ? [more] : []));
}

function changeModel(name) {
  const before = modelNow();
  state.model = name;
  state.target = "";
  if (before.kind !== modelNow().kind || before.pairs !== modelNow().pairs) inputs.fill("");
  start();
}

function start() {
  introduce();
  const shown = dress();
  inputs[0] ||= panels[0].opening();
  panels.forEach((panel, i) => panel.show(inputs[i]));
  remember();
  shown.forEach((panel) => panel.run());
}

function message(text, wrong = false) {
  byId("message").textContent = text;
  byId("message").classList.toggle("wrong", wrong);
}

// --- the link -------------------------------------------------------------------------------------

function remember() {
  const link = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value) link.set(name, value === true ? "1" : value);
  inputs.forEach((content, i) => {
    if (content && content.length <= LONGEST_LINK) link.set("ab"[i], content);
  });
  history.replaceState(null, "", `#${link}`);
}

function recall() {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const name of ["model", "method", "layer", "head", "target"]) state[name] = link.get(name) ?? state[name];
  state.compare = link.get("compare") === "1";
  if (!modelNow()) state.model = models[0].name;
  ["a", "b"].forEach((name, i) => { inputs[i] = (link.get(name) ?? "").slice(0, LONGEST_LINK); });
}

async function copyLink() {
  const missing = inputs.some((content) => content.length > LONGEST_LINK);
  try {
    await navigator.clipboard.writeText(location.href);
    message(missing ? "Copied; an input is too long for a link and is not in it." : "Copied.");
  } catch {
    message("The browser does not let the page copy: take the link from the address bar.");
  }
  clearTimeout(copying);
  copying = setTimeout(() => message(""), 4000);
}

// --- start ----------------------------------------------------------------------------------------

async function begin() {
  try {
    models = (await ask("/v1/models")).models.filter((m) => m.gives !== "vectors");
  } catch (error) {
    message(error.message, true);
    return;
  }
  byId("entry").hidden = true;
  message("");
  if (!models.length) {
    message("The models here give embeddings: POST texts to /v1/embed, or pairs of them to /v1/similar.");
    return;
  }
  recall();
  if (!panels.length) panels.push(new Panel(0), new Panel(1));
  start();
}

for (const id of ["method", "layer", "head", "target"]) {
  byId(id).addEventListener("change", () => {
    state[id] = byId(id).value;
    const shown = dress();
    remember();
    shown.forEach((panel) => panel.run(true));
  });
}
byId("model").addEventListener("change", () => changeModel(byId("model").value));
byId("compare").addEventListener("click", () => { state.compare = !state.compare; start(); });
byId("share").addEventListener("click", copyLink);
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("entry").addEventListener("submit", (event) => { event.preventDefault(); key = byId("key").value; begin(); });
window.addEventListener("hashchange", () => { recall(); start(); });
begin();
