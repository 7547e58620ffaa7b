// A readout beside the pointer: the values of all curves of a chart at the step under it. The page works without it.
"use strict";
for (const chart of document.querySelectorAll("svg.chart")) {
  const frame = chart.parentElement;
  const curves = [...chart.querySelectorAll(".curve")].map((curve) => ({
    name: curve.dataset.name,
    color: curve,
    at: curve.dataset.at.split(" ").map(Number),
    values: curve.dataset.values.split(" "),
  }));
  const { steps, left, right, top, bottom } = Object.fromEntries(Object.entries(chart.dataset).map(([k, v]) => [k, Number(v)]));
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  frame.append(readout);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");

  const nearest = (at, step) => at.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(at[best] - step) ? i : best), 0);
  const show = (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const target = (Math.min(Math.max((x - left) / (right - left), 0), 1) || 0) * steps;
    const steps_shown = curves.map((curve) => curve.at[nearest(curve.at, target)]);
    const step = steps_shown[nearest(steps_shown, target)];
    const place = left + (step / Math.max(steps, 1)) * (right - left);
    cursor.setAttribute("d", `M${place} ${top}V${bottom}`);
    chart.append(cursor);
    const lines = curves.map((curve) => {
      const line = document.createElement("span");
      const value = document.createElement("b");
      value.textContent = curve.values[nearest(curve.at, step)];
      value.style.color = getComputedStyle(curve.color).color;
      line.append(value, ` ${curve.name}`);
      return line;
    });
    readout.replaceChildren(`step ${step}`, ...lines);
    readout.hidden = false;
    const width = readout.offsetWidth;
    const offset = (place / chart.viewBox.baseVal.width) * box.width;
    const after = offset + 10 + width <= frame.clientWidth;
    readout.style.left = `${Math.max(0, after ? offset + 10 : offset - 10 - width)}px`;
  };
  const hide = () => {
    readout.hidden = true;
    cursor.remove();
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  chart.addEventListener("pointerleave", hide);
}
