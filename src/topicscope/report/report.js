"use strict";
// The page's own script: charts that answer to the pointer and to keys, sliders, single heads, commands to copy.

const read = (id) => {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
};
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

const tip = make("div", { class: "tip", role: "status" });
const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const charts = new Map(); // what the items of each chart are, by its box
const NEAR = 40; // pixels from the pointer to a place that it asks

// What a chart has to say: `at` gives the number of the item under a pointer or -1, `box` where it is on the screen,
// `text` what it says; items lie in rows of `across`.
function marks(svg) {
  const found = [...svg.querySelectorAll(".mark")];
  const box = (i) => found[i].getBoundingClientRect();
  const away = (i, x, y) => Math.hypot(box(i).x + box(i).width / 2 - x, box(i).y + box(i).height / 2 - y);
  return {
    box, count: found.length, across: found.length, text: (i) => found[i].getAttribute("aria-label"),
    at(x, y, target) {
      const shape = found.indexOf(target.closest(".mark"));
      if (shape >= 0) return shape;
      const nearest = found.reduce((best, _, i) => (away(i, x, y) < away(best, x, y) ? i : best), 0);
      return found.length && away(nearest, x, y) < NEAR ? nearest : -1;
    },
  };
}

// The same of a map, whose cells are shapes or one image: where they are follows from the frame around them all.
function cells(svg, spec, state) {
  const [rows, across] = [spec.rows.length, spec.columns.length];
  const all = () => svg.querySelector(".cells").getBoundingClientRect();
  return {
    count: rows * across, across,
    at(x, y) {
      const frame = all();
      const [row, column] = [Math.floor(((y - frame.y) / frame.height) * rows), Math.floor(((x - frame.x) / frame.width) * across)];
      return row >= 0 && row < rows && column >= 0 && column < across ? row * across + column : -1;
    },
    box(i) {
      const [frame, row, column] = [all(), Math.floor(i / across), i % across];
      const [width, height] = [frame.width / across, frame.height / rows];
      return new DOMRect(frame.x + column * width, frame.y + row * height, width, height);
    },
    text(i) {
      const value = state().values[i];
      const said = state().said ? state().said[i] : value === null ? "–" : String(Number(value.toPrecision(4)));
      return spec.text.replace("{row}", () => spec.rows[Math.floor(i / across)])
        .replace("{column}", () => spec.columns[i % across]).replace("{value}", () => said)
        .replace("{more}", () => spec.more[i] || "");
    },
  };
}

