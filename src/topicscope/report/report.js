"use strict";
// The page's own script: charts in the colours of the reader's theme, sliders, single heads, commands to copy.

const read = (id) => {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// All text goes in as text, never as markup: words and names are from outside.
const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- charts -------------------------------------------------------------------------------------------------------

function themed(layout) {
  const [text, line, back] = [color("--text"), color("--line"), color("--back")];
  const found = {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    hoverlabel: { bgcolor: back, bordercolor: line, font: { color: text } },
    dragmode: false,
  };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
    found[name] = { gridcolor: line, zerolinecolor: line, linecolor: line, ...layout[name] };
  }
  for (const shape of found.shapes || []) shape.line = { color: text, ...shape.line };
  return found;
}

async function chart(box) {
  const spec = read(`spec-${box.id}`);
  const shape = box.dataset.width ? Number(box.dataset.height) / Number(box.dataset.width) : Infinity;
  const height = () => Math.min(Number(box.dataset.height), box.clientWidth * shape);
  const layout = () => ({ ...themed(structuredClone(spec.layout)), height: height() });
  // On a phone the numbers in the cells would be too small to read.
  if (box.clientWidth < 500) for (const trace of spec.data) delete trace.texttemplate;
  await Plotly.newPlot(box, spec.data, layout(), { responsive: true, displayModeBar: false });
  if (spec.frames) {
    await Plotly.addFrames(box, spec.frames);
    box.after(slider(box, spec.frames.map((frame) => frame.name), spec.prefix));
  }
  box.dispatchEvent(new Event("drawn"));
  dark.addEventListener("change", async () => {
    await Plotly.react(box, box.data, layout());
    box.dispatchEvent(new Event("drawn"));
  });
}

// A native slider: it answers to the keyboard and to fingers, which plotly's own does not.
function slider(box, labels, prefix) {
  const last = labels.length - 1;
  const range = make("input", { type: "range", min: 0, max: last, value: last, "aria-label": prefix.trim() });
  const shown = make("output");
  const show = () => {
    const label = labels[Number(range.value)];
    shown.textContent = prefix + label;
    range.setAttribute("aria-valuetext", prefix + label);
    Plotly.animate(box, [label], { mode: "immediate", frame: { duration: 0, redraw: true }, transition: { duration: 0 } });
  };
  range.addEventListener("input", show);
  shown.textContent = prefix + labels[last];
  return make("div", { class: "steps" }, range, shown);
}

// ---- single heads -------------------------------------------------------------------------------------------------

const TOPIC_COLORS = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2"];

function headPanel(panel) {
  const data = read("heads-data");
  const choice = panel.querySelector("select");
  const maps = [...document.querySelectorAll(".plot[data-part]")];
  const show = () => {
    const [part, layer, head] = choice.value.split("/");
    panel.querySelector(".profile").replaceChildren(profile(data, choice.value, part));
    panel.querySelector(".example").replaceChildren(...example(data, choice.value));
    arcs(panel, data.examples[choice.value]);
    for (const map of maps) if (map.layout) mark(map, map.dataset.part === part ? [Number(layer), Number(head)] : null);
  };
  choice.addEventListener("change", show);
  window.addEventListener("resize", () => arcs(panel, data.examples[choice.value]));
  for (const map of maps) {
    map.addEventListener("drawn", () => {
      show();
      map.removeAllListeners("plotly_click");
      map.on("plotly_click", (event) => {
        choice.value = `${map.dataset.part}/${event.points[0].y}/${event.points[0].x}`;
        show();
      });
    });
  }
  show();
}

// A frame around the chosen head, light inside dark, so that it is seen on every colour.
function mark(map, head) {
  const around = (width, color) => ({
    type: "rect", x0: head[1] - 0.5, x1: head[1] + 0.5, y0: head[0] - 0.5, y1: head[0] + 0.5, line: { width, color },
  });
  Plotly.relayout(map, { shapes: head ? [around(5, "#000000"), around(2, "#ffffff")] : [] });
}

