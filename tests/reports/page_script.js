// What the browser's tests ask of a page; `page_script()` gives an object of functions.
() => {
  const visible = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return box.width > 0 && box.height > 0 && style.visibility !== "hidden" && style.opacity !== "0";
  };

  const channels = (colour) => {
    const [red, green, blue, alpha = 1] = (colour.match(/[\d.]+/g) || []).map(Number);
    return { red, green, blue, alpha };
  };

  const luminance = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };

  const ground = (element) => {
    const bar = element.classList.contains("bartext") && element.parentElement.querySelector("path");
    if (bar) return channels(getComputedStyle(bar).fill);
    for (let up = element; up; up = up.parentElement) {
      const found = channels(getComputedStyle(up).backgroundColor);
      if (found.alpha > 0.99) return found;
    }
    return channels("rgb(255, 255, 255)");
  };

  const contrast = (element) => {
    const style = getComputedStyle(element);
    const text = element instanceof SVGElement ? style.fill : style.color;
    const [high, low] = [channels(text), ground(element)].map(luminance).sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };

  const ownText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());

  return {
    faint: [...document.body.querySelectorAll("*")]
      .filter((element) => !["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName))
      .filter((element) => ownText(element) && visible(element) && contrast(element) < 4.5)
      .map((element) => `${element.textContent.slice(0, 40)}: ${contrast(element).toFixed(2)}`),
    charts: [...document.querySelectorAll(".chart")].map((chart) => {
      const marks = chart.querySelectorAll(".scatterlayer .point, .barlayer .point path");
      const svg = chart.querySelector("svg.main-svg");
      return {
        id: chart.id,
        traces: (chart.data || []).length,
        drawn: [...marks].filter(visible).length,
        outside: !svg || svg.getBoundingClientRect().right > document.documentElement.clientWidth,
        text: [...chart.querySelectorAll("text")].filter(visible).length,
      };
    }),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
}
