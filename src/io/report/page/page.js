"use strict";
(() => {
  const live = document.getElementById("live");
  let wait = 2000;
  const say = (text, old) => {
    if (live.textContent !== text) live.textContent = text;
    document.body.classList.toggle("old", old);
  };
  // Makes the live element like the new one and touches only what differs: what is open, marked or scrolled stays so.
  const same = (a, b) => a && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const become = (a, b) => {
    if (a.nodeType !== 1) {
      if (a.data !== b.data) a.data = b.data;
      return;
    }
    const kept = a.nodeName === "DETAILS" ? "open" : "";
    for (const { name } of [...a.attributes])
      if (name !== kept && !b.hasAttribute(name)) a.removeAttribute(name);
    for (const { name, value } of [...b.attributes])
      if (name !== kept && a.getAttribute(name) !== value) a.setAttribute(name, value);
    const byId = new Map([...a.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = a.firstChild;
    for (const want of [...b.childNodes]) {
      const known = want.id ? byId.get(want.id) : null;
      if (known && known.nodeName === want.nodeName) {
        if (known === at) at = at.nextSibling;
        else a.insertBefore(known, at);
        become(known, want);
      } else if (same(at, want)) {
        const next = at.nextSibling;
        become(at, want);
        at = next;
      } else {
        a.insertBefore(document.importNode(want, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };
  class Refused extends Error {}
  const refusals = {
    401: "hookwatch asks for the token again: reload the page",
    403: "hookwatch does not admit this browser any more: reload the page",
  };
  const title = (state) => { document.title = `${state} · hookwatch`; };
  // In a hidden tab, too, since its title is seen: browsers make it less often there by themselves.
  const update = async () => {
    try {
      const answer = await fetch("/fragment", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Refused(refusals[answer.status] || `hookwatch answers with status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("page");
      if (!page) throw new Error("no page");
      const focused = document.activeElement;
      become(document.getElementById("page"), page);
      // A row that moved has lost it.
      if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
      const state = document.querySelector("#verdict .state");
      const alarm = document.getElementById("alarm") !== null;
      title(alarm ? "old" : (state ? state.firstElementChild || state : live).textContent);
      say(alarm ? "hookwatch does not judge any more" : "live", alarm);
      wait = 2000;
    } catch (error) {
      const why = error instanceof Refused ? error.message : "hookwatch does not answer";
      title("old");
      say(`${why}; everything below is old`, true);
      wait = Math.min(wait * 1.5, 10000);
    }
    setTimeout(update, wait);
  };
  document.addEventListener("visibilitychange", () => { wait = 2000; });
  // A link to a hook opens its row.
  const reveal = () => {
    const row = location.hash && document.getElementById(location.hash.slice(1));
    const details = row && row.closest("details");
    if (details) details.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
  say("live", false);
  setTimeout(update, wait);
})();
