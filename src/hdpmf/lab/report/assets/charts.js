/* Drawing one panel: lines with bands, or bars. Each returns its SVG and the places that can be pointed at. */

function axisLabel(axis, x, y, log) {
  const text = svg("text", { x, y, "text-anchor": "middle" }, axis.base);
  if (axis.low) text.append(svg("tspan", { dy: 4, class: "low" }, axis.low));
  if (log) text.append(" (log scale)");
  return text;
}

function drawLines(figure, series, metric, width, report) {
  const height = Math.max(230, Math.min(330, width * 0.62));
  const box = { left: 50, right: width - 16, top: 26, bottom: height - 44 };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "application" });
  const values = series.flatMap((one) => one.cells.filter((cell) => cell[metric].mean !== null)
    .flatMap((cell) => {
      const { mean, std } = cell[metric];
      return [mean - (std || 0), mean, mean + (std || 0)];
    }));
  if (!values.length) {
    root.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "not run"));
    return { root, stops: [] };
  }
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const log = low > 0 && high / low > 4;
  const room = (high - low || high * 0.1 || 1) * 0.07;
  [low, high] = log ? [low / 1.06, high * 1.06] : [low - room, high + room];
  const y = scale(low, high, box.bottom, box.top, log);
  const xs = figure.xs;
  const x = scale(Math.min(...xs), Math.max(...xs), box.left + 14, box.right - 14, figure.log);

  for (const value of ticks(low, high, log, 6)) {
    const at = y(value);
    root.append(svg("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" }));
    root.append(svg("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, String(value)));
  }
  for (const value of figure.free ? decades(xs) : xs) {
    const shown = figure.free ? cost(value) : figure.percent ? `${Number((100 * value).toPrecision(6))} %` : String(value);
    root.append(svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, shown));
  }
  root.append(axisLabel(figure.axis, (box.left + box.right) / 2, height - 6, figure.log));
  root.append(svg("text", { x: 4, y: 12 }, measure(metric) + (log ? ", log scale" : "")));

  const cross = svg("line", { y1: box.top, y2: box.bottom, class: "cross", visibility: "hidden" });
  root.append(cross);
  for (const one of series) root.append(drawSeries(one, metric, x, y, box, report));
  // On a free axis every method has places of its own, and those without one are shown at all of them.
  const own = new Set(series.flatMap((one) => one.cells.map((cell) => cell.x)));
  const stops = xs.filter((value) => !figure.free || own.has(value)).map((value) => ({
    title: [figure.axis.base + (figure.axis.low ? `_${figure.axis.low}` : ""), figure.free ? cost(value) : figure.percent ? `${100 * value} %` : value].join(" = "),
    at: [x(value), box.top],
    show: () => { cross.setAttribute("x1", x(value)); cross.setAttribute("x2", x(value)); cross.setAttribute("visibility", "visible"); },
    rows: series.map((one) => ({ one, cell: one.cells.find((cell) => cell.x === value || cell.x === null) })).filter((row) => row.cell),
  }));
  const nearest = (px) => stops.reduce((best, stop) => (Math.abs(stop.at[0] - px) < Math.abs(best.at[0] - px) ? stop : best));
  return { root, stops, find: (px) => nearest(px), hide: () => cross.setAttribute("visibility", "hidden") };
}

function drawSeries(one, metric, x, y, box, report) {
  const style = look(report.methods, one.method.name);
  const group = svg("g", { class: style.colour, "data-method": one.method.name });
  const points = one.cells.filter((cell) => cell[metric].mean !== null);
  if (one.cells.every((cell) => cell.x === null)) {
    for (const cell of points) {
      const line = `M${box.left} ${y(cell[metric].mean)}H${box.right}`;
      group.append(svg("path", { class: "line level", d: line, "stroke-dasharray": style.dash }));
    }
    return group;
  }
  // A point that is not there leaves a gap: a line across it would claim a number.
  const pieces = [[]];
  for (const cell of one.cells) {
    if (cell[metric].mean === null) pieces.push([]);
    else pieces[pieces.length - 1].push(cell);
  }
  for (const piece of pieces.filter((all) => all.length)) {
    const edge = (sign) => piece.map((cell) => `${x(cell.x)} ${y(Math.max(cell[metric].mean + sign * (cell[metric].std || 0), 1e-9))}`);
    if (piece.length > 1) {
      group.append(svg("path", { class: "band", d: `M${edge(1).join("L")}L${edge(-1).reverse().join("L")}z` }));
      const line = piece.map((cell) => `${x(cell.x)} ${y(cell[metric].mean)}`).join("L");
      group.append(svg("path", { class: "line", d: `M${line}`, "stroke-dasharray": style.dash }));
    }
  }
  for (const cell of points) {
    const place = `translate(${x(cell.x)} ${y(cell[metric].mean)})`;
    group.append(svg("path", { class: "dot", d: style.shape(4), transform: place }));
  }
  for (const cell of one.cells.filter((all) => all.status === "diverged")) {
    group.append(svg("text", { x: x(cell.x), y: box.top + 4, "text-anchor": "middle" }, "∞"));
  }
  return group;
}

function drawBars(figure, series, metric, width, report) {
  const step = 30;
  const height = series.length * step + 40;
  const box = { left: Math.min(104, width * 0.3), right: width - 62, top: 8, bottom: height - 30 };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "application" });
  const highest = Math.max(0, ...series.map((one) => (one.cells[0][metric].mean || 0) + (one.cells[0][metric].std || 0)));
  const x = scale(0, highest || 1, box.left, box.right, false);
  for (const value of highest ? ticks(0, highest, false, 4) : []) {
    root.append(svg("line", { x1: x(value), x2: x(value), y1: box.top, y2: box.bottom, class: "grid" }));
    root.append(svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, String(value)));
  }
  const stops = series.map((one, i) => {
    const cell = one.cells[0];
    const { mean, std } = cell[metric];
    const middle = box.top + step * (i + 0.5);
    const group = svg("g", { class: look(report.methods, one.method.name).colour, "data-method": one.method.name });
    group.append(svg("text", { x: box.left - 10, y: middle + 4, "text-anchor": "end", class: "value" }, one.method.label));
    const bar = svg("path", { class: "bar", d: `M${box.left} ${middle - 9}H${mean === null ? box.left : x(mean)}v18H${box.left}z` });
    group.append(bar);
    if (std) group.append(svg("path", { class: "whisker", d: `M${x(mean - std)} ${middle}H${x(mean + std)}M${x(mean + std)} ${middle - 4}v8M${x(mean - std)} ${middle - 4}v8` }));
    const words = mean === null ? (cell.status === "missing" ? "not run" : cell.status) : four(mean);
    group.append(svg("text", { x: mean === null ? box.left + 6 : x(mean + (std || 0)) + 6, y: middle + 4, class: "value" }, words));
    root.append(group);
    return { title: one.method.label, at: [mean === null ? box.left : x(mean), middle], show: () => bar.classList.add("on"),
      hide: () => bar.classList.remove("on"), rows: [{ one, cell }] };
  });
  const find = (px, py) => stops[Math.max(0, Math.min(stops.length - 1, Math.floor((py - box.top) / step)))];
  return { root, stops, find, hide: () => stops.forEach((stop) => stop.hide()) };
}
