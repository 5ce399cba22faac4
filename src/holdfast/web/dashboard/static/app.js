// What the pages do beyond what HTML does: refresh what is live, keep ages true, copy, theme, menu, keys.
// Without it everything still works, by reloading.

const $$ = (selector, root = document) => Array.from(root.querySelectorAll(selector));

// ---------------------------------------------------------------- ages

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const skew = (() => {
  const served = Date.parse(document.body.dataset.now || "");
  return Number.isNaN(served) ? 0 : served - Date.now();
})();

function unit(seconds) { // as words.py has it
  for (const [name, size] of UNITS) {
    if (seconds < size) continue;
    const shown = `${Math.floor(seconds / size)} ${name}`;
    const hours = Math.floor((seconds % size) / 3600);
    return hours && seconds < 10 * size ? `${shown} ${hours} h` : shown;
  }
  return "0 s";
}

function tell(element) {
  const seconds = (Date.now() + skew - Date.parse(element.dateTime)) / 1000;
  const shown = unit(Math.abs(seconds));
  if (element.dataset.age === "bare") return unit(Math.max(0, seconds));
  if (shown === "0 s") return "now";
  return seconds > 0 ? `${shown} ago` : `in ${shown}`;
}

function tellAll() {
  for (const element of $$("time[data-age]")) {
    const text = tell(element);
    if (element.textContent !== text) element.textContent = text;
  }
}

// The exact time is there in UTC; where the person is, the clock may show another.
document.addEventListener("mouseover", (event) => {
  const time = event.target.closest("time[title$=UTC]");
  if (time) time.title += `\n${new Date(time.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "long" })}`;
});

// ---------------------------------------------------------------- live

// A region with data-live is replaced by what the server says of it now, unless the person is busy in it.
function isBusy(region) {
  const active = document.activeElement;
  if (active && region.contains(active) && active.matches("input, textarea, select")) return true;
  if (region.querySelector("[data-sent]") !== null) return true; // on its way: another press would repeat it
  return region.querySelector("details.pop[open]") !== null || String(window.getSelection() || "").length > 0;
}

// Where the focus is, in terms that hold after the region was replaced: the how manieth of what can have it.
const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";

function focusIn(region) {
  const active = document.activeElement;
  if (!active || !region.contains(active)) return () => {};
  const home = active.closest("[id]");
  const place = home === active ? -1 : $$(FOCUSABLE, home).indexOf(active);
  return () => {
    const found = document.getElementById(home.id);
    (place < 0 ? found : found && $$(FOCUSABLE, found)[place])?.focus({ preventScroll: true });
  };
}

function keep(region) {
  const opened = new Set($$("details[id][open]", region).map((item) => item.id));
  const closed = new Set($$("details[id]:not([open])", region).map((item) => item.id));
  const scrolled = new Map($$("[id]", region).filter((item) => item.scrollTop).map((item) => [item.id, item.scrollTop]));
  const focusAgain = focusIn(region);
  return () => {
    for (const item of $$("details[id]", region)) {
      if (opened.has(item.id)) item.open = true;
      else if (closed.has(item.id)) item.open = false;
    }
    for (const [id, top] of scrolled) {
      const item = document.getElementById(id);
      if (item) item.scrollTop = top;
    }
    focusAgain();
  };
}

// What the page says of itself: how its stream is, unless what it shows could not be brought up to date.
const sign = document.querySelector(".live");
let stream = ["none", sign?.textContent];
let trouble = "";

function say() {
  if (sign) [sign.dataset.state, sign.textContent] = trouble ? ["off", trouble] : stream;
}

// Also where the person is busy: a server that was started anew takes no form of before.
function renewForms(page) {
  const fresh = page.querySelector("input[name=csrf_token]");
  if (fresh) for (const input of $$("input[name=csrf_token]")) input.value = fresh.value;
}

let isRefreshing = false;
let tookMs = 0;
let isWanted = false;

