// Draws predictions and explanations. Texts are set as textContent, never as markup.

const LEVELS = 10;
const SVG = "http://www.w3.org/2000/svg";
const MOST_BARS = 10;
const [HUES, LINES] = [8, 4]; // colors, and styles of underlines; with more than 32 kinds they repeat

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// A name with optional line breaks after _, /, ., : and -.
export function named(tag, className, text) {
  const made = element(tag, className);
  text.split(/(?<=[_/.:-])(?=\w)/).forEach((part, i) => made.append(...(i ? [element("wbr"), part] : [part])));
  return made;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 2 : 1)} %`;

export function figure(value) {
  const text = Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(1) : value.toFixed(3);
  return text.replace("-", "\u2212");
}

export function drawAnswer(panel, prediction, model) {
  const find = (name) => panel.querySelector(name);
  find(".answer").hidden = !prediction;
  find(".tagged").hidden = true;
  find(".bars").replaceChildren();
  find(".sure").textContent = "";
  if (!prediction) return;
  find(".label").textContent = prediction.label ?? Number(prediction.number.toPrecision(6));
  if (prediction.number !== undefined) { // a regressor, with the prediction interval
    const ends = prediction.interval?.map((end) => Number(end.toPrecision(4)));
    find(".figure").textContent = ends ? `${ends[0]} to ${ends[1]}` : "";
    find(".sure").textContent = ends ? "90 % of true numbers are in such intervals." : "";
    return;
  }
  find(".figure").textContent = percent(prediction.probability);
  const notes = [sureness(model)];
  if (Array.isArray(model.threshold) && !prediction.labels) notes.push("Each label has a threshold; the label with the largest ratio of probability and threshold is predicted.");
  else if (model.threshold !== null && !prediction.labels) notes.push(`${model.labels[1]} is predicted from ${percent(model.threshold)}.`);
  if (prediction.abstains) notes.push(`The model abstains: this label is less probable than ${percent(model.abstain_below)}.`);
  if (prediction.truncated) notes.push(`Only the first ${model.max_length} tokens were read.`);
  find(".sure").textContent = notes.join(" ");
  const order = Object.entries(prediction.probabilities).sort((a, b) => b[1] - a[1]);
  find(".bars").replaceChildren(...order.slice(0, MOST_BARS).map(([label, share]) => bar(label, share)));
}

// The CSS classes for the color and the underline of a kind.
export const look = (kind, model) => {
  const i = Math.max(0, model.spans.indexOf(kind));
  return `k${i % HUES} l${Math.floor(i / HUES) % LINES}`;
};

// Draw the words of a sentence, with colored spans; a click on a word explains it.
export function drawTags(panel, sentence, model, chosen, choose) {
  const find = (name) => panel.querySelector(name);
  find(".answer").hidden = true;
  find(".tagged").hidden = !sentence;
  find(".tagged").replaceChildren();
  find(".bars").replaceChildren();
  find(".sure").textContent = "";
  if (!sentence) return;
  const words = placesOf(sentence);
  const starts = new Map(sentence.spans.map((span) => [span.first, span]));
  let place = find(".tagged");
  let end = 0;
  words.forEach(([start, stop], i) => {
    place.append(sentence.text.slice(end, start));
    if (starts.has(i)) {
      place = find(".tagged").appendChild(element("span", `span ${look(starts.get(i).label, model)}`));
    }
    const word = place.appendChild(element("button", "", sentence.text.slice(start, stop)));
    word.type = "button";
    word.title = sentence.tags[i];
    word.setAttribute("aria-pressed", String(i === chosen));
    word.addEventListener("click", () => choose(i));
    end = stop;
    const span = sentence.spans.find((s) => s.last === i + 1);
    if (!span) return;
    place.append(element("small", "", `${span.label} ${percent(span.probability)}`));
    place = find(".tagged");
  });
  place.append(sentence.text.slice(end));
  const notes = [sentence.spans.length ? "Choose a word to explain its tag." : "No spans found.", sureness(model)];
  find(".sure").textContent = notes.join(" ");
  find(".bars").replaceChildren(...sentence.spans.slice(0, MOST_BARS).map((span) => bar(`${span.text}: ${span.label}`, span.probability)));
}

// Draw the answer in its context, and the next best ones as bars.
export function drawFound(panel, found, context, model) {
  const find = (name) => panel.querySelector(name);
  find(".answer").hidden = true;
  find(".tagged").hidden = false;
  const points = [...context]; // positions count characters, not UTF-16 units
  const mark = element("span", "span k2", found.answer);
  mark.append(element("small", "", percent(found.probability)));
  const around = [points.slice(0, found.start).join(""), points.slice(found.end).join("")];
  find(".tagged").replaceChildren(...(found.answer ? [around[0], mark, around[1]] : [context]));
  const notes = [found.answer ? "" : `No answer in this text (${percent(found.probability)}).`, sureness(model)];
  find(".sure").textContent = notes.join(" ").trim();
  find(".bars").replaceChildren(...[found, ...found.others].map((one) => bar(one.answer || "no answer", one.probability)));
}

// Start and end of each word in the text, in UTF-16 units.
function placesOf(sentence) {
  let from = 0;
  return sentence.words.map((word) => {
    const start = sentence.text.indexOf(word, from);
    from = start + word.length;
    return [start, from];
  });
}

function sureness(model) {
  return model.calibrated
    ? `Calibrated on held-out data (temperature ${(model.temperatures ?? [model.temperature]).map((t) => t.toFixed(2)).join(", ")}).`
    : "Not calibrated: the model may be overconfident.";
}

function bar(label, share) {
  const line = element("li");
  const track = element("span", "track");
  track.appendChild(element("span")).style.width = `${100 * share}%`;
  const name = named("span", "what", label);
  line.append(name, track, element("span", "n", percent(share)));
  return line;
}

function shade(value, most) {
  return `${value >= 0 ? "h" : "n"}${Math.round((LEVELS * Math.abs(value)) / Math.max(most, 1e-12))}`;
}

export function drawExplanation(panel, e) {
  const words = panel.querySelector(".words");
  const patches = panel.querySelector(".patches");
  const rows = e.image ? drawPatches(patches, e) : drawWords(words, e);
  words.hidden = Boolean(e.image);
  patches.hidden = !e.image;
  const scores = rows.map((row) => row[1]);
  const about = e.target === null ? ", where the model looked" : ` for \u201c${e.target}\u201d`;
  let caption = `${e.method.replaceAll("_", " ")}${about}: scores from ${figure(Math.min(...scores))} to ${figure(Math.max(...scores))}`;
  if (e.image) caption += "; yellow: for the label, blue: against it; the image is shown in gray so that the colors stand out";
  if (e.notes.length) caption += `; ${e.notes.join("; ")}`;
  if (e.error !== null) caption += `, relative error of the sum ${e.error.toExponential(1)}`;
  say(panel, caption, false);
  const figures = panel.querySelector(".figures");
  figures.hidden = false;
  const order = [...rows].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 200);
  figures.querySelector("tbody").replaceChildren(...order.map(([name, value]) => {
    const line = element("tr");
    const head = line.appendChild(element("th", "", name));
    head.scope = "row";
    line.append(element("td", "n", figure(value)));
    return line;
  }));
}

function drawWords(place, e) {
  const scored = [...e.special, ...e.pieces].filter((piece) => piece.score !== null);
  const most = Math.max(...scored.map((piece) => Math.abs(piece.score)));
  const spans = e.pieces.map((piece) => {
    if (piece.score === null) return document.createTextNode(piece.text);
    const span = element("span", `w ${shade(piece.score, most)}`, piece.text);
    span.title = figure(piece.score);
    return span;
  });
  const special = e.special.map((piece) => {
    const span = element("span", `w special ${shade(piece.score, most)}`, piece.text);
    span.title = figure(piece.score);
    return span;
  });
  // Between the texts of a pair: all special tokens but the first and the last.
  const between = e.second === null ? [] : special.splice(1, special.length - 2);
  if (between.length) spans.splice(e.second, 0, ...between);
  place.replaceChildren(...special.slice(0, 1), ...spans, ...special.slice(1));
  return scored.map((piece) => [piece.text, piece.score]);
}

function drawPatches(place, e) {
  const [rows, columns] = [e.scores.length, e.scores[0].length];
  const most = Math.max(...e.scores.flat().map(Math.abs));
  const svg = document.createElementNS(SVG, "svg");
  const put = (name, attributes) => {
    const made = svg.appendChild(document.createElementNS(SVG, name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
  svg.setAttribute("class", "picture");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "The image as the model saw it, patches marked by their scores");
  put("image", { href: e.image, width: columns, height: rows, preserveAspectRatio: "none" });
  const named = [];
  e.scores.forEach((line, i) => line.forEach((score, j) => {
    const cell = put("rect", { x: j, y: i, width: 1, height: 1, class: `w ${shade(score, most)}` });
    const name = `row ${i + 1}, column ${j + 1}`;
    cell.appendChild(document.createElementNS(SVG, "title")).textContent = `${name}: ${figure(score)}`;
    named.push([name, score]);
  }));
  place.replaceChildren(svg);
  return named;
}

export function say(panel, text, wrong) {
  const caption = panel.querySelector(".caption");
  caption.textContent = text;
  caption.classList.toggle("wrong", wrong);
}

export function drawNothing(panel, text = "", wrong = false) {
  for (const name of [".words", ".patches", ".figures"]) panel.querySelector(name).hidden = true;
  say(panel, text, wrong);
}
