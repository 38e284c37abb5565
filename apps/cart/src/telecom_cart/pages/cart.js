// The page for trials. Everything that comes from elsewhere is put in as text, never as markup.

const PROVINCES = ["AB", "BC", "MB", "NB", "NL", "NS", "NT", "NU", "ON", "PE", "QC", "SK", "YT"];
const PRODUCTS = [
  { productId: "phone-1", name: "Phone", type: "device", price: 79900 },
  { productId: "plan-20gb", name: "Plan 20 GB", type: "plan", price: 4500 },
  { productId: "roaming", name: "Roaming", type: "addon", price: 1000 },
];
const FAULTS = [
  ["Expire all baskets", "POST", "expire", {}],
  ["Drop the reply to the next order", "POST", "faults", { verb: "checkout", kind: "applyThenDrop" }],
  ["Order, then answer 500", "POST", "faults", { verb: "checkout", kind: "applyThen5xx" }],
  ["Fail before the next order", "POST", "faults", { verb: "checkout", kind: "failBefore" }],
  ["Answer 504, order 3 s later", "POST", "faults", { verb: "checkout", kind: "applyLater", seconds: 3 }],
  ["Take 4 s for the next order", "POST", "faults", { verb: "checkout", kind: "delay", seconds: 4 }],
  ["Be down", "POST", "faults", { verb: "*", kind: "down", times: null }],
  ["No more faults", "DELETE", "faults", undefined],
];
const SHOWN_CALLS = 15;
const POLL_MS = 1000;

const at = (id) => document.getElementById(id);
const user = () => encodeURIComponent(at("user").value.trim());
const shown = new Map();
let cart = null;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function cell(text, className = "") {
  return element("td", { textContent: text ?? "–", className });
}

function money(minor, currency) {
  return new Intl.NumberFormat("en-CA", { style: "currency", currency }).format(minor / 100);
}

function time(instant) {
  return instant ? new Date(instant).toLocaleTimeString("en-GB") : "–";
}

// Drawn only when it is another one: whoever is typing in a field of it keeps the focus.
function draw(id, state, make) {
  const key = JSON.stringify(state);
  if (shown.get(id) === key) return;
  shown.set(id, key);
  at(id).replaceChildren(...make());
}

async function ask(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  try {
    const response = await fetch(path, options);
    const text = await response.text();
    return { ok: response.ok, status: response.status, body: text ? JSON.parse(text) : null };
  } catch {
    return { ok: false, status: 0, body: { code: "NO_ANSWER", detail: "The cart does not answer. Is it running?" } };
  }
}

function say(...lines) {
  at("answer").replaceChildren(
    ...lines.map(([text, isGood]) => element("p", { textContent: text, className: isGood ? "good" : "bad" })),
  );
}

function told({ ok, body }) {
  if (!ok) {
    const fields = (body.errors ?? []).map((each) => ` ${each.pointer}: ${each.detail}.`).join("");
    return [`${body.code}: ${body.detail}${fields}${body.retryable ? " You may try again." : ""}`, false];
  }
  const how = body.replayed ? "was ordered before" : "is ordered";
  return [`Order ${body.orderNumber} ${how}: ${money(body.totals.total, body.totals.currency)}`, true];
}

async function change(method, path, body) {
  const answer = await ask(method, `/v1/carts/${user()}${path}`, body);
  if (answer.ok) drawCart(answer.body);
  else say(told(answer));
}

// If-Match says which cart is meant: what is ordered is what is on the screen, and a repeat cannot mean another one.
async function checkOut(times) {
  const headers = cart ? { "If-Match": `"${cart.version}"` } : {};
  const buttons = [at("checkout"), at("twice")];
  buttons.forEach((button) => { button.disabled = true; });
  say(["The platform is being asked …", true]);
  const asked = Array.from({ length: times }, () => ask("POST", `/v1/carts/${user()}/checkout`, undefined, headers));
  say(...(await Promise.all(asked)).map(told));
  buttons.forEach((button) => { button.disabled = false; });
  await refresh();
}

function drawCart(fresh) {
  cart = fresh;
  at("province").value = cart.province ?? "";
  draw("items", cart.items, () => (cart.items.length ? cart.items.map(itemRow) : [emptyRow(5, "The cart is empty")]));
  draw("totals", cart.totals, totalsOf);
  const { lastAccessedAt, ...rest } = cart;
  draw("states", rest, statesOf);
}

function itemRow(item) {
  const quantity = element("input", { type: "number", min: 0, max: 99, value: item.quantity });
  quantity.setAttribute("aria-label", `Quantity of ${item.name}`);
  const path = `/items/${encodeURIComponent(item.productId)}`;
  quantity.addEventListener("change", () => change("PUT", path, { quantity: Number(quantity.value) }));
  const remove = element("button", { textContent: "Remove" });
  remove.setAttribute("aria-label", `Remove ${item.name}`);
  remove.addEventListener("click", () => change("DELETE", path));
  return element(
    "tr",
    {},
    cell(item.name),
    cell(money(item.price, cart.currency), "money"),
    element("td", {}, quantity),
    cell(money(item.lineTotal, cart.currency), "money"),
    element("td", {}, remove),
  );
}

function emptyRow(columns, text) {
  return element("tr", {}, element("td", { colSpan: columns, textContent: text, className: "none" }));
}

function pairs(rows, className = "") {
  return rows.flatMap(([name, value, ownClass]) => [
    element("dt", { textContent: name, className: ownClass ?? "" }),
    element("dd", { textContent: value ?? "–", className: ownClass ?? className }),
  ]);
}

