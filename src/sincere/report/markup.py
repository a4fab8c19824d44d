"""HTML in which every text is escaped unless it was made here."""

from __future__ import annotations

import html
import json
from typing import Any

VOID = ("meta", "br")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Html | None


def escape(text: str) -> Html:
    """Return text as markup that shows it; halves of characters, as in undecodable paths, become question marks."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(text.encode("utf-8", "replace").decode()))


def tag(name: str, /, *children: Content, **attributes: str | bool | None) -> Html:
    """Return an element. `class_` stands for class and `_` for `-`; attributes that are None or False are left out.

    Example:
        >>> tag("td", "a < b", class_="figure")
        '<td class="figure">a &lt; b</td>'
    """
    shown = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        shown += f" {attribute}" if value is True else f' {attribute}="{escape(value)}"'
    if name in VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Content) -> Html:
    """Return markup and texts one after the other."""
    return Html("".join(escape(child) for child in children if child is not None))


def data_block(identifier: str, content: Any) -> Html:
    """Return JSON for the page's scripts; nothing in it can end the element or start another."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(text), type="application/json", id=identifier)
