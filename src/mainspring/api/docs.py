"""The reference page, rendered from the OpenAPI document: one small script of ours, no third party, nothing to build.

The content security policy lets that script run, by its hash, and lets it ask this server and nobody else. It writes
the address that the page comes from into the examples, and sends what is in a form. Without it, the page can be read
all the same. A token that is typed into it is kept in the page, and nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from typing import Any, Final

import msgspec

from mainspring.api.openapi import Document
from mainspring.api.routes import Route
from mainspring.text import FORMS

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --accent: #7aa2ff; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
body { overflow-wrap: break-word; }
h1 { margin-bottom: 0; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
article { margin: 2rem 0; } h3 { margin-bottom: .2rem; }
code, pre, textarea { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
a { color: var(--accent); } nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; } summary { cursor: pointer; }
.method { color: var(--accent); font-weight: 600; } .note { opacity: .75; }
textarea, input { width: 100%; padding: .5rem; border: 1px solid var(--line); background: var(--soft); color: inherit; }
input { font: inherit; max-width: 30rem; }
button { font: inherit; margin: .5rem 0; padding: .3rem 1.2rem; cursor: pointer; }
[hidden] { display: none; }
@media (max-width: 40rem) {
  body { padding: .8rem; } h2 { margin-top: 2rem; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { padding: .4rem 0; border-bottom: 1px solid var(--line); } td { padding: 0; border: 0; }
}
"""
_SCRIPT: Final = """
"use strict";
const base = new URL(".", document.baseURI);
for (const part of document.querySelectorAll(".base")) part.textContent = base.href.replace(/\\/$/, "");
for (const part of document.querySelectorAll(".try, .token")) part.hidden = false;
const token = document.getElementById("token");
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const answer = form.querySelector("output");
  const body = form.querySelector("textarea");
  const button = form.querySelector("button");
  const headers = {};
  if (form.dataset.token) headers["Authorization"] = "Bearer " + token.value;
  if (body) headers["Content-Type"] = "application/json";
  button.disabled = true;
  answer.textContent = "…";
  try {
    const sent = { method: form.dataset.method, headers, body: body ? body.value : undefined, credentials: "omit" };
    const reply = await fetch(new URL(form.dataset.path.slice(1), base), sent);
    const text = await reply.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { }
    answer.textContent = reply.status + " " + reply.statusText + "\\n" + shown;
  } catch (error) {
    answer.textContent = "No answer: " + error.message;
  } finally {
    button.disabled = false;
  }
});
"""


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_hash(_STYLE)}'; script-src 'sha256-{_hash(_SCRIPT)}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_BASE: Final = '<span class="base">http://127.0.0.1:8700</span>'
"""Until the script knows better."""


def docs_routes(document: Callable[[], Document]) -> tuple[Route, ...]:
    """`document` is called when somebody asks for the first time: most instances are never asked."""

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(document())

    @cache
    def page() -> bytes:
        return render(document()).encode()

    async def respond_document(_: bytes) -> bytes:
        return encoded()

    async def respond_page(_: bytes) -> bytes:
        return page()

    return (
        Route("GET", "/openapi.json", "docs", "The OpenAPI document", respond_document, is_open=True),
        *(
            Route(
                "GET",
                path,
                "docs",
                "The API reference",
                respond_page,
                content_type="text/html; charset=utf-8",
                is_open=True,
                policy=_POLICY,
            )
            for path in ("/docs", "/")
        ),
    )


def render(document: Document) -> str:
    return "\n".join(_page(document))


def _page(document: Document) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
    yield f'<h1>{escape(info["title"])} API</h1><p class="note">Version {escape(info["version"])}'
    yield f' · <a href="openapi.json">OpenAPI 3.1 document</a> · {_BASE}</p>'
    yield f"<p>{escape(info['description'])}</p>"
    yield '<p class="token" hidden><label>Token for the forms, kept in this page only'
    yield '<input id="token" type="password" autocomplete="off" spellcheck="false"></label></p><nav>'
    for tag in document["tags"]:
        yield f'<a href="#{escape(tag["name"])}">{escape(tag["name"])}</a>'
    yield '<a href="#problems">problems</a><a href="#types">types</a></nav>'
    for tag in document["tags"]:
        yield f'<section id="{escape(tag["name"])}"><h2>{escape(tag["name"])}</h2>'
        yield f"<p>{escape(tag['description'])}</p>"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(document, method.upper(), path, operation)
        yield "</section>"
    yield from _problems(document)
    yield from _types(document)
    yield f"<script>{_SCRIPT}</script></body></html>"


