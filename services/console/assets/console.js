// Keeps pages up to date. Without it every page works, and stands still.
"use strict";

const state = document.getElementById("link-state");
const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };

// Makes `old` look like `next`, and leaves alone whatever is the same: focus, selection and open details stay.
function morph(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) { old.replaceWith(next.cloneNode(true)); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
  // What somebody is filling in is theirs.
  if (old.hasAttribute("data-keep")) return;
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  morphChildren(old, next);
}

function morphChildren(old, next) {
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const same = wanted.id && known.get(wanted.id);
    if (same) {
      if (same !== place) old.insertBefore(same, place); else place = place.nextSibling;
      morph(same, wanted);
    } else if (place && !place.id && !wanted.id && place.nodeName === wanted.nodeName) {
      const after = place.nextSibling;
      morph(place, wanted);
      place = after;
    } else {
      old.insertBefore(wanted.cloneNode(true), place);
    }
  }
  while (place) { const after = place.nextSibling; place.remove(); place = after; }
}

function show(live, html) {
  const next = new DOMParser().parseFromString("<div>" + html + "</div>", "text/html").body.firstChild;
  morphChildren(live, next);
}

// How old is what the page shows? `fresh` is when it was last known to be true, by this machine's own clock.
const lost = document.getElementById("lost");
const pageTime = document.getElementById("page-time");
const watch = { fresh: performance.now(), limit: 0, heard: performance.now(), shown: performance.now(), failing: false };

function renewed(ageMs, at) {
  watch.fresh = performance.now() - ageMs;
  watch.failing = false;
  if (pageTime && at && pageTime.textContent !== at) pageTime.textContent = at;
  judge();
}

function inWords(seconds) {
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + (seconds % 60) + " s";
  return Math.floor(seconds / 3600) + " h " + Math.floor(seconds / 60) % 60 + " min";
}

function judge() {
  if (!lost || !watch.limit || document.hidden) return;
  const now = performance.now(), age = now - watch.fresh;
  // A page that was in the background gets a moment to hear what is new.
  const old = age > (watch.failing ? 3500 : watch.limit) && now - watch.shown > 3500;
  if (old) {
    say("Not live.");
    const set = (id, text) => { const to = document.getElementById(id); if (to.textContent !== text) to.textContent = text; };
    set("lost-what", watch.failing ? "The connection is lost." : "No new data comes.");
    set("lost-age", inWords(Math.round(age / 1000)));
    set("lost-time", pageTime ? pageTime.textContent : "");
  }
  if (lost.hidden === old) {
    lost.hidden = !old;
    document.body.classList.toggle("old", old);
  }
}
setInterval(judge, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) watch.shown = performance.now(); });
const again = document.getElementById("lost-again");
if (again) again.addEventListener("click", () => location.reload());

function stream(live) {
  let source = null;
  watch.limit = 10000;
  // A page that was made from an older reading is as old as that.
  watch.fresh -= Number(live.dataset.age) || 0;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(live.dataset.stream);
    watch.heard = performance.now();
    const heard = (event) => {
      watch.heard = performance.now();
      const [age, ...at] = event.lastEventId.split(" ");
      if (Number(age) <= watch.limit) say("Live."); else say("No new data comes.");
      renewed(Number(age) || 0, at.join(" "));
    };
    source.onmessage = (event) => { show(live, event.data); heard(event); };
    source.addEventListener("same", heard);
    source.onerror = () => {
      say("The connection is lost; trying again.");
      watch.failing = true;
      if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(open, 3000); }
    };
  };
  const close = () => { if (source) { source.close(); source = null; } };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  // A connection that stands still says nothing of it: after a while, another one is tried. One that brings old data is good.
  setInterval(() => {
    if (!document.hidden && performance.now() - watch.heard > 2 * watch.limit) { watch.failing = true; close(); open(); }
  }, 10000);
  open();
}

function refresh(live) {
  const seconds = () => Number(live.dataset.refresh);
  const wait = () => setTimeout(again, (seconds() || 5) * 1000);
  watch.limit = Math.max(15000, 3 * seconds() * 1000);
  const again = async () => {
    if (!seconds()) { watch.limit = 0; return; }
    if (document.hidden) { wait(); return; }
    try {
      const began = performance.now();
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(8000) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      if (answer.ok && next) {
        morph(live, next);
        say("Looked again every " + live.dataset.refresh + " seconds.");
        renewed(performance.now() - began, page.getElementById("page-time")?.textContent);
      } else {
        say("The page could not be read again.");
        watch.failing = false;
      }
    } catch {
      say("The connection is lost; trying again.");
      watch.failing = true;
    }
    judge();
    wait();
  };
  wait();
}

for (const live of document.querySelectorAll("[data-stream]")) stream(live);
for (const live of document.querySelectorAll("[data-refresh]")) refresh(live);

// The key / leads to the search.
addEventListener("keydown", (event) => {
  const field = document.getElementById("go");
  const typing = event.target.closest && event.target.closest("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !field) return;
  event.preventDefault();
  field.focus();
  field.select();
});

// While a form is filled in, what it would come to is shown beside it.
for (const form of document.querySelectorAll("form[data-preview]")) {
  let timer = null, latest = 0;
  const ask = async () => {
    const turn = ++latest;
    const place = document.getElementById(form.dataset.into);
    const body = new URLSearchParams(new FormData(form));
    body.set("action", "preview");
    try {
      const answer = await fetch(form.dataset.preview, { method: "POST", body, headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById(form.dataset.into);
      if (next && turn === latest) morph(place, next);
    } catch { /* The page itself says when the connection is lost. */ }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 350); });
}

// What has been done is said once.
const here = new URL(location.href);
if (here.searchParams.has("done")) {
  here.searchParams.delete("done");
  history.replaceState(null, "", here);
}
