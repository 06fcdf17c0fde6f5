// SPDX-License-Identifier: Apache-2.0
"use strict";
// Read-outs under the pointer and the dark theme; everything else of the page works without it.
(() => {
  const root = document.documentElement, tip = document.createElement("div"), button = document.getElementById("theme");
  tip.className = "tip";
  document.body.appendChild(tip);
  const show = (event) => {
    const text = event.target.getAttribute && event.target.getAttribute("data-tip");
    tip.style.display = text ? "block" : "none";
    if (!text) return;
    tip.textContent = text;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    const below = event.clientY + 16;
    tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.style.display = "none"; }, { passive: true });
  const setTheme = (dark) => { root.classList.toggle("dark", dark); button.textContent = dark ? "Light" : "Dark"; };
  button.hidden = false;
  button.onclick = () => setTheme(!root.classList.contains("dark"));
  setTheme(location.hash === "#dark" || (location.hash !== "#light" && matchMedia("(prefers-color-scheme: dark)").matches));
})();
