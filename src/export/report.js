// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const view = data.view, root = document.documentElement;
  const phases = [["input", "input"], ["forward", "forward"], ["backward", "backward"],
    ["transfer", "communication: transfer"], ["wait", "communication: waiting for others"],
    ["optimizer", "optimizer"], ["runnable", "waiting for a processor"], ["other", "other"]];
  const label = Object.fromEntries(phases);
  const ns = "http://www.w3.org/2000/svg";
  const ms = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2)) + " ms";
  const byId = (id) => document.getElementById(id);
  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS(ns, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const html = (name, parent, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    if (parent) parent.appendChild(node);
    return node;
  };
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const numbers = (list) => Array.isArray(list) ? list.filter((x) => typeof x === "number") : [];

  const tip = html("div", document.body, "", "tip");
  const hover = (node, text) => {
    node.addEventListener("mousemove", (event) => {
      tip.textContent = text(event);
      tip.style.display = tip.textContent ? "block" : "none";
      tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = event.clientY + 14 + "px";
    });
    node.addEventListener("mouseleave", () => { tip.style.display = "none"; });
  };
  const empty = (id, text) => { const box = byId(id); box.textContent = ""; html("p", box, text, "empty"); };
  const frame = (id, height) => {
    const box = byId(id); box.textContent = "";
    const width = Math.max(box.clientWidth, 280);
    return { width, svg: make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" }, box) };
  };

  // Lightness grows away from the panel, so that great values stand out in light and dark alike.
  const heatColour = (share) => {
    const dark = root.classList.contains("dark");
    const stops = dark ? [[33, 44, 56], [46, 105, 150], [240, 196, 60], [255, 128, 92]] : [[232, 240, 248], [120, 178, 220], [240, 170, 30], [178, 34, 20]];
    const at = Math.min(Math.max(share, 0), 1) * 3, low = Math.min(Math.floor(at), 2), part = at - low;
    return "rgb(" + stops[low].map((v, i) => Math.round(v + (stops[low + 1][i] - v) * part)).join(",") + ")";
  };
  const total = (row) => phases.reduce((sum, [key]) => sum + (row[key] || 0), 0);
  const stepMs = () => {
    const steps = (Array.isArray(view.phases) ? view.phases : []).map(total).sort((a, b) => a - b);
    return steps.length ? steps[Math.floor(steps.length / 2)] : 0;
  };
  let heatKind = "heat";
  const drawHeat = () => {
    const rows = view[heatKind], ranks = numbers(view.ranks);
    if (!Array.isArray(rows) || !rows.length || !numbers(rows[0]).length) return empty("heat", "No steps were found in this trace.");
    // A third of a step is the least that reaches the last colour: noise stays pale.
    const all = rows.flatMap(numbers).sort((a, b) => a - b), at = (share) => all[Math.floor((all.length - 1) * share)];
    const low = heatKind === "heat" ? at(0.5) : 0, high = Math.max(at(0.99), low + 0.35 * stepMs(), low + 0.001);
    const columns = Math.max(...rows.map((row) => row.length)), rowHeight = Math.max(14, Math.min(34, 400 / rows.length));
    const left = 64, { width, svg } = frame("heat", rows.length * rowHeight + 26);
    const cell = (width - left) / columns;
    rows.forEach((row, r) => {
      make("text", { x: 0, y: r * rowHeight + rowHeight / 2 + 4 }, svg, "rank " + (ranks[r] ?? r));
      row.forEach((value, c) => {
        if (typeof value !== "number") return;
        const rect = make("rect", { x: left + c * cell, y: r * rowHeight, width: Math.max(cell - (cell > 5 ? 1 : 0), 0.6), height: rowHeight - 2, fill: heatColour((value - low) / (high - low)), class: "cell" }, svg);
        hover(rect, () => `rank ${ranks[r] ?? r}, column ${c + 1} of ${columns}: ${ms(value)}`);
      });
    });
    const base = rows.length * rowHeight + 16;
    make("text", { x: left, y: base, class: "soft" }, svg, "first step");
    make("text", { x: width, y: base, class: "soft", "text-anchor": "end" }, svg, `last of ${view.steps ?? columns} steps`);
    byId("heat-low").textContent = ms(low) + (heatKind === "heat" ? " (median) and less" : "");
    byId("heat-high").textContent = ms(high) + " and more";
    byId("heat-scale").style.background = "linear-gradient(90deg," + [0, 0.33, 0.66, 1].map(heatColour).join(",") + ")";
  };

  const drawPhases = () => {
    const rows = Array.isArray(view.phases) ? view.phases : [];
    if (!rows.length) return empty("phases", "No phases: no steps were found.");
    const longest = Math.max(...rows.map(total), 0.001), rowHeight = 34, left = 64, right = 76;
    const { width, svg } = frame("phases", rows.length * rowHeight);
    rows.forEach((row, r) => {
      make("text", { x: 0, y: r * rowHeight + 21 }, svg, "rank " + row.rank);
      let x = left;
      for (const [key, text] of phases) {
        const size = (row[key] || 0) / longest * (width - left - right);
        if (size <= 0) continue;
        const rect = make("rect", { x, y: r * rowHeight + 5, width: Math.max(size, 0.5), height: rowHeight - 10, fill: css("--" + key), class: "phase" }, svg);
        hover(rect, () => `rank ${row.rank}: ${text} ${ms(row[key])} of ${ms(total(row))}`);
        x += size;
      }
      make("text", { x: x + 8, y: r * rowHeight + 21, class: "soft" }, svg, ms(total(row)));
    });
  };

  const drawWorst = () => {
    const worst = view.worst_step || {}, rows = Array.isArray(worst.ranks) ? worst.ranks : [];
    const end = Math.max(0, ...rows.flatMap((row) => (row.spans || []).map((span) => span.start_ms + span.duration_ms)));
    if (!rows.length || end <= 0) return empty("worst", "No step to show.");
    const rowHeight = 30, left = 64, { width, svg } = frame("worst", rows.length * rowHeight + 24);
    const scale = (width - left - 10) / end;
    const hasCritical = rows.some((row) => (row.spans || []).some((span) => span.critical));
    byId("worst-critical").textContent = hasCritical ? "Outlined: the chain of operations that made it that long." : "";
    rows.forEach((row, r) => {
      make("text", { x: 0, y: r * rowHeight + 19 }, svg, "rank " + row.rank);
      const spans = row.spans || [];
      for (const span of spans) {
        const rect = make("rect", { x: left + span.start_ms * scale, y: r * rowHeight + 4, width: Math.max(span.duration_ms * scale, 0.7), height: rowHeight - 8, fill: css("--" + span.phase) || css("--other"), class: span.critical ? "span critical" : hasCritical ? "span aside" : "span" }, svg);
        hover(rect, () => `rank ${row.rank}: ${label[span.phase] || span.phase} ${span.name && span.name !== span.phase ? span.name + " " : ""}${ms(span.duration_ms)}, from ${ms(span.start_ms)}`);
      }
    });
    const base = rows.length * rowHeight;
    make("line", { x1: left, x2: width - 10, y1: base + 2, y2: base + 2, stroke: css("--line") }, svg);
    for (let i = 0; i <= 4; ++i) make("text", { x: left + (width - left - 10) * i / 4, y: base + 18, class: "soft", "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, svg, ms(end * i / 4));
    byId("worst-note").textContent = `Step ${(worst.index ?? 0) + 1} took ${ms(worst.duration_ms ?? end)}.`;
  };

  const show = (id, wanted) => { byId(id).hidden = !wanted; return wanted; };
  const drawHang = () => {
    const groups = Array.isArray(view.hang_groups) ? view.hang_groups : [];
    if (!show("hang-section", groups.length > 0)) return;
    const box = byId("hang"); box.textContent = "";
    for (const group of groups) {
      const card = html("div", box, undefined, group.culprit ? "card culprit" : "card");
      const ranks = numbers(group.ranks);
      html("b", card, (ranks.length === 1 ? "rank " : "ranks ") + ranks.slice(0, 64).join(", ") + (ranks.length > 64 ? ` and ${ranks.length - 64} more` : ""));
      html("div", card, group.culprit ? "the others wait for " + (ranks.length === 1 ? "it" : "them") : "waiting", "role");
      html("div", card, group.place, "place");
      if (Array.isArray(group.stack) && group.stack.length > 1) html("pre", card, group.stack.slice(-12).map((frame, i) => " ".repeat(i) + frame).join("\n"));
    }
  };

  const drawWorkers = () => {
    const rows = Array.isArray(view.worker_scores) ? view.worker_scores : [];
    if (!show("workers-section", rows.length > 0)) return;
    const columns = Math.max(...rows.map((row) => row.length)), rowHeight = 30, left = 64, { width, svg } = frame("workers", rows.length * rowHeight + 24);
    const most = Math.max(1.05, ...rows.flatMap(numbers)), cell = Math.min((width - left) / columns, 120);
    rows.forEach((row, stage) => {
      make("text", { x: 0, y: stage * rowHeight + 19 }, svg, "stage " + stage);
      row.forEach((score, rank) => {
        const rect = make("rect", { x: left + rank * cell, y: stage * rowHeight, width: Math.max(cell - 2, 0.8), height: rowHeight - 3, fill: heatColour((score - 1) / (most - 1)), class: "cell" }, svg);
        hover(rect, () => `data-parallel rank ${rank}, stage ${stage}: × ${score.toFixed(3)}`);
        if (cell > 44) make("text", { x: left + rank * cell + cell / 2 - 1, y: stage * rowHeight + 18, "text-anchor": "middle", class: (score - 1) / (most - 1) > 0.8 ? "inverse" : "" }, svg, score.toFixed(2));
      });
    });
    make("text", { x: left, y: rows.length * rowHeight + 14, class: "soft" }, svg, "data-parallel rank 0");
    make("text", { x: left + columns * cell, y: rows.length * rowHeight + 14, class: "soft", "text-anchor": "end" }, svg, String(columns - 1));
  };

  let order = ["difference_ms", -1];
  const isAboutOne = typeof view.function_rank === "number";
  const columns = [["function", "function", false], ["where", "where", false], ["culprit_ms", "this rank", true], ["peers_ms", "others", true],
    ["difference_ms", isAboutOne ? "difference a step" : "a step", true]].filter(([key]) => isAboutOne || (key !== "culprit_ms" && key !== "peers_ms"));
  const drawFunctions = () => {
    const rows = (Array.isArray(view.functions) ? view.functions : []).map((row) => ({ ...row, where: row.file ? `${row.file}:${row.line}` : "" }));
    if (!rows.length) return empty("functions", "No stack samples, or no steps to count them by.");
    const box = byId("functions"); box.textContent = "";
    const table = html("table", html("div", box, undefined, "scroll")), head = html("tr", html("thead", table)), body = html("tbody", table);
    for (const [key, text, isNumber] of columns) {
      const th = html("th", head, text + (order[0] === key ? (order[1] < 0 ? " ▼" : " ▲") : ""), isNumber ? (key === "difference_ms" ? "num" : "num detail") : key === "where" ? "where" : "");
      th.tabIndex = 0;
      const sort = () => { order = [key, order[0] === key ? -order[1] : isNumber ? -1 : 1]; drawFunctions(); };
      th.onclick = sort;
      th.onkeydown = (event) => { if (event.key === "Enter") sort(); };
    }
    rows.sort((a, b) => (a[order[0]] < b[order[0]] ? -1 : a[order[0]] > b[order[0]] ? 1 : 0) * order[1]);
    const largest = Math.max(...rows.map((row) => Math.abs(row.difference_ms)), 0.001);
    for (const row of rows) {
      const tr = html("tr", body);
      html("td", tr, row.function || "(unknown)");
      html("td", tr, row.where, "where");
      if (isAboutOne) for (const key of ["culprit_ms", "peers_ms"]) html("td", tr, ms(row[key]), "num detail");
      const cell = html("td", tr, undefined, "num");
      const bar = html("span", cell, "", "bar");
      bar.style.width = Math.round(Math.abs(row.difference_ms) / largest * 70) + "px";
      if (row.difference_ms < 0) bar.style.background = css("--wait");
      html("span", cell, " " + (isAboutOne && row.difference_ms > 0 ? "+" : "") + ms(row.difference_ms));
    }
  };

  const legend = (id) => {
    const box = byId(id); box.textContent = "";
    const rows = Array.isArray(view.phases) ? view.phases : [];
    for (const [key, text] of phases) {
      if (!rows.some((row) => row[key] > 0)) continue;
      const item = html("span", box);
      html("i", item).style.background = css("--" + key);
      item.append(text);
    }
  };
  // A standstill, or a recording that says too little, has no steps to draw.
  const hideEmpty = () => {
    const hasSteps = Array.isArray(view.heat) && view.heat.length > 0;
    for (const id of ["heat", "phases", "worst"]) byId(id).closest("section").hidden = !hasSteps;
    byId("functions").closest("section").hidden = !(Array.isArray(view.functions) && view.functions.length);
  };
  const draw = () => { hideEmpty(); drawHang(); drawWorkers(); drawHeat(); drawPhases(); drawWorst(); drawFunctions(); legend("phases-legend"); legend("worst-legend"); };
  const setTheme = (dark) => { root.classList.toggle("dark", dark); byId("theme").textContent = dark ? "Light" : "Dark"; draw(); };
  byId("theme").onclick = () => setTheme(!root.classList.contains("dark"));
  for (const kind of ["heat", "wait_heat"]) {
    byId("show-" + kind).onclick = () => {
      heatKind = kind;
      for (const other of ["heat", "wait_heat"]) byId("show-" + other).setAttribute("aria-pressed", String(other === kind));
      drawHeat();
    };
  }
  let timer = 0;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(draw, 100); });
  const wanted = location.hash === "#dark" ? true : location.hash === "#light" ? false : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(wanted);
})();
