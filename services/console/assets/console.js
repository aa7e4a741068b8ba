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

function stream(live) {
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(live.dataset.stream);
    source.onopen = () => say("Live.");
    source.onmessage = (event) => { show(live, event.data); say("Live."); };
    source.onerror = () => {
      say("The connection is lost; trying again.");
      if (source && source.readyState === EventSource.CLOSED) { source.close(); source = null; setTimeout(open, 5000); }
    };
  };
  const close = () => { if (source) { source.close(); source = null; } };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

function refresh(live) {
  const again = async () => {
    const seconds = Number(live.dataset.refresh);
    if (!seconds) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const next = page.getElementById("live");
        if (answer.ok && next) { morph(live, next); say("Looked again every " + seconds + " seconds."); }
        else say("The page could not be read again.");
      } catch { say("The connection is lost; trying again."); }
    }
    setTimeout(again, seconds * 1000);
  };
  setTimeout(again, Number(live.dataset.refresh) * 1000);
}

for (const live of document.querySelectorAll("[data-stream]")) stream(live);
for (const live of document.querySelectorAll("[data-refresh]")) refresh(live);

// What has been done is said once.
const here = new URL(location.href);
if (here.searchParams.has("done")) {
  here.searchParams.delete("done");
  history.replaceState(null, "", here);
}
