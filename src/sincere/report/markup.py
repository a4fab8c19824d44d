"""Builds HTML; every text is escaped unless it was built here."""

from __future__ import annotations

import html
import json
from typing import Any

VOID = ("meta", "br", "img")


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


Content = str | Html | None


def escape(text: str) -> Html:
    """Return text as escaped markup; lone surrogates, as in undecodable paths, become question marks."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(text.encode("utf-8", "replace").decode()))


def tag(name: str, /, *children: Content, **attributes: str | bool | None) -> Html:
    """Return an element. `class_` is written as class and `_` as `-`; attributes that are None or False are left out.

    Example:
        >>> tag("td", "a < b", class_="number")
        '<td class="number">a &lt; b</td>'
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        written += f" {attribute}" if value is True else f' {attribute}="{escape(value)}"'
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Content) -> Html:
    """Concatenate markup and texts."""
    return Html("".join(escape(child) for child in children if child is not None))


def with_code(text: str) -> Html:
    """Return text with what stands in backticks as code.

    Example:
        >>> with_code("see `a < b`")
        'see <code>a &lt; b</code>'
    """
    *pairs, rest = [escape(part) for part in text.split("`")]
    if len(pairs) % 2:
        return escape(text)
    return join(*(tag("code", part) if i % 2 else part for i, part in enumerate(pairs)), rest)


def data_block(identifier: str, content: Any) -> Html:
    """Return JSON for the page's scripts; nothing in it can end the element or start another."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(text), type="application/json", id=identifier)
