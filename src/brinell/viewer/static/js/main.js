// The shell: tabs, theme, help, and the page that the address names.
import { html, render, useState, useEffect, useAsync, useKeys } from "./lib.js";
import { href, useRoute } from "./route.js";
import { loadSite } from "./data.js";
import { Failed, Icon, Loading } from "./ui.js";
import { Start } from "./pages/start.js";
import { Break } from "./pages/break.js";
import { Explore } from "./pages/explore.js";
import { Maps } from "./pages/maps.js";
import { Compare } from "./pages/compare.js";
import { Watch } from "./pages/watch.js";

const PAGES = { runs: ["Runs", Start], break: ["Break it", Break], explore: ["Explore", Explore], maps: ["Maps", Maps], compare: ["Compare", Compare], watch: ["Watch", Watch] };

const KEYS = [
  ["←  →", "previous or next image"], ["↑  ↓", "stronger or weaker change"], ["Tab, arrows, Enter", "over the grid of Explore, and open a cell"], ["Space", "hold to see the clean image"],
  ["/", "search"], ["b", "find the breaking point"], ["t", "light or dark"], ["?", "this help"], ["Esc", "close"],
];

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("brinell-theme", next); } catch (error) { /* not kept */ }
    setTheme(next);
  };
  return [theme, toggle];
}

function Help({ close }) {
  useEffect(() => { document.querySelector(".dialog button").focus(); }, []);
  return html`<div class="veil" onClick=${close}><div class="dialog" role="dialog" aria-modal="true" aria-labelledby="help-title" onClick=${(event) => event.stopPropagation()}>
    <h2 id="help-title">Keyboard</h2>
    <dl>${KEYS.map(([key, what]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <button onClick=${close}>Close</button>
  </div></div>`;
}

function App() {
  const route = useRoute();
  const [theme, toggle] = useTheme();
  const [help, setHelp] = useState(false);
  const site = useAsync(loadSite, []);
  useKeys({
    "?": () => setHelp(!help), Escape: () => setHelp(false), t: toggle,
    "/": () => { const field = document.querySelector("input[type=search]"); if (field) field.focus(); },
  });
  const [title, Page] = PAGES[route.page] || ["Not found", null];
  useEffect(() => { document.title = `${title}${route.params.run ? ` · ${route.params.run}` : ""} · brinell`; }, [title, route.params.run]);
  const keep = route.params.run ? { run: route.params.run } : {};
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <header class="bar">
      <a class="brand" href="#/runs"><img src="icon.svg" alt="" width="22" height="22" /> brinell</a>
      <nav aria-label="Pages">${Object.entries(PAGES).map(([key, [name]]) => html`
        <a key=${key} href=${href(key, key === "runs" ? {} : keep)} aria-current=${key === route.page ? "page" : null}>${name}</a>`)}</nav>
      <div class="tools">
        <button class="round help" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => setHelp(true)}><${Icon} name="help" /></button>
        <button class="round" aria-label=${theme === "dark" ? "Light theme" : "Dark theme"} title="Light or dark (t)" onClick=${toggle}><${Icon} name=${theme === "dark" ? "sun" : "moon"} /></button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${site.error ? html`<${Failed} error=${site.error} />` : !site.data ? html`<${Loading} />`
        : Page ? html`<${Page} params=${route.params} site=${site.data} theme=${theme} key=${route.page} />`
        : html`<div class="empty"><h1>There is no such page</h1><p><a href="#/runs">All runs</a></p></div>`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