function totalsOf() {
  const { subtotal, taxes, total, currency } = cart.totals;
  const lines = taxes?.map(({ name, rate, amount }) => [`${name} ${rate / 1000} %`, money(amount, currency)]);
  return pairs([
    ["Subtotal", money(subtotal, currency)],
    ...(lines ?? [["Taxes", "not determined: choose a province"]]),
    [taxes ? "Total" : "Total without taxes", money(total, currency), "sum"],
  ]);
}

function statesOf() {
  const { attempt } = cart;
  const rows = [
    ["Cart", cart.version],
    ["Synchronisation", `${cart.syncStatus}, last at ${time(cart.lastSyncedAt)}`],
    ["Basket", cart.externalCartId],
    ["Checkout", `${cart.checkoutStatus}${cart.checkoutStartedAt ? ` since ${time(cart.checkoutStartedAt)}` : ""}`],
  ];
  if (cart.lastSyncError) rows.push(["Why not synchronised", cart.lastSyncError]);
  if (attempt) {
    rows.push(
      ["Attempt", `${attempt.reference}: ${attempt.stage}${attempt.closing ? `, ${attempt.closing}` : ""}`],
      ["Begun, sent, over", [attempt.startedAt, attempt.submittedAt, attempt.closedAt].map(time).join(", ")],
      ["Recovered after", time(attempt.deadlineAt)],
    );
  }
  if (cart.checkoutError) rows.push(["Why", `${cart.checkoutError.code}: ${cart.checkoutError.detail}`]);
  return pairs(rows);
}

function drawPlatform(state, ledger) {
  const baskets = state.baskets.filter((basket) => !basket.closed);
  draw("baskets", baskets.map((basket) => ({ ...basket, expiresInSeconds: Math.ceil(basket.expiresInSeconds / 60) })), () =>
    baskets.length ? baskets.map(basketRow) : [emptyRow(4, "None")],
  );
  draw("orders", state.orders, () => (state.orders.length ? state.orders.map(orderRow) : [emptyRow(4, "None")]));
  const isAboutHealth = (call) => call.verb === "health" || call.basket_id === "health"; // every few seconds
  const calls = ledger.calls.filter((call) => !isAboutHealth(call)).slice(-SHOWN_CALLS).reverse();
  draw("ledger", calls, () => (calls.length ? calls.map(callRow) : [emptyRow(3, "Nothing was asked yet")]));
  const waiting = state.faults.map((fault) => `${fault.kind} of ${fault.verb}${fault.times === null ? ", always" : ""}`);
  draw("waiting", waiting, () => [waiting.length ? `Waiting: ${waiting.join("; ")}` : "No fault waits."]);
}

function basketRow(basket) {
  const lines = basket.lines.map((line) => `${line.quantity} × ${line.product_id}`).join(", ") || "empty";
  const minutes = `${Math.ceil(basket.expiresInSeconds / 60)} min`;
  const subtotal = money(basket.subtotal, basket.currency);
  return element("tr", {}, cell(basket.id, "code"), cell(lines), cell(subtotal, "money"), cell(minutes));
}

function orderRow(order) {
  const subtotal = money(order.subtotal, order.currency || "CAD");
  return element(
    "tr", {}, cell(order.number, "code"), cell(order.reference, "code"), cell(order.status), cell(subtotal, "money"),
  );
}

function callRow(call) {
  return element("tr", {}, cell(time(call.at * 1000)), cell(call.verb, "code"), cell(call.effect));
}

async function refresh() {
  if (!user()) return;
  const [own, health, state, ledger] = await Promise.all([
    ask("GET", `/v1/carts/${user()}`),
    ask("GET", "/health"),
    ask("GET", "/demo/state"),
    ask("GET", "/demo/ledger"),
  ]);
  if (own.ok) drawCart(own.body);
  else if (own.body.code === "VALIDATION_ERROR") say(told(own));
  if (state.ok && ledger.ok) drawPlatform(state.body, ledger.body);
  const provider = health.body.provider;
  const text = health.ok
    ? `${health.body.status}: ${provider.name} is ${provider.status}${provider.detail ? `, ${provider.detail}` : ""}`
    : health.body.detail;
  draw("health", text, () => [text]);
  at("health").className = `badge ${health.body.status === "healthy" ? "good" : "bad"}`;
}

async function poll() {
  if (!document.hidden) await refresh();
  setTimeout(poll, POLL_MS);
}

at("province").append(
  element("option", { value: "", textContent: "not chosen" }),
  ...PROVINCES.map((code) => element("option", { value: code, textContent: code })),
);
at("province").addEventListener("change", () => change("PUT", "/province", { province: at("province").value || null }));
at("user").addEventListener("change", () => { say(); refresh(); });
at("checkout").addEventListener("click", () => checkOut(1));
at("twice").addEventListener("click", () => checkOut(2));
for (const product of PRODUCTS) {
  const button = element("button", { textContent: `Add ${product.name}` });
  button.addEventListener("click", () => change("POST", "/items", product));
  at("catalogue").append(button);
}
for (const [text, method, path, body] of FAULTS) {
  const button = element("button", { textContent: text });
  button.addEventListener("click", async () => {
    const answer = await ask(method, `/demo/${path}`, body);
    if (!answer.ok) say(told(answer));
    await refresh();
  });
  at("faults").append(button);
}
poll();
