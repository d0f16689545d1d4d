// Sets the theme before the first paint: chosen by the reader, else the system's.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("brinell-theme"); } catch (error) { /* no storage: the system's theme */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