function profile(data, key, part) {
  const digits = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));
  const rows = data.labels.map((label, i) =>
    make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, digits(data.heads[key][i])),
      make("td", {}, digits(data.median[part][i]))));
  const titles = ["", "this head", "median head"].map((title) => make("th", { scope: "col" }, title));
  return make("table", { "aria-label": "Profile of the chosen head" },
    make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...rows));
}

function example(data, key) {
  const found = data.examples[key];
  if (!found) {
    return [make("p", { class: "note" }, "No example sentence is kept for this head: there is one for each of the " +
      "heads with the highest ratios that had two different words of one topic in the sample.")];
  }
  const sentence = data.sentences[found.sentence];
  const tint = new Map(sentence.topics.map(([topic], i) => [topic, TOPIC_COLORS[i % TOPIC_COLORS.length]]));
  const words = sentence.pieces.map(([text, place, topics]) =>
    place === undefined
      ? text
      : make("mark", { "data-place": place, style: `--tint: ${tint.get(topics[0])}` }, text, make("sub", {}, topics.join(","))));
  const legend = sentence.topics.map(([topic, top]) =>
    make("li", { style: `--tint: ${tint.get(topic)}` }, make("b", {}, `${topic}`), top ? ` ${top}, …` : ""));
  const pairs = found.pairs.map(([, , query, key, value]) => make("li", {}, `${query} → ${key}: ${value}`));
  return [
    make("p", { class: "note" }, `From “${sentence.document}”. The small number after a word is its topic. Arcs: the ` +
      "strongest attention between different words of one topic, from the word that looks to the one it looks at."),
    make("div", { class: "sentence" }, make("p", {}, ...words)),
    make("ul", { class: "topics-legend", "aria-label": "Topics in this sentence" }, ...legend),
    make("p", {}, "Attention between these words:"),
    make("ul", {}, ...pairs),
  ];
}

// Arcs above the words; between two lines of text the arc leans over to the other line.
function arcs(panel, found) {
  const box = panel.querySelector(".sentence");
  if (!box || !found) return;
  box.querySelector("svg")?.remove();
  const frame = box.getBoundingClientRect();
  const spot = (place, shift) => {
    const word = box.querySelector(`[data-place="${place}"]`).getBoundingClientRect();
    return [word.left + word.width / 2 + shift - frame.left, word.top - frame.top];
  };
  const strongest = Math.max(...found.pairs.map((pair) => pair[4]));
  const lines = found.pairs.map(([query, key, , , value]) => {
    const [[x0, y0], [x1, y1]] = [spot(query, -3), spot(key, 3)];
    const height = Math.min(y0, y1) - Math.min(14 + Math.abs(x1 - x0) / 8, 34);
    const path = `M${x0},${y0} C${x0},${height} ${x1},${height} ${x1},${y1}`;
    return draw("path", { d: path, "stroke-width": 1 + 3 * (value / strongest), "marker-end": "url(#arrow)" });
  });
  const size = { viewBox: "0 0 6 6", refX: 5, refY: 3, markerUnits: "userSpaceOnUse", markerWidth: 9, markerHeight: 9 };
  const head = draw("marker", { id: "arrow", orient: "auto", ...size }, draw("path", { d: "M0,0 L6,3 L0,6 z" }));
  box.append(draw("svg", { class: "arcs", "aria-hidden": "true" }, draw("defs", {}, head), ...lines));
}

// ---- commands -----------------------------------------------------------------------------------------------------

function copier(button) {
  const code = button.parentElement.querySelector("code");
  button.hidden = false;
  // Words stay whole: a browser would break the line after the hyphens of an option.
  code.replaceChildren(...code.textContent.split(/( )/).map((part) => (part === " " ? part : make("span", {}, part))));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // A page opened from a disk may not write to the clipboard: select the text, so that one key copies it.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
}

document.documentElement.classList.add("scripted");
document.querySelectorAll(".copy").forEach(copier);
document.querySelectorAll(".heads-panel").forEach(headPanel);
if (window.Plotly) document.querySelectorAll(".plot").forEach(chart);
