"""An HTML document as one file: style, scripts and pictures inside, and no network requests."""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sincere.report.markup import Content, Html, join, tag

MOST_PNG_PIXELS = 1_000_000  # up to this size a picture is a lossless PNG, above a JPEG
JPEG_QUALITY = 85


def document(title: str, *content: Content, scripts: Sequence[str] = ()) -> str:
    """Return a page with the style of the report; `scripts` run at its end."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(asset("page.css"))),
    )
    body = tag("body", *content, *(tag("script", Html(script)) for script in scripts))
    return join(Html("<!doctype html>\n"), tag("html", head, body, lang="en"), Html("\n"))


def asset(name: str) -> str:
    """Return the text of a file in assets/."""
    return (files("sincere.report") / "assets" / name).read_text(encoding="utf-8")


def data_url(pixels: NDArray[np.uint8], *, most_png_pixels: int = MOST_PNG_PIXELS, quality: int = JPEG_QUALITY) -> str:
    """Return a picture (h, w, c) as an address that holds it: a PNG, or above some size a JPEG."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    lossless = image.width * image.height <= most_png_pixels
    options: dict[str, Any] = {"optimize": True} if lossless else {"quality": quality, "subsampling": 0}
    kind = "png" if lossless else "jpeg"
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def thumbnail_sheet(
    pixels: NDArray[np.uint8], *, most_png_pixels: int = MOST_PNG_PIXELS, quality: int = JPEG_QUALITY
) -> dict[str, Any]:
    """Return thumbnails (n, h, w, c) side by side in one picture, with what the page needs to cut them out."""
    n, height, width, channels = pixels.shape
    columns = math.ceil(math.sqrt(n * height / width))  # about square
    rows = math.ceil(n / columns)
    filled = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    filled[:n] = pixels
    sheet = filled.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    joined = sheet.reshape(rows * height, columns * width, channels)
    source = data_url(joined, most_png_pixels=most_png_pixels, quality=quality)
    return {"n": n, "columns": columns, "width": width, "height": height, "source": source}


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that allows these scripts only, and no network requests."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
