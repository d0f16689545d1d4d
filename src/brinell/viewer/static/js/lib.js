// Preact, its hooks, and a few of our own.
export { html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from "../vendor/htm-preact.js";
import { useState, useEffect, useRef } from "../vendor/htm-preact.js";

// The result of an asynchronous function of some inputs: {data, error, loading}. Results of outdated inputs are dropped.
export function useAsync(make, inputs) {
  const [state, setState] = useState({ loading: true });
  useEffect(() => {
    let current = true;
    const control = new AbortController();
    setState((before) => ({ ...before, error: null, loading: true }));
    Promise.resolve()
      .then(() => make(control.signal, (part) => current && setState((before) => ({ ...before, progress: part }))))
      .then((data) => current && setState({ data, loading: false }))
      .catch((error) => current && error.name !== "AbortError" && setState({ error, loading: false }));
    return () => { current = false; control.abort(); };
  }, inputs);
  return state;
}

// Calls a function with the latest value only: while one call is under way, later values replace each other.
export function useLatest(call) {
  const state = useRef({ busy: false, next: null });
  return (value) => {
    const run = async (now) => {
      state.current.busy = true;
      try { await call(now); } finally {
        state.current.busy = false;
        const next = state.current.next;
        state.current.next = null;
        if (next) run(next.value);
      }
    };
    if (state.current.busy) state.current.next = { value };
    else run(value);
  };
}

export function useKeys(handlers) {
  const latest = useRef(handlers);
  latest.current = handlers;
  useEffect(() => {
    const listen = (event) => {
      const typing = /^(input|textarea|select)$/i.test(event.target.tagName) && event.target.type !== "range" && event.target.type !== "checkbox";
      if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
      const handler = latest.current[event.key];
      if (handler) { handler(event); event.preventDefault(); }
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, []);
}

// Scrolls the selected element of a list into sight, sideways alone.
export function useSelectedInSight(selected) {
  const list = useRef(null);
  useEffect(() => {
    const box = list.current, one = box?.querySelector("[aria-selected=true]");
    if (one) box.scrollLeft = one.offsetLeft - box.offsetLeft - (box.clientWidth - one.offsetWidth) / 2;
  }, [selected]);
  return list;
}

export function useSize(ref) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    if (!ref.current) return undefined;
    const watch = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      setSize({ width: Math.round(width), height: Math.round(height) });
    });
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, [ref.current]);
  return size;
}
