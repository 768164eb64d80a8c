"use strict";
// One bubble for everything that has a `data-tip`, by mouse, touch or keyboard.
(() => {
  const tip = document.getElementById("tip");
  const show = (element, x, y) => {
    tip.textContent = element.dataset.tip;
    tip.style.visibility = "visible";
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18) + "px";
  };
  const hide = () => { tip.style.visibility = "hidden"; };
  document.addEventListener("pointermove", (event) => {
    const element = event.target.closest("[data-tip]");
    if (element) show(element, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("focusin", (event) => {
    const element = event.target.closest("[data-tip]");
    if (!element) return;
    const box = element.getBoundingClientRect();
    show(element, box.right, box.bottom);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true });
})();
