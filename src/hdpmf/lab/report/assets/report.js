/* The page: choices, figures with their legends, values on pointing, links that open what they lead to. */
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const methods = Object.fromEntries(report.methods.map((one) => [one.name, one]));
  const titles = Object.fromEntries(report.datasets.map((one) => [one.name, one.title]));
  const tip = document.getElementById("tip");
  const state = { metric: "mse", k: null, dataset: "" };
  const off = new Map();
  const phone = window.matchMedia("(max-width: 700px)");
  let kept = null;
  document.documentElement.classList.add("js");

  function series(figure, dataset, k) {
    return figure.methods.filter((name) => !off.get(figure.name).has(name)).map((name) => ({
      method: methods[name],
      cells: figure.cells.filter((cell) => cell.method === name && cell.dataset === dataset && cell.k === k),
    })).filter((one) => one.cells.length);
  }

  function drawFigure(figure) {
    const host = document.querySelector(`[data-figure="${CSS.escape(figure.name)}"]`);
    if (!host.checkVisibility()) return; // folded away, where nothing has a width; unfolding draws it
    const panels = host.querySelector(".panels");
    const k = figure.factors.includes(state.k) ? state.k : figure.factors[0];
    const shown = figure.datasets.filter((name) => !state.dataset || name === state.dataset);
    const notes = [];
    if (state.k !== null && k !== state.k) notes.push(`This experiment has K = ${k} only.`);
    if (!shown.length) notes.push(`This experiment was not run on ${titles[state.dataset]}.`);
    host.querySelector(".chartnote").textContent = notes.join(" ");
    // All panels first: how many there are decides how wide each is.
    panels.replaceChildren(...shown.map((dataset) => html("div", { className: "panel" }, html("h4", {}, titles[dataset]))));
    for (const [i, dataset] of shown.entries()) {
      const panel = panels.children[i];
      const draw = figure.kind === "bars" ? drawBars : drawLines;
      const metric = figure.metric || state.metric;
      const chart = draw(figure, series(figure, dataset, k), metric, Math.max(240, panel.clientWidth - 20), report);
      chart.metric = metric;
      chart.root.setAttribute("aria-label", `${measure(metric)} on ${titles[dataset]}, K = ${k}; arrow keys show values`);
      panel.append(chart.root);
      if (chart.stops.length) point(chart, titles[dataset], k);
    }
  }

  function legend(figure) {
    const host = document.querySelector(`[data-figure="${CSS.escape(figure.name)}"] .legend`);
    for (const name of figure.methods) {
      const style = look(report.methods, name);
      const key = svg("svg", { width: 26, height: 12, class: style.colour, "aria-hidden": "true" });
      if (figure.kind === "bars") key.append(svg("path", { class: "bar", d: "M5 0h16v12h-16z" }));
      else {
        key.append(svg("path", { class: "line", d: "M0 6H26", "stroke-dasharray": style.dash }));
        key.append(svg("path", { class: "dot", d: style.shape(4), transform: "translate(13 6)" }));
      }
      const { words, why } = figure.words ? figure.words[name] : methods[name];
      const chip = html("span", { className: `chip ${methods[name].status}`, title: why }, words);
      const button = html("button", { type: "button", "aria-pressed": "true", "data-method": name }, key, methods[name].label, chip);
      button.addEventListener("click", () => {
        const hidden = off.get(figure.name);
        if (!hidden.delete(name)) hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        close();
        drawFigure(figure);
      });
      host.append(button);
    }
  }

  /* Values: pointing shows them, a click or Enter keeps them so that their links can be followed. */
  function point(chart, title, k) {
    const local = (event) => {
      const box = chart.root.getBoundingClientRect();
      const width = chart.root.viewBox.baseVal.width;
      return chart.find(((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * width) / box.width);
    };
    let current = -1;
    const show = (stop, keep) => {
      current = chart.stops.indexOf(stop);
      chart.hide();
      stop.show();
      fill(stop, title, k, keep, chart.metric);
      const box = chart.root.getBoundingClientRect();
      const left = box.left + (stop.at[0] * box.width) / chart.root.viewBox.baseVal.width;
      const right = left + 14 + tip.offsetWidth > document.documentElement.clientWidth - 8;
      const at = right ? Math.max(8, left - 14 - tip.offsetWidth) : left + 14;
      // On a phone the values go below the chart: beside the point they would hide it.
      tip.style.left = `${(phone.matches ? 12 : at) + window.scrollX}px`;
      tip.style.top = `${(phone.matches ? box.bottom + 6 : Math.max(box.top + stop.at[1], 8)) + window.scrollY}px`;
      kept = keep ? chart : null;
    };
    const leave = () => { if (kept === null) { chart.hide(); tip.hidden = true; } };
    chart.root.addEventListener("pointermove", (event) => { if (kept === null) show(local(event), false); });
    chart.root.addEventListener("pointerleave", leave);
    chart.root.addEventListener("blur", leave);
    chart.root.addEventListener("click", (event) => { close(); show(local(event), true); event.stopPropagation(); });
    chart.root.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) show(chart.stops[Math.max(0, Math.min(chart.stops.length - 1, current + step))], false);
      else if (event.key === "Enter" && current >= 0) { show(chart.stops[current], true); (tip.querySelector("a") || tip).focus(); }
      else return;
      event.preventDefault();
    });
    chart.close = () => { chart.hide(); chart.root.focus({ preventScroll: true }); };
  }

  function fill(stop, title, k, keep, metric) {
    // Of errors the smallest comes first, of lists the largest.
    const sign = metric === state.metric ? 1 : -1;
    const order = (row) => (row.cell[metric].mean === null ? Infinity : sign * row.cell[metric].mean);
    const rows = [...stop.rows].sort((a, b) => order(a) - order(b)).map(({ one, cell }) => {
      const { mean, std } = cell[metric];
      let words = mean === null ? (cell.status === "missing" ? "not run" : cell.status) : four(mean);
      if (mean !== null && std !== null) words += ` ± ${four(std)}`;
      if (mean !== null && cell.n < cell.seeds) words += ` (${cell.n} of ${cell.seeds} seeds)`;
      if (mean !== null && cell.nominal && cell.x !== null) words += `, nominal ε ${cell.nominal}`;
      const key = html("span", { className: `key ${look(report.methods, one.method.name).colour}` });
      const value = keep ? html("a", { href: `#${cell.runs}`, className: "number" }, words) : words;
      return html("tr", {}, html("th", {}, key, one.method.label), html("td", {}, value));
    });
    const hint = keep ? "Each number leads to its runs. Escape closes." : "Click or press Enter to keep this.";
    tip.replaceChildren(
      html("div", { className: "title" }, `${title}, K = ${k}: ${stop.title}, ${measure(metric)}`),
      html("table", {}, html("tbody", {}, ...rows)), html("div", { className: "hint" }, hint));
    tip.classList.toggle("kept", keep);
    tip.hidden = false;
  }

  function close() {
    if (kept) { const chart = kept; kept = null; chart.hide(); }
    tip.hidden = true;
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || tip.hidden) return;
    const chart = kept;
    close();
    if (chart) chart.close();
  });
  document.addEventListener("click", (event) => { if (!tip.contains(event.target) || event.target.closest("a")) close(); });

  function apply() {
    close();
    for (const node of document.querySelectorAll("[data-metric]")) {
      if (node.closest("table.accuracy") && !node.matches("a")) {
        const other = node.dataset.k !== undefined && Number(node.dataset.k) !== state.k;
        node.classList.toggle("off", node.dataset.metric !== state.metric || other);
        if (node.colSpan > 1 || node.dataset.span) fitGroup(node);
      } else if (node.matches("div")) node.hidden = node.dataset.metric !== state.metric;
    }
    for (const body of document.querySelectorAll("tbody[data-dataset], details[data-dataset]")) {
      body.hidden = Boolean(state.dataset) && body.dataset.dataset !== state.dataset;
    }
    report.figures.forEach(drawFigure);
  }

  /* On a phone one column of a group is left; its heading must not span more. */
  function fitGroup(node) {
    node.dataset.span = node.dataset.span || node.colSpan;
    node.colSpan = phone.matches ? 1 : Number(node.dataset.span);
    const table = node.closest("table");
    for (const head of table.querySelectorAll("tr.dataset th")) {
      head.dataset.span = head.dataset.span || head.colSpan;
      head.colSpan = phone.matches ? 2 : Number(head.dataset.span);
    }
  }

  /* A link into something folded unfolds it. */
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const part = target.matches("section");
    if (part) target.querySelector("details.fold").open = true;
    for (let node = target.closest("details"); node; node = node.parentElement.closest("details")) node.open = true;
    target.scrollIntoView({ block: part || target.matches("header, figure") ? "start" : "center" });
  }

  /* Tables that are wider than their box say so. */
  const fits = (box) => box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1);
  const widths = new ResizeObserver((entries) => entries.forEach((entry) => fits(entry.target)));
  for (const box of document.querySelectorAll(".scroll")) widths.observe(box);

  const folds = [...document.querySelectorAll("details.fold")];
  const unfold = document.getElementById("unfold");
  const allOpen = () => folds.every((fold) => fold.open);
  for (const fold of folds) {
    fold.addEventListener("toggle", () => {
      if (fold.open) report.figures.filter((figure) => fold.querySelector(`[data-figure="${CSS.escape(figure.name)}"]`)).forEach(drawFigure);
      unfold.textContent = allOpen() ? "Fold all" : "Unfold all";
    });
  }
  unfold.hidden = false;
  unfold.addEventListener("click", () => { const open = !allOpen(); for (const fold of folds) fold.open = open; });
  window.addEventListener("beforeprint", () => { for (const fold of folds) fold.open = true; });

  /* The contents show where one is: the last part whose top has been passed. */
  const links = [...document.querySelectorAll(".contents a")];
  const parts = links.map((link) => document.getElementById(link.hash.slice(1)));
  function mark() {
    const end = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2;
    const passed = parts.filter((part) => part.getBoundingClientRect().top < 140).length;
    const current = links[end ? links.length - 1 : Math.max(0, passed - 1)];
    for (const link of links) {
      if ((link === current) === link.hasAttribute("aria-current")) continue;
      link.toggleAttribute("aria-current", link === current);
      if (link === current) link.closest("ul").scrollTo({ left: link.offsetLeft - 40 });
    }
  }
  window.addEventListener("scroll", mark, { passive: true });
  mark();

  const controls = document.querySelector(".controls");
  controls.hidden = false;
  for (const input of controls.querySelectorAll("input")) {
    const value = () => (input.name === "k" ? Number(input.value) : input.value);
    if (input.name === "k" && state.k === null) state.k = value();
    input.checked = state[input.name] === value();
    input.addEventListener("change", () => { state[input.name] = value(); apply(); });
  }
  const choice = controls.querySelector("select");
  choice.value = "";
  choice.addEventListener("change", () => { state.dataset = choice.value; apply(); });
  for (const node of document.querySelectorAll("details.numbers")) node.open = false;
  for (const figure of report.figures) { off.set(figure.name, new Set()); legend(figure); }
  apply();
  window.addEventListener("hashchange", reveal);
  reveal();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    apply();
  });
})();