function chart(box) {
  const [svg, spec] = [box.querySelector("svg"), read(`cells-${box.id}`)];
  let shown = spec && spec.shown;
  const items = spec ? cells(svg, spec, () => spec.states[shown]) : marks(svg);
  charts.set(box, items);
  let chosen = -1;
  const point = (i, x, y) => {
    chosen = i;
    tip.textContent = i < 0 ? "" : items.text(i);
    if (i < 0) return;
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 4))}px`;
    tip.style.top = `${y + 12 + height > innerHeight ? y - height - 8 : y + 12}px`;
  };
  const leave = () => {
    point(-1);
    frame(svg, "cursor", null);
  };
  svg.addEventListener("pointermove", (event) => {
    frame(svg, "cursor", null);
    point(items.at(event.clientX, event.clientY, event.target), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  box.addEventListener("blur", leave);
  const choose = (i) => i >= 0 && box.dispatchEvent(new CustomEvent("choose", { detail: [Math.floor(i / items.across), i % items.across] }));
  svg.addEventListener("click", (event) => {
    const i = items.at(event.clientX, event.clientY, event.target);
    point(i, event.clientX, event.clientY); // a finger does not move before
    choose(i);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (event.key === "Enter") choose(chosen);
    const step = KEYS[event.key];
    if (!step || !items.count || event.target !== box) return;
    event.preventDefault();
    const next = chosen < 0 ? 0 : chosen + step[0] * (spec ? items.across : 1) + step[1];
    const i = Math.max(0, Math.min(next, items.count - 1));
    // A map that is wider than the screen follows the cursor.
    const [inside, item] = [box.getBoundingClientRect(), items.box(i)];
    box.scrollLeft += Math.min(0, item.left - inside.left - 20) + Math.max(0, item.right - inside.right + 20);
    const place = items.box(i);
    frame(svg, "cursor", place);
    point(i, place.right, place.bottom);
  });
  if (!spec) return;
  const show = (number) => {
    shown = number;
    paint(svg, spec, spec.states[shown], items);
  };
  show(shown);
  if (spec.states.length > 1) box.after(spec.slider ? slider(spec, show) : choice(spec, show));
}

// Colors the cells by the values of one state; the same shapes, or the same image with other pixels.
function paint(svg, spec, state, items) {
  const scale = spec.log ? Math.log : (value) => value;
  const [low, high] = [scale(spec.low), scale(spec.high)];
  const last = spec.colors.length - 1;
  const color = (value) =>
    value === null ? null : spec.colors[Math.max(0, Math.min(last, Math.floor(((scale(value) - low) / (high - low)) * (last + 1))))];
  const caption = document.getElementById(`${svg.parentElement.id}-state`)?.querySelector("text");
  if (caption) caption.textContent = spec.caption.replace("{state}", () => state.name);
  const group = svg.querySelector(".cells");
  if (group.tagName === "image") {
    const canvas = make("canvas", { width: spec.columns.length, height: spec.rows.length });
    const context = canvas.getContext("2d");
    state.values.forEach((value, i) => {
      if (value === null) return;
      context.fillStyle = color(value);
      context.fillRect(i % spec.columns.length, Math.floor(i / spec.columns.length), 1, 1);
    });
    group.setAttribute("href", canvas.toDataURL());
    return;
  }
  group.querySelectorAll(".mark").forEach((shape, i) => {
    shape.style.fill = color(state.values[i]) || "transparent";
    shape.style.fillOpacity = 1;
    shape.setAttribute("aria-label", items.text(i));
    const letters = document.getElementById(`${svg.parentElement.id}-letters-${i}`)?.querySelector("text");
    if (!letters || !state.letters) return;
    letters.textContent = state.letters[i];
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt((color(state.values[i]) || "#ffffff").slice(at, at + 2), 16));
    letters.style.fill = 0.299 * red + 0.587 * green + 0.114 * blue < 127.5 ? "#fffffe" : "#1a1a1b";
  });
}

// A frame around a place on the screen, light inside dark, so that it is seen on every color.
function frame(svg, name, place) {
  svg.querySelector(`g.${name}`)?.remove();
  if (!place) return;
  const screen = svg.getScreenCTM().inverse();
  const [begin, end] = [new DOMPoint(place.left, place.top), new DOMPoint(place.right, place.bottom)].map((p) => p.matrixTransform(screen));
  const size = { x: begin.x, y: begin.y, width: end.x - begin.x, height: end.y - begin.y };
  svg.append(draw("g", { class: name }, draw("rect", { class: "frame", ...size }), draw("rect", { class: "frame", ...size })));
}

function slider(spec, show) {
  const last = spec.states.length - 1;
  const range = make("input", { type: "range", min: 0, max: last, value: spec.shown, "aria-label": spec.prefix.trim() });
  const shown = make("output");
  const say = () => {
    shown.textContent = spec.prefix + spec.states[Number(range.value)].name;
    range.setAttribute("aria-valuetext", shown.textContent);
  };
  range.addEventListener("input", () => {
    say();
    show(Number(range.value));
  });
  say();
  return make("div", { class: "steps" }, range, shown);
}

function choice(spec, show) {
  const names = spec.states.map(({ name }, i) => make("option", { value: i }, name));
  const select = make("select", {}, ...names);
  select.value = spec.shown;
  select.addEventListener("change", () => show(Number(select.value)));
  return make("div", { class: "steps" }, make("label", {}, spec.prefix, select));
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
    for (const map of maps) {
      const { across, box } = charts.get(map);
      frame(map.querySelector("svg"), "chosen", map.dataset.part === part ? box(Number(layer) * across + Number(head)) : null);
    }
  };
  choice.addEventListener("change", show);
  window.addEventListener("resize", () => arcs(panel, data.examples[choice.value]));
  for (const map of maps) {
    map.addEventListener("choose", ({ detail: [layer, head] }) => {
      const key = `${map.dataset.part}/${layer}/${head}`;
      if (!data.heads[key]) return; // a head that was not read
      choice.value = key;
      show();
    });
  }
  show();
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
document.body.append(tip);
document.querySelectorAll(".copy").forEach(copier);
document.querySelectorAll(".plot").forEach(chart);
document.querySelectorAll(".heads-panel").forEach(headPanel);
