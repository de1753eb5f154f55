// The charts: from the data of the report to what Plotly draws, and to the entries of a legend.
//
// Each of the functions `...Figure` returns {entries, traces, layout}. An entry {key, name, colour}
// is a switch of the legend for the traces whose `legendgroup` is its key.

const DASHES = ["solid", "dash", "dot"];
const NUMBER = ",.5r"; // five digits
const isTouch = matchMedia("(pointer: coarse)").matches;
const HORIZONS_SEEN = matchMedia("(max-width: 40rem)").matches ? 1 : 3; // of the context

const CONFIG = {
  responsive: true,
  displaylogo: false,
  // All of them are named, as Plotly's own choice has one that sends the data to a server.
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  toImageButtonOptions: { filename: "forecast", scale: 2 },
};

/** Return a colour of the style sheet as it is in the present theme. */
function themed(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Return a colour with an opacity. */
function faded(colour, opacity) {
  return colour.replace("rgb(", "rgba(").replace(")", `, ${opacity})`);
}

/** Return how a method is drawn, the same in all charts. */
function methodStyle(methods, name) {
  const place = methods.indexOf(name);
  return {
    colour: themed(`method-${place % 6}`),
    width: place === 0 ? 2.5 : 1.5,
    zorder: place === 0 ? 2 : 1,
    dash: DASHES[Math.floor(place / 6) % DASHES.length],
  };
}

/** Return local times as Plotly reads them, from the first one and runs of equal steps. */
function expandTimes([start, ...runs]) {
  const times = start === undefined ? [] : [start];
  for (let run = 0; run < runs.length; run += 2) {
    for (let count = runs[run + 1]; count > 0; count--) times.push(times.at(-1) + runs[run]);
  }
  return times.map(localTime);
}

/** Return a time such as 2024-03-31 02:30:00 from milliseconds. */
function localTime(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ");
}

/** Return the mean absolute difference where both are there, or null. */
function meanAbsoluteError(truth, forecast) {
  const isThere = (step) => truth[step] !== null && forecast[step] !== null;
  const steps = truth.map((_, step) => step).filter(isThere);
  const total = steps.reduce((sum, step) => sum + Math.abs(truth[step] - forecast[step]), 0);
  return steps.length ? total / steps.length : null;
}

function axis(title, more = {}) {
  return {
    title: { text: escapeMarkup(title), standoff: 10, font: { size: 13, color: themed("muted") } },
    tickfont: { size: 12 },
    automargin: true,
    separatethousands: true,
    gridcolor: themed("line"),
    linecolor: themed("line"),
    zeroline: false,
    ...more,
  };
}

/** Return a text that Plotly shows as it is, not as its markup. */
function escapeMarkup(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function layoutOf(xaxis, yaxis, more = {}) {
  const [text, card, line] = ["text", "card", "line"].map(themed);
  return {
    xaxis,
    yaxis,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: text },
    paper_bgcolor: card,
    plot_bgcolor: card,
    margin: { l: 8, r: 12, t: 32, b: 8 }, // and what the axes need
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: card, bordercolor: line, font: { color: text } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: themed("muted"), activecolor: text },
    dragmode: isTouch ? false : "zoom", // else a finger could not scroll past a chart
    ...more,
  };
}

function dottedLine(ends) {
  return { type: "line", ...ends, line: { color: themed("context"), width: 1.5, dash: "dot" } };
}

/** Return one forecast: context, truth, methods and intervals. */
function forecastFigure({ report, view }) {
  const { window, isWhole } = view;
  const times = expandTimes(window.times);
  const first = isWhole ? 0 : Math.max(0, window.seen.values.length - HORIZONS_SEEN * times.length);
  const context = {
    x: expandTimes(window.seen.times).slice(first),
    y: window.seen.values.slice(first),
  };
  const colour = themed("method-0");
  const bands = window.intervals.map(([percent, lower, upper], place, all) => ({
    key: `band ${percent}`,
    name: `${+percent.toPrecision(6)} % interval`,
    colour: faded(colour, 0.15 + (0.25 * place) / Math.max(1, all.length - 1)),
    isBand: true,
    lower,
    upper,
  }));
  const lines = [
    { key: "context", name: "context", colour: themed("context"), width: 1.2, ...context },
    { key: "truth", name: "truth", colour: themed("truth"), width: 1.8, x: times, y: window.truth, zorder: 3 },
    ...Object.entries(window.forecasts).map(([name, y]) => ({
      key: `method ${name}`,
      name,
      value: meanAbsoluteError(window.truth, y),
      ...methodStyle(report.methods, name),
      x: times,
      y,
    })),
  ];
  const zone = window.zone ? `time (${window.zone})` : "time";
  const cutoff = localTime(window.cutoff);
  return {
    entries: [...lines, ...bands],
    traces: [...lines.map(lineTrace), ...bands.flatMap((band) => bandTraces(band, times))],
    layout: layoutOf(
      axis(zone, { type: "date", hoverformat: window.isDaily ? "%a %Y-%m-%d" : "%a %Y-%m-%d %H:%M" }),
      axis(report.unit ?? "value"),
      {
        shapes: [dottedLine({ x0: cutoff, x1: cutoff, yref: "paper", y0: 0, y1: 1 })],
        uirevision: `${view.series} ${view.place} ${isWhole}`, // else keep the zoom
      },
    ),
  };
}

