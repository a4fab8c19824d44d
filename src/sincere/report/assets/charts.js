"use strict";
// Light and dark, and every Vega-Lite chart of the page.
const report = JSON.parse(document.getElementById("report-data").textContent);

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const themed = (colour) => (isDark() && report.on_dark[colour]) || colour;

// A chart with the colours of the current theme; data and names are unchanged.
const NAMES = ["data", "domain", "title"];
function coloured(spec) {
  if (Array.isArray(spec)) return spec.map(coloured);
  if (spec === null || typeof spec !== "object") return themed(spec);
  const entries = Object.entries(spec).map(([key, value]) => [key, NAMES.includes(key) ? value : coloured(value)]);
  return Object.fromEntries(entries);
}

const views = new Map();
async function drawChart(container, spec) {
  const drawn = await vegaEmbed(container, coloured(spec), {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: { theme: isDark() ? "dark" : "light" },
    config: report.config[isDark() ? "dark" : "light"],
  });
  views.get(container)?.finalize();
  views.set(container, drawn);
}

// The panel of each loss with the bars and medians of one class, on a common vertical scale.
function classSpecs(label) {
  const found = report.classes.map((classes) => classes[label]);
  const highest = Math.max(...found.flatMap(({ bars }) => bars.map(([, , , share]) => share)), 0.01);
  return found.map(({ bars, medians, text }, i) => {
    const spec = structuredClone(report.charts[`similarity-${i}`]);
    spec.title.subtitle = text;
    for (const layer of spec.layer) {
      const isBars = layer.data.name.startsWith("bars");
      const rows = bars.map(([kind, start, end, share]) => ({ kind: report.kinds[kind], start, end, share }));
      layer.data.values = isBars ? rows : medians;
      if (isBars) layer.encoding.y.scale.domain = [0, 1.12 * highest];
    }
    return spec;
  });
}

const perClass = document.getElementById("per-class");
const classChoice = document.getElementById("class-choice");
async function drawClass() {
  if (!perClass?.open) return;
  const specs = classSpecs(Number(classChoice.value));
  await Promise.all(specs.map((spec, i) => drawChart(document.getElementById(`class-${i}`), spec)));
}
perClass?.addEventListener("toggle", drawClass);
classChoice?.addEventListener("change", drawClass);

async function drawCharts() {
  for (const [id, spec] of Object.entries(report.charts)) await drawChart(document.getElementById(id), spec);
  await drawClass();
}

const themeButton = document.getElementById("theme");
function applyTheme() {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  document.dispatchEvent(new Event("theme"));
  return drawCharts();
}
themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme().then(() => { document.documentElement.dataset.drawn = "true"; });
