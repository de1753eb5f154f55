// The page: it draws charts once they come into view, and answers to choices and clicks.

const report = JSON.parse(document.getElementById("report-data").textContent);
const view = { series: 0, place: 0, isWhole: false, window: report.series[0]?.windows[0] };
const charts = [...document.querySelectorAll(".chart")].map((element) => ({
  element,
  legend: element.previousElementSibling,
  part: Number(element.dataset.part),
  hidden: new Set(), // keys of entries
  isDrawn: false,
}));
let plotly; // a promise of the library, once a chart needs it

/** Unpack Plotly, which the page carries as gzip in base64. */
async function unpackPlotly() {
  const packed = document.getElementById("plotly").textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
  return window.Plotly;
}

async function draw(chart) {
  chart.isDrawn = true;
  try {
    plotly ??= unpackPlotly();
    const { react } = await plotly;
    const { entries, traces, layout } = FIGURES[chart.element.dataset.kind]({
      report,
      view,
      part: chart.part,
    });
    drawLegend(chart, entries);
    const shown = traces.filter((trace) => !chart.hidden.has(trace.legendgroup));
    await react(chart.element, shown, layout, CONFIG);
  } catch (error) {
    console.error(error);
    const text = "This browser cannot draw the chart; a current Chrome, Edge, Firefox or Safari can.";
    chart.element.replaceChildren(create("p", { className: "failure", textContent: text }));
  }
}

function redraw(isWanted = () => true) {
  for (const chart of charts) if (chart.isDrawn && isWanted(chart)) draw(chart);
}

function create(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function drawLegend(chart, entries) {
  const focused = [...chart.legend.children].indexOf(document.activeElement);
  chart.legend.replaceChildren(...entries.map((entry) => legendButton(chart, entry)));
  chart.legend.children[focused]?.focus();
}

function legendButton(chart, { key, name, colour, isBand, value }) {
  const sample = create("i", { className: isBand ? "band" : "" });
  sample.style.background = colour;
  const button = create("button", { type: "button" }, sample, name);
  if (value !== undefined && value !== null) {
    button.append(create("span", { className: "value", textContent: `MAE ${digits(value)}` }));
    button.title = "Mean absolute error of this forecast";
  }
  button.setAttribute("aria-pressed", !chart.hidden.has(key));
  button.addEventListener("click", () => {
    if (!chart.hidden.delete(key)) chart.hidden.add(key);
    draw(chart);
  });
  return button;
}

function digits(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

// Which forecast is shown.

function show(series, place) {
  const { windows } = report.series[series];
  Object.assign(view, { series, place, window: windows[place] });
  const [seriesChoice, windowChoice] = ["series-choice", "window-choice"].map(byId);
  seriesChoice.value = series;
  windowChoice.replaceChildren(...windows.map(({ label }, number) => option(label, number)));
  windowChoice.value = place;
  byId("position").textContent = `${place + 1} of ${windows.length}`;
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === windows.length - 1;
  redraw((chart) => chart.element.dataset.kind === "forecast");
}

function byId(id) {
  return document.getElementById(id);
}

function option(text, value) {
  return create("option", { textContent: text, value });
}

function listenToChoices() {
  byId("series-choice").append(...report.series.map(({ name }, number) => option(name, number)));
  byId("series-choice").addEventListener("change", ({ target }) => show(Number(target.value), 0));
  byId("window-choice").addEventListener("change", ({ target }) => show(view.series, Number(target.value)));
  byId("previous").addEventListener("click", () => show(view.series, view.place - 1));
  byId("next").addEventListener("click", () => show(view.series, view.place + 1));
  byId("whole").addEventListener("click", ({ target }) => {
    view.isWhole = !view.isWhole;
    target.setAttribute("aria-pressed", view.isWhole);
    show(view.series, view.place);
  });
  const isLong = ({ seen, truth }) => seen.values.length > HORIZONS_SEEN * truth.length;
  byId("whole").hidden = !report.series.some(({ windows }) => windows.some(isLong));
  show(0, 0);
}

// The table of series.

function sortRows(head) {
  const body = head.closest("table").tBodies[0];
  const direction = head.ariaSort === "ascending" ? "descending" : "ascending";
  for (const other of head.parentElement.children) other.ariaSort = "none";
  head.ariaSort = direction;
  const compare = comparison(head.cellIndex, direction === "ascending" ? 1 : -1);
  body.append(...[...body.rows].sort(compare));
}

function comparison(column, sign) {
  const collator = new Intl.Collator("en", { numeric: true });
  return ({ cells: { [column]: one } }, { cells: { [column]: other } }) => {
    if (one.dataset.value === undefined) return sign * collator.compare(one.textContent, other.textContent);
    const [left, right] = [Number(one.dataset.value), Number(other.dataset.value)];
    if (isNaN(left) || isNaN(right)) return isNaN(left) - isNaN(right); // always the last
    return sign * (left - right);
  };
}

function listenToTable(table) {
  for (const head of table.tHead.rows[0].cells) {
    head.firstElementChild.addEventListener("click", () => sortRows(head));
  }
  table.tBodies[0].addEventListener("click", ({ target }) => {
    const link = target.closest("tr").querySelector("[data-series]");
    if (!link) return;
    show(Number(link.dataset.series), 0);
    byId("forecasts").scrollIntoView();
  });
}

// The theme, and the text to copy.

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  redraw();
}

async function copy({ target }) {
  const code = target.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    target.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code); // for the reader to copy
    target.textContent = "Selected";
  }
  setTimeout(() => (target.textContent = "Copy"), 2000);
}

if (report.series.length) listenToChoices();
document.querySelectorAll(".sortable").forEach(listenToTable);
document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", copy));
byId("theme").addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
window.addEventListener("beforeprint", () => charts.filter((chart) => !chart.isDrawn).forEach(draw));

const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      const chart = charts.find(({ element }) => element === target);
      if (isIntersecting && !chart.isDrawn) draw(chart);
    }
  },
  { rootMargin: "400px" },
);
charts.forEach(({ element }) => observer.observe(element));