function lineTrace({ key, name, colour, width, dash = "solid", zorder = 1, x, y }) {
  return {
    x,
    y,
    name: escapeMarkup(name),
    legendgroup: key,
    type: "scatter",
    mode: "lines",
    line: { color: colour, width, dash },
    zorder,
    hovertemplate: `%{y:${NUMBER}}`,
  };
}

function bandTraces({ key, name, colour, lower, upper }, x) {
  const common = { x, legendgroup: key, type: "scatter", mode: "lines", line: { width: 0 } };
  return [
    { ...common, y: lower, hoverinfo: "skip" },
    {
      ...common,
      y: upper,
      name,
      customdata: lower,
      fill: "tonexty",
      fillcolor: colour,
      line: { width: 0, color: colour },
      hovertemplate: `%{customdata:${NUMBER}} to %{y:${NUMBER}}`,
    },
  ];
}

/** Return the error of each method by horizon step (lines) or by a part of the calendar. */
function errorsFigure({ report, part }) {
  const { by, groups, methods } = report.errors[part];
  const isStep = /step|horizon/i.test(by);
  const drawn = Object.entries(methods).map(([name, y]) => ({
    key: name,
    name,
    ...methodStyle(report.methods, name),
    x: groups,
    y,
  }));
  const traces = drawn.map((line) => ({
    ...lineTrace(line),
    mode: isStep ? "lines" : "lines+markers",
    marker: { color: line.colour, size: 7 },
  }));
  return {
    entries: drawn,
    traces,
    layout: layoutOf(
      axis(by, isStep ? {} : { type: "category", tickangle: 0, nticks: 12 }),
      axis(report.unit ? `error (${report.unit})` : "error", { rangemode: "tozero" }),
    ),
  };
}

/** Return how often truths lay below the quantiles against how often they should have. */
function calibrationFigure({ report }) {
  const { levels, methods } = report.calibration;
  const drawn = Object.entries(methods).map(([name, y]) => ({
    key: name,
    name,
    ...methodStyle(report.methods, name),
    x: levels,
    y,
  }));
  const range = { range: [0, 1], dtick: 0.2, tickformat: ".0%" };
  return {
    entries: drawn,
    traces: drawn.map((line) => ({
      ...lineTrace(line),
      mode: "lines+markers",
      marker: { color: line.colour, size: 7 },
      hovertemplate: "%{y:.1%}",
    })),
    layout: layoutOf(
      axis("level of the quantile", { ...range, constrain: "domain" }),
      axis("truths below it", { ...range, scaleanchor: "x", constrain: "domain" }),
      { shapes: [dottedLine({ x0: 0, y0: 0, x1: 1, y1: 1 })] },
    ),
  };
}

/** Return loss, validation error and, below, the learning rate by optimiser step. */
function trainingFigure({ report }) {
  const { loss, error, rates, bestStep } = report.training;
  const line = (name, colour, width, curve, more) => ({
    entry: { key: name, name, colour: themed(colour) },
    trace: {
      ...lineTrace({ key: name, name, colour: themed(colour), width, x: curve.steps, y: curve.values }),
      ...more,
    },
  });
  const drawn = [
    ...(loss ? [line("training loss", "method-1", 1.2, loss)] : []),
    ...(error ? [line("validation MAE", "method-0", 2.5, error, { mode: "lines+markers" })] : []),
    ...Object.entries(rates).map(([name, curve]) => line(name.replace("lr-", "learning rate, "), "method-2", 1.8, curve, { yaxis: "y2" })),
  ];
  const hasRates = drawn.some(({ trace }) => trace.yaxis === "y2");
  const best = bestStep === null ? [] : [bestStep];
  const lastStep = Math.max(...drawn.map(({ trace }) => trace.x.at(-1) ?? 0));
  return {
    entries: drawn.map(({ entry }) => entry),
    traces: drawn.map(({ trace }) => trace),
    layout: layoutOf(
      axis("optimiser step", { anchor: hasRates ? "y2" : "y" }),
      axis("scaled units", { domain: [hasRates ? 0.36 : 0, 1] }),
      {
        yaxis2: axis("learning rate", { domain: [0, 0.26], exponentformat: "e", rangemode: "tozero" }),
        shapes: best.map((x) => dottedLine({ x0: x, x1: x, yref: "paper", y0: 0, y1: 1 })),
        annotations: best.map((x) => ({
          x,
          y: 1,
          yref: "paper",
          xanchor: x > lastStep / 2 ? "right" : "left",
          yanchor: "top",
          showarrow: false,
          text: `best step: ${x.toLocaleString("en")}`,
        })),
      },
    ),
  };
}

const FIGURES = {
  forecast: forecastFigure,
  errors: errorsFigure,
  calibration: calibrationFigure,
  training: trainingFigure,
};