async function refresh() {
  if (isRefreshing || document.hidden) { isWanted = true; return; }
  isRefreshing = true;
  isWanted = false;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    trouble = new URL(answer.url).pathname === "/login" ? "signed out" : answer.ok ? "" : "out of date";
    if (trouble || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    renewForms(page);
    for (const region of $$("[data-live]")) {
      const fresh = page.getElementById(region.id);
      if (!fresh || isBusy(region) || fresh.innerHTML === region.innerHTML) continue;
      const restore = keep(region);
      region.replaceChildren(...Array.from(fresh.childNodes).map((node) => document.adoptNode(node)));
      restore();
    }
    tellAll();
  } catch { // the next event tries again
    trouble = "out of date";
  } finally {
    say();
    isRefreshing = false;
    tookMs = performance.now() - began;
    if (isWanted) later();
  }
}

let timer = 0;
function later() { // a page that costs the server much is asked for less often
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, Math.max(400, 3 * tookMs));
}

const EVENTS = ["ended", "stranded", "overview", "journal", "transition", "status"];

function listen() {
  const url = document.body.dataset.events;
  if (!url || !sign) return;
  const become = (...found) => { stream = found; say(); };
  let source = null;
  let isOver = false;
  let refusals = 0;
  let again = 0;
  const close = () => { clearTimeout(again); source.close(); };
  const open = () => {
    source = new EventSource(url);
    source.addEventListener("open", () => { refusals = 0; become("on", "live"); });
    source.addEventListener("error", () => {
      become("off", "reconnecting");
      if (source.readyState !== EventSource.CLOSED) return;
      // It was refused (a server that is full, a proxy without one): a browser does not come again by itself.
      clearTimeout(again);
      again = setTimeout(() => { open(); later(); }, Math.min(30000, 1000 * 2 ** refusals++));
    });
    for (const name of EVENTS) source.addEventListener(name, later);
    for (const name of ["end", "gone"]) { // nothing more comes: do not connect again
      source.addEventListener(name, () => { isOver = true; close(); become("none", "ended"); later(); });
    }
  };
  open();
  // A browser has six connections to a server: pages that nobody sees give theirs back.
  document.addEventListener("visibilitychange", () => {
    if (isOver) return;
    close();
    if (!document.hidden) { open(); later(); }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => { if (event.persisted && !isOver) { open(); later(); } });
}

// ---------------------------------------------------------------- small things

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("holdfast-theme", root.dataset.theme); } catch { /* for this page only */ }
}

// Browsers give their clipboard to pages that came by TLS or from this machine; others copy what is selected.
function copySelected(text) {
  const field = document.body.appendChild(document.createElement("textarea"));
  field.className = "sr";
  field.value = text;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}

async function copy(button) {
  const text = button.dataset.copy;
  const said = document.getElementById("said"); // the button has a name of its own to a screen reader
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copySelected(text);
  button.focus({ preventScroll: true });
  button.textContent = said.textContent = isCopied ? "copied" : "not copied";
  setTimeout(() => { button.textContent = "copy"; said.textContent = ""; }, 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy !== undefined) copy(button);
  else if (button?.id === "theme") toggleTheme();
  else if (button?.id === "menu") {
    const isOpen = document.querySelector(".side").classList.toggle("open");
    button.setAttribute("aria-expanded", String(isOpen));
  }
  for (const pop of $$("details.pop[open]")) if (!pop.contains(event.target)) pop.open = false;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});

document.addEventListener("formdata", (event) => {
  if (event.target.method !== "get") return;
  for (const [name, value] of Array.from(event.formData)) if (!value) event.formData.delete(name); // shorter addresses
});

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || event.target.method !== "post") return;
  button.dataset.sent = "";
  setTimeout(() => { button.disabled = true; }, 0);
});

window.addEventListener("pageshow", (event) => { // come back to: as it was left, with what was sent
  if (event.persisted) for (const button of $$("[data-sent]")) { button.disabled = false; delete button.dataset.sent; }
});

const JUMPS = { o: "/", e: "/executions", q: "/queues", w: "/workers", s: "/schedules", d: "/dead-letters" };
let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const pop of $$("details.pop[open]")) { pop.open = false; pop.querySelector("summary").focus(); }
  }
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); }
    else location.assign("/executions#search");
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => { isGoing = false; }, 1200);
  } else if (isGoing && JUMPS[event.key]) {
    location.assign(JUMPS[event.key]);
  }
});

const poll = Number(document.body.dataset.poll || 0);
if (poll) setInterval(() => { if (!document.hidden) refresh(); }, poll * 1000);

tellAll();
setInterval(tellAll, 1000);
listen();
