"use strict";
// The page's own script: draws the charts in the colours of the reader's theme, copies commands, shows single heads.

const read = (id) => {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- charts -------------------------------------------------------------------------------------------------------

function themed(layout) {
  const [text, line, back] = [color("--text"), color("--line"), color("--back")];
  const themed = {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    hoverlabel: { bgcolor: back, bordercolor: line, font: { color: text } },
    dragmode: false,
  };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
    themed[name] = { gridcolor: line, zerolinecolor: line, linecolor: line, ...layout[name] };
  }
  for (const slider of themed.sliders || []) {
    slider.font = { color: text };
    slider.bordercolor = line;
  }
  return themed;
}

async function draw(box) {
  const spec = read(`spec-${box.id}`);
  const layout = () => ({ ...themed(structuredClone(spec.layout)), height: Number(box.dataset.height) });
  await Plotly.newPlot(box, spec.data, layout(), { responsive: true, displayModeBar: false });
  if (spec.frames) await Plotly.addFrames(box, spec.frames);
  // Plotly keeps its own copy of the layout: a changed theme is given to it as a whole, with the slider where it was.
  dark.addEventListener("change", () => {
    const changed = layout();
    (changed.sliders || []).forEach((slider, i) => { slider.active = box.layout.sliders[i].active; });
    Plotly.react(box, box.data, changed);
  });
}

// ---- commands -----------------------------------------------------------------------------------------------------

function copier(button) {
  const command = button.parentElement.querySelector("code").textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      // A page opened from a disk may not write to the clipboard: select the text instead, so that one key copies it.
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
      return;
    }
    button.textContent = "Copied";
  });
}

document.documentElement.classList.add("scripted");
document.querySelectorAll(".copy").forEach(copier);
if (window.Plotly) document.querySelectorAll(".plot").forEach(draw);
