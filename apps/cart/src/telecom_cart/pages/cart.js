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
const SHOWN_ORDERS = 10;
// Answers that leave open what became of a checkout.
const OPEN = ["NO_ANSWER", "CHECKOUT_IN_PROGRESS", "CHECKOUT_UNKNOWN", "OPERATION_TIMEOUT", "STORE_UNAVAILABLE"];
const POLL_MS = 1000;

const at = (id) => document.getElementById(id);
const user = () => encodeURIComponent(at("user").value.trim());
const shown = new Map();
let cart = null;
let asking = null; // the checkout whose answer is waited for

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
  draw("answer", lines, () =>
    lines.map(([text, isGood]) => element("p", { textContent: text, className: isGood ? "good" : "bad" })),
  );
}

function told({ ok, body }, hint = body.retryable ? " You may try again." : "") {
  if (!ok) {
    const fields = (body.errors ?? []).map((each) => ` ${each.pointer}: ${each.detail}.`).join("");
    return [`${body.code}: ${body.detail}${fields}${hint}`, false];
  }
  const how = body.replayed ? "was ordered before" : "is ordered";
  return [`Order ${body.orderNumber} ${how}: ${money(body.totals.total, body.totals.currency)}`, true];
}

async function change(method, path, body) {
  const customer = user();
  const answer = await ask(method, `/v1/carts/${customer}${path}`, body);
  if (customer !== user()) return true;
  if (!answer.ok) say(told(answer));
  else {
    if (!asking) say();
    drawCart(answer.body);
  }
  return answer.ok;
}

// If-Match says which cart is meant: what is ordered is what is on the screen, and a repeat cannot mean another one. So
// it is asked until there is an answer, whatever becomes of the cart meanwhile.
async function checkOut(times) {
  const checkout = { path: `/v1/carts/${user()}/checkout`, headers: { "If-Match": `"${cart.version}"` } };
  const answers = [];
  asking = checkout;
  enable();
  say(["The platform is being asked …", true]);
  async function answered(place) {
    let isOpen = true;
    while (isOpen && asking === checkout) {
      const answer = await ask("POST", checkout.path, undefined, checkout.headers);
      if (asking !== checkout) return;
      isOpen = OPEN.includes(answer.body.code);
      answers[place] = told(answer, isOpen ? " It is asked again." : undefined);
      say(...answers.filter(Boolean));
      if (isOpen) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
  await Promise.all(Array.from({ length: times }, (_, place) => answered(place)));
  if (asking !== checkout) return;
  asking = null;
  enable();
  await refresh();
}

function enable() {
  for (const id of ["checkout", "twice"]) at(id).disabled = !cart || asking !== null;
  for (const id of ["catalogue", "province"]) {
    for (const each of [at(id), ...at(id).querySelectorAll("button")]) each.disabled = !cart;
  }
}

function forget() {
  cart = null;
  asking = null;
  enable();
  at("province").value = "";
  draw("items", null, () => [emptyRow(5, "There is no cart")]);
  for (const id of ["totals", "states", "ordered"]) draw(id, null, () => []);
}

function drawCart(fresh) {
  cart = fresh;
  enable();
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
  quantity.addEventListener("change", async () => {
    const isSet = quantity.value !== "" && (await change("PUT", path, { quantity: Number(quantity.value) }));
    if (!isSet) quantity.value = item.quantity;
  });
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
    ["Synchronisation", `${cart.syncStatus}, ${cart.lastSyncedAt ? `last at ${time(cart.lastSyncedAt)}` : "never yet"}`],
    ["Basket", cart.externalCartId],
    ["Checkout", `${cart.checkoutStatus}${cart.checkoutStartedAt ? ` since ${time(cart.checkoutStartedAt)}` : ""}`],
  ];
  if (cart.lastSyncError) rows.push(["Why not synchronised", cart.lastSyncError]);
  if (attempt) {
    rows.push(
      ["Attempt", `${attempt.reference}: ${attempt.stage}${attempt.closing ? `, ${attempt.closing}` : ""}`],
      ["Begun, sent, over", [attempt.startedAt, attempt.submittedAt, attempt.closedAt].map(time).join(", ")],
    );
    if (!attempt.closing) rows.push(["Looked into, if it is not over, from", time(attempt.deadlineAt)]);
  }
  if (cart.checkoutError) rows.push(["Why", `${cart.checkoutError.code}: ${cart.checkoutError.detail}`]);
  return pairs(rows);
}

function drawPlatform(state, ledger) {
  const baskets = state.baskets.filter((basket) => !basket.closed);
  draw("baskets", baskets.map((basket) => ({ ...basket, expiresInSeconds: Math.ceil(basket.expiresInSeconds / 60) })), () =>
    baskets.length ? baskets.map(basketRow) : [emptyRow(4, "None")],
  );
  const orders = state.orders.slice(-SHOWN_ORDERS).reverse();
  draw("orders", orders, () => (orders.length ? orders.map(orderRow) : [emptyRow(4, "None")]));
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

function orderedRow(order) {
  const { total, currency } = order.totals;
  return element("tr", {}, cell(order.orderNumber, "code"), cell(time(order.placedAt)), cell(money(total, currency), "money"));
}

async function refreshCart() {
  const customer = user();
  if (!customer) {
    forget();
    say(["Enter a customer.", false]);
    return;
  }
  const path = `/v1/carts/${customer}`;
  const [own, ordered] = await Promise.all([ask("GET", path), ask("GET", `${path}/orders?limit=${SHOWN_ORDERS}`)]);
  if (customer !== user()) return;
  if (own.ok) drawCart(own.body);
  else if (own.body.code === "VALIDATION_ERROR") {
    forget();
    say(told(own));
  }
  if (!ordered.ok) return;
  const { orders } = ordered.body;
  draw("ordered", orders, () => (orders.length ? orders.map(orderedRow) : [emptyRow(3, "Nothing yet")]));
}

async function refresh() {
  const [, health, state, ledger] = await Promise.all([
    refreshCart(),
    ask("GET", "/health"),
    ask("GET", "/demo/state"),
    ask("GET", "/demo/ledger"),
  ]);
  if (state.ok && ledger.ok) drawPlatform(state.body, ledger.body);
  const { provider, unknownCheckouts } = health.body;
  const unknown = unknownCheckouts ? `, ${unknownCheckouts} checkout${unknownCheckouts > 1 ? "s" : ""} unknown` : "";
  const text = health.ok
    ? `${health.body.status}: ${provider.name} is ${provider.status}${provider.detail ? `, ${provider.detail}` : ""}${unknown}`
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
at("user").addEventListener("change", () => { forget(); say(); refresh(); });
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
enable();
poll();
