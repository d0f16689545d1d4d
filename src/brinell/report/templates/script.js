"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// a picture that occurs again takes its data from where it occurs first
all("img[data-same]").forEach(image => { image.src = document.getElementById(image.dataset.same).src; });

// the contents are folded where they would push the cards off the first screen
if (matchMedia("(max-width: 1000px)").matches) document.querySelector("nav.toc details")?.removeAttribute("open");

// light and dark
const theme = document.querySelector(".theme");
theme?.addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
document.querySelector(".print")?.addEventListener("click", () => print());
addEventListener("beforeprint", () => all("details:not([open]):not(.on-screen)").forEach(one => { one.open = true; one.dataset.opened = ""; }));
addEventListener("afterprint", () => all("details[data-opened]").forEach(one => { one.open = false; delete one.dataset.opened; }));

// sortable tables
all(".sort").forEach(button => button.addEventListener("click", () => {
  const head = button.closest("th"), table = button.closest("table"), column = [...head.parentNode.children].indexOf(head);
  const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  all("th[aria-sort]", table).forEach(one => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", order);
  const key = row => { const cell = row.children[column]; return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim(); };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b, "en", {numeric: true});
  const body = table.tBodies[0];
  [...body.rows].map(row => [key(row), row]).sort((a, b) => (order === "ascending" ? 1 : -1) * compare(a[0], b[0])).forEach(([, row]) => body.append(row));
}));

// a figure as one SVG file: its panels where they are on the page, in the page's colours
const save = (name, text, type) => {
  const link = Object.assign(document.createElement("a"), {download: name, href: URL.createObjectURL(new Blob([text], {type}))});
  link.click(); setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const figureSvg = figure => {
  const style = getComputedStyle(document.documentElement), frame = figure.querySelector(".panels").getBoundingClientRect();
  const space = "http://www.w3.org/2000/svg", whole = document.createElementNS(space, "svg");
  const legend = figure.querySelector(".legend")?.getBoundingClientRect(), top = legend ? legend.height + 8 : 0;
  const add = (name, values, parent = whole) => { const element = document.createElementNS(space, name); Object.entries(values).forEach(([key, value]) => element.setAttribute(key, value)); parent.append(element); return element; };
  Object.entries({width: frame.width, height: frame.height + top, viewBox: `0 0 ${frame.width} ${frame.height + top}`}).forEach(([key, value]) => whole.setAttribute(key, value));
  add("rect", {width: "100%", height: "100%", fill: "var(--paper)"});
  all(".legend span", figure).forEach(entry => {
    const box = entry.getBoundingClientRect(), left = box.left - frame.left, down = box.top - legend.top;
    add("rect", {x: left, y: down + 4, width: 14, height: 9, fill: getComputedStyle(entry.querySelector(".key")).backgroundColor});
    add("text", {x: left + 20, y: down + 13, fill: "var(--ink)", "font-size": 12, "font-family": "sans-serif"}).textContent = entry.textContent;
  });
  all(".panel > svg", figure).forEach(panel => {
    const box = panel.getBoundingClientRect(), copy = panel.cloneNode(true);
    Object.entries({x: box.left - frame.left, y: box.top - frame.top + top, width: box.width, height: box.height}).forEach(([key, value]) => copy.setAttribute(key, value)); whole.append(copy);
  });
  return new XMLSerializer().serializeToString(whole).replace(/var\((--[a-z]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
};
all("button.svg").forEach(button => button.addEventListener("click", () => save(`${button.dataset.name}.svg`, figureSvg(button.closest("figure")), "image/svg+xml")));

// a pair of pictures, large
const dialog = document.querySelector("dialog");
all(".pair-figure img").forEach(image => {
  image.tabIndex = 0; image.setAttribute("role", "button");
  const open = () => {
    const figure = image.closest("figure"), content = dialog.querySelector("div");
    content.replaceChildren(...[...figure.children].map(child => child.cloneNode(true)));
    all("img", content).forEach(copy => { copy.removeAttribute("id"); copy.loading = "eager"; copy.removeAttribute("role"); copy.removeAttribute("tabindex"); });
    dialog.showModal();
  };
  image.addEventListener("click", open);
  image.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } });
});
dialog?.addEventListener("click", event => { if (event.target === dialog || event.target.tagName === "IMG") dialog.close(); });

// maps over photographs
all(".viewer").forEach(viewer => {
  const photos = JSON.parse(viewer.dataset.content), $ = name => viewer.querySelector(name);
  photos.forEach((photo, index) => $(".photo").add(new Option(photo.name.split("/").pop(), index)));
  const kinds = new Set(photos.flatMap(photo => photo.sizes.flatMap(size => Object.keys(size.maps))));
  if (photos.some(photo => photo.minimal.length)) kinds.add("minimal images");
  ["photograph", ...kinds].forEach(kind => $(".kind").add(new Option(kind)));
  $(".kind").value = kinds.has("loose shift") ? "loose shift" : kinds.has("minimal images") ? "minimal images" : "photograph";
  const draw = () => {
    const photo = photos[$(".photo").value], kind = $(".kind").value, size = photo.sizes[$(".size").value];
    $(".size").max = photo.sizes.length - 1; $(".photograph").src = photo.source; $(".photograph").alt = photo.name;
    $(".sized").hidden = photo.sizes.length < 2; $("output").value = size ? size.title.includes("px") ? size.title : `${size.title} (${size.side} px)` : "";
    const map = size && size.maps[kind]; $(".map").hidden = !map;
    if (map) { const [left, top, width, height] = size.box.map(number => number + "%"); $(".map").src = map; $(".map").alt = `${kind} of ${size.title}`; Object.assign($(".map").style, {left, top, width, height}); }
    const svg = $("svg"); svg.setAttribute("viewBox", `0 0 ${photo.width} ${photo.height}`); svg.replaceChildren();
    if (kind === "minimal images") photo.minimal.forEach(one => {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      Object.entries({x: one.x, y: one.y, width: one.side, height: one.side, fill: "none", stroke: "#ffd200", "stroke-width": 1.2}).forEach(([key, value]) => rect.setAttribute(key, value));
      svg.append(rect);
    });
  };
  $(".size").value = 0; viewer.addEventListener("input", draw); draw();
});
