"use strict";
// The budget under the slider chooses the best network within it; everything shown is text of the JSON in the page.
(() => {
  const data = document.getElementById("frontier-data");
  if (!data) return;
  const { networks, shipped } = JSON.parse(data.textContent);
  const find = (id) => document.getElementById(id);
  const slider = find("budget");
  const home = networks.findIndex((network) => network.architecture === shipped.architecture);
  let at = home; // -1: the shipped network, where it is not on the frontier

  const element = (tag, kind, ...children) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  };
  const coloured = (made, style) => { made.setAttribute("style", style); return made; };
  const chips = (text, shape) => [...text.split(", "), ...(shape ? [shape] : [])].map(
    (word) => element("span", word === "SE" ? "chip se" : "chip", word));

  const row = ([name, text, shape, , ms, width, colour]) => element("div", "",
    element("span", "", coloured(element("span", "dot"), `background:${colour}`), name),
    element("span", "what", ...chips(text, shape)),
    element("span", "", element("span", "bar", coloured(element("i"), `width:${width}%;background:${colour}`))),
    element("span", "number", ms));
  const share = ([, , , , , width, colour]) => coloured(element("i"), `flex:${width};background:${colour}`);

  const draw = (network) => {
    for (const key of ["accuracy", "latency", "size", "tag"]) find(`network-${key}`).textContent = network[key];
    find("network-blocks").replaceChildren(...network.blocks.map(row));
    find("network-ribbon").replaceChildren(
      ...network.blocks.map(share), coloured(element("u"), `flex:${network.rest}`));
    const ring = document.querySelector("#frontier .ring");
    ring.setAttribute("cx", network.x);
    ring.setAttribute("cy", network.y);
    slider.setAttribute("aria-valuetext", `${network.latency}, expected accuracy ${network.accuracy}`);
  };
  const cursor = () => {
    const line = document.querySelector("#frontier .cursor");
    const [first, last] = [networks[0], networks[networks.length - 1]];
    const span = last.latency_ms - first.latency_ms || 1;
    const x = first.x + (slider.value - first.latency_ms) / span * (last.x - first.x);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    find("budget-text").textContent = `${Number(slider.value).toPrecision(3)} ms`;
  };
  const within = (budget) => {
    let best = 0;
    networks.forEach((network, i) => { if (network.latency_ms <= budget) best = i; });
    return best;
  };
  const show = (i) => { at = i; draw(i < 0 ? shipped : networks[i]); cursor(); };
  const choose = (i) => { // a network, so the budget that is just enough for it
    const network = i < 0 ? shipped : networks[i];
    slider.value = network.latency_ms;
    show(i);
  };
  const remember = () => history.replaceState(null, "", `#budget=${Number(slider.value).toPrecision(6)}`);
  const fromAddress = () => {
    const asked = /^#budget=([0-9.eE+-]+)$/.exec(location.hash);
    if (!asked || !Number.isFinite(Number(asked[1]))) return;
    slider.value = asked[1];
    show(within(Number(asked[1])));
  };

  slider.addEventListener("input", () => show(within(Number(slider.value))));
  slider.addEventListener("change", remember);
  slider.addEventListener("keydown", (event) => {
    const last = networks.length - 1;
    const from = at < 0 ? within(shipped.latency_ms) : at;
    const to = {
      ArrowRight: from + 1, ArrowUp: from + 1, ArrowLeft: from - 1, ArrowDown: from - 1,
      PageUp: from + 10, PageDown: from - 10, Home: 0, End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(last, to)));
    remember();
  });
  find("to-shipped").addEventListener("click", () => { choose(home); remember(); });
  document.getElementById("frontier").addEventListener("click", (event) => {
    const point = event.target.closest("[data-network]");
    if (!point) return;
    choose(point.dataset.network === "shipped" ? home : Number(point.dataset.network));
    remember();
  });
  addEventListener("hashchange", fromAddress);
  find("slider").hidden = false;
  cursor();
  fromAddress();
})();