def _operation(document: Document, method: str, path: str, operation: Document) -> Iterator[str]:
    yield f'<article id="{escape(operation["operationId"])}"><h3>{escape(operation["summary"])}</h3>'
    yield f'<p><code><span class="method">{method}</span> {escape(path)}</code></p>'
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    curl = "curl -sS"
    if operation["security"]:
        curl += ' -H "Authorization: Bearer $TOKEN"'
    body = operation.get("requestBody")
    example = None
    if body is not None:
        content = body["content"]["application/json"]
        example = json.dumps(content.get("example", {}), indent=2)
        quoted = example.replace("'", r"'\''")
        curl += f" -H 'Content-Type: application/json' \\\n  -d '{quoted}'"
        yield from _fields(document["components"]["schemas"][_name(content["schema"])])
    yield f"<pre>{escape(curl)} \\\n  {_BASE}{escape(path)}</pre>"
    yield from _form(method, path, operation, example)
    answer = next(iter(operation["responses"]["200"]["content"].values()))["schema"]
    statuses = ", ".join(status for status in operation["responses"] if status != "200")
    yield f'<p class="note">Returns {_type(answer)}'
    yield f'; <a href="#problems">problems</a> {statuses}.</p></article>' if statuses else ".</p></article>"


def _form(method: str, path: str, operation: Document, example: str | None) -> Iterator[str]:
    """Hidden until there is a script that can send it."""
    needs_token = "yes" if operation["security"] else ""
    yield '<details class="try" hidden><summary>Try it</summary>'
    yield f'<form data-method="{method}" data-path="{escape(path)}" data-token="{needs_token}">'
    if example is not None:
        yield f'<textarea aria-label="Body of {escape(path)}" rows="{example.count(chr(10)) + 2}" spellcheck="false">'
        yield f"{escape(example)}</textarea>"
    yield "<button>Send</button><pre><output></output></pre></form></details>"


def _fields(schema: Document) -> Iterator[str]:
    if not schema.get("properties"):
        return
    required = schema.get("required", ())
    yield "<table><thead><tr><th>Field</th><th>Type</th><th>Meaning</th></tr></thead><tbody>"
    for name, field in schema["properties"].items():
        notes = [escape(field["description"])] if "description" in field else []
        if name in required:
            notes.append("Required.")
        elif "default" in field:
            notes.append(f"Default <code>{escape(json.dumps(field['default']))}</code>.")
        yield f"<tr><td><code>{escape(name)}</code></td><td>{_type(field)}</td><td>{' '.join(notes)}</td></tr>"
    yield "</tbody></table>"


def _problems(document: Document) -> Iterator[str]:
    yield '<section id="problems"><h2>problems</h2><p>Every error has this shape; programs read <code>code</code>.</p>'
    yield from _fields(document["components"]["schemas"]["Problem"])
    yield "<table><thead><tr><th>Code</th><th>Meaning</th></tr></thead><tbody>"
    for code, response in document["components"]["responses"].items():
        yield f"<tr><td><code>{escape(code)}</code></td><td>{escape(response['description'])}</td></tr>"
    yield "</tbody></table></section>"


def _types(document: Document) -> Iterator[str]:
    yield '<section id="types"><h2>types</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield f'<article id="type-{escape(name)}"><h3>{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        if "enum" in schema:
            yield f"<p>{_type(schema)}</p>"
        yield from _fields(schema)
        yield "</article>"
    yield "</section>"


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, as HTML."""
    if "$ref" in schema:
        name = escape(_name(schema))
        return f'<a href="#type-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    kind = schema.get("format") or schema.get("type") or "any JSON"
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    limits += [FORMS[schema["pattern"]]] if schema.get("pattern") in FORMS else []
    return escape(kind) + (f' <span class="note">({escape(", ".join(limits))})</span>' if limits else "")


_LIMITS: Final = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "length from",
    "maxLength": "length to",
    "maxProperties": "entries to",
}


def _name(schema: Document) -> str:
    return str(schema["$ref"]).rpartition("/")[2]
