"""Any text becomes markup that shows it."""

from __future__ import annotations

import json

import pytest

from sincere.report.markup import Html, data_block, escape, join, tag, with_code


def test_texts_are_escaped_and_markup_is_not() -> None:
    inner = tag("b", "1 < 2 & 3")
    assert inner == "<b>1 &lt; 2 &amp; 3</b>"
    assert tag("p", inner, None, " > ") == "<p><b>1 &lt; 2 &amp; 3</b> &gt; </p>"
    assert join("<", Html("<br>")) == "&lt;<br>"


def test_code_in_texts() -> None:
    assert with_code("run `a < b` or `c`.") == "run <code>a &lt; b</code> or <code>c</code>."
    assert with_code("a `lone <b>") == "a `lone &lt;b&gt;"
    assert with_code("none") == "none"


def test_attributes() -> None:
    made = tag("div", title='"><script>', class_="a b", data_x=None, hidden=True, aria_label="x", inert=False)
    assert made == '<div title="&quot;&gt;&lt;script&gt;" class="a b" hidden aria-label="x"></div>'
    assert tag("meta", name="viewport") == '<meta name="viewport">'


def test_a_lone_surrogate_can_be_written() -> None:
    assert escape("a\udcffb").encode() == b"a?b"


def test_data_cannot_end_its_element() -> None:
    content = {"<!--": "</script><script>alert(1)</script>", "é & \u2028": [1.5, None]}
    block = data_block("x", content)
    start, end = '<script type="application/json" id="x">', "</script>"
    assert block.startswith(start)
    text = block.removeprefix(start).removesuffix(end)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == content
    with pytest.raises(ValueError, match="JSON compliant"):
        data_block("x", float("nan"))
