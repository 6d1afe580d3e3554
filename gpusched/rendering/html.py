"""HTML of everything that is shown; text that is not HTML already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from markupsafe import Markup, escape


class Line(Protocol):
    """A line of a program, which is its place when it is made text."""

    @property
    def text(self) -> str:
        """What stands there."""


class Number(str):
    """A cell of a table that is aligned to the right."""

    __slots__ = ()


def joined(*parts: str) -> Markup:
    """Return parts one after the other.

    Examples
    --------
    >>> from gpusched.rendering.html import code, joined
    >>> joined("a < b: ", code("c"))
    Markup('a &lt; b: <code>c</code>')
    """
    return Markup("").join(parts)


def paragraph(content: str, kind: str = "") -> Markup:
    """Return a paragraph, of a class of the style sheets if ``kind`` is given."""
    return Markup("<p{}>{}</p>").format(_kind(kind), content)


def heading(content: str) -> Markup:
    """Return the title of a section."""
    return Markup("<h2>{}</h2>").format(content)


def strong(content: str) -> Markup:
    """Return what is to be seen first."""
    return Markup("<b>{}</b>").format(content)


def code(content: str) -> Markup:
    """Return a piece of a program within a line."""
    return Markup("<code>{}</code>").format(content)


def listing(content: str) -> Markup:
    """Return lines of a program."""
    return Markup("<pre>{}</pre>").format(content)


def source(line: Line | None) -> Markup:
    """Return a line of a program below its place; nothing for None."""
    if line is None:
        return Markup("")
    return Markup("{}<br>{}").format(str(line), code(line.text))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], title: str = "",
          marked: int | None = None) -> Markup:  # fmt: skip
    """Return a table.

    Parameters
    ----------
    head
        Titles of the columns. None at all if all are empty.
    rows
        Their cells: text, HTML or `Number`.
    title
        What is written above it.
    marked
        The row, counted from 0, that is to be seen first.

    Examples
    --------
    >>> from gpusched.rendering.html import Number, table
    >>> table(("name", Number("n")), [("a&b", Number("2"))])
    Markup('<table><thead><tr><th>name</th><th class="number">n</th></tr></thead><tbody><tr><td>a&amp;b</td><td class="number">2</td></tr></tbody></table>')
    """  # noqa: E501
    head = tuple(head)
    titles = Markup("<thead>{}</thead>").format(_row("th", head)) if any(head) else ""
    body = joined(*(_row("td", row, number == marked) for number, row in enumerate(rows)))
    caption = Markup("<caption>{}</caption>").format(title) if title else ""
    return Markup("<table>{}{}<tbody>{}</tbody></table>").format(caption, titles, body)


def _row(tag: str, cells: Iterable[str], marked: bool = False) -> Markup:
    made = (
        Markup("<{0}{1}>{2}</{0}>").format(
            tag, _kind("number" if isinstance(cell, Number) else ""), cell
        )
        for cell in cells
    )
    return Markup("<tr{}>{}</tr>").format(_kind("marked" if marked else ""), joined(*made))


def _kind(name: str) -> Markup:
    return Markup(' class="{}"').format(name) if name else Markup("")


def folded(title: str, content: str, unfolded: bool = False) -> Markup:
    """Return what is shown when its title is clicked, or at once if ``unfolded``."""
    start = Markup("<details open>" if unfolded else "<details>")
    return Markup("{}<summary>{}</summary>{}</details>").format(start, title, content)


def fragment(*parts: str) -> str:
    """Return parts as notebooks show them, with their style."""
    return str(
        Markup('<div class="gpusched"><style>{}</style>{}</div>').format(
            _file("parts.css"), joined(*parts)
        )
    )


def page(title: str, *parts: str, style: str = "", script: str = "") -> str:
    """Return parts as a page that needs no other file.

    Parameters
    ----------
    title
        Its title, in the browser's bar.
    parts
        What it shows.
    style, script
        A style sheet and a program of its own, which are not escaped.
    """
    styles = Markup("\n").join([_file("page.css"), _file("parts.css"), Markup(style)])
    return str(
        Markup(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
            '<title>{}</title><style>\n{}</style></head><body class="gpusched">\n{}\n{}'
            "</body></html>\n"
        ).format(title, styles, Markup("\n").join(parts), _script(script))
    )


def _script(text: str) -> Markup:
    return Markup("<script>\n{}</script>").format(Markup(text)) if text else Markup("")


def framed(whole: str, height: int) -> str:
    """Return a page in a frame of its own, as notebooks show pages that have a program."""
    return (
        f'<iframe srcdoc="{escape(str(whole))}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def _file(name: str) -> Markup:
    return Markup((Path(__file__).parent / name).read_text(encoding="utf-8"))
