(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = new Map();

  // Colours are names of CSS variables, and only under keys that hold colours.
  function coloured(value, key, style) {
    if (Array.isArray(value)) return value.map((each) => coloured(each, key, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([name, each]) => [name, coloured(each, name, style)]));
    }
    const found = typeof value === "string" && /color$/.test(key) && /^var\((--[a-z-]+)\)$/.exec(value);
    return found ? style.getPropertyValue(found[1]).trim() : value;
  }

  function draw(chart, figure) {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = coloured(figure, "", style);
    const now = chart.layout && chart.layout.xaxis;
    if (now && now.range && layout.xaxis.fixedrange === false) layout.xaxis.range = now.range;
    // On a touch screen a finger on a plot moves the page; the buttons move the plot.
    if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
    return Plotly.react(chart, data, layout, config);
  }

  function drawAll() {
    for (const [chart, figure] of figures) draw(chart, figure);
  }

  function zoom(chart, button) {
    const { from, to, by } = button.dataset;
    let range = [Number(from), Number(to)];
    if (by) {
      const [left, right] = chart.layout.xaxis.range.map(Number);
      const width = right - left;
      range = {
        left: [left - width / 2, right - width / 2],
        right: [left + width / 2, right + width / 2],
        in: [left + width / 4, right - width / 4],
        out: [left - width / 2, right + width / 2],
      }[by];
    }
    Plotly.relayout(chart, { "xaxis.range": range });
  }

  function copy(button) {
    const said = button.textContent;
    const selected = () => getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    const done = () => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = said; }, 1500);
    };
    if (navigator.clipboard) navigator.clipboard.writeText(button.dataset.text).then(done, selected);
    else selected();
  }

  for (const script of document.querySelectorAll("script[data-figure]")) {
    figures.set(document.getElementById(script.dataset.figure), JSON.parse(script.textContent));
  }
  drawAll();
  dark.addEventListener("change", drawAll);
  for (const group of document.querySelectorAll(".zoom")) {
    const chart = document.getElementById(group.dataset.for);
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) zoom(chart, button);
    });
  }
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
})();
