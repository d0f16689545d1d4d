// The page and what it shows are in the address, so that every view is a link.
import { useState, useEffect } from "./lib.js";

export function readRoute() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: name || "runs", params: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function href(page, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#/${page}${query ? "?" + query : ""}`;
}

export function go(page, params, { replace = false } = {}) {
  const target = href(page, params);
  if (target === location.hash) return;
  if (replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  dispatchEvent(new Event("route"));
}

// Changes some parameters of the address. Without `push`, going back skips it: moving a slider makes no history.
export function patch(changes, { push = false } = {}) {
  const { page, params } = readRoute();
  go(page, { ...params, ...changes }, { replace: !push });
}

export function useRoute() {
  const [route, setRoute] = useState(readRoute());
  useEffect(() => {
    const update = () => setRoute(readRoute());
    ["hashchange", "popstate", "route"].forEach((name) => addEventListener(name, update));
    return () => ["hashchange", "popstate", "route"].forEach((name) => removeEventListener(name, update));
  }, []);
  return route;
}
