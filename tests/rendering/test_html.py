"""What is shown as HTML: any text arrives as it is, and pages are well formed."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gpusched.rendering import html

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0")) | st.sampled_from(
    ["<script>x</script>", "a & b", "</td>", '" onload="', "{0}", "%s", "</style>"]
)
VOID = ("meta", "link", "br")


class Reader(HTMLParser):
    """Collects texts, and fails where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open += [tag] if tag not in VOID else []

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)


class Line:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@given(TEXT)
def test_any_text_is_shown_as_it_is(text: str) -> None:
    parts = {
        "p": html.paragraph(text),
        "h2": html.heading(text),
        "b": html.strong(text),
        "code": html.code(text),
        "pre": html.listing(text),
    }
    for tag, made in parts.items():
        read = Reader(html.fragment(made))
        assert read.tags == ["div", "style", tag]
        assert "".join(read.texts) == text
    read = Reader(html.fragment(html.folded(text, text), html.source(Line(text))))
    assert "".join(read.texts) == 4 * text
    read = Reader(html.fragment(html.table((text, html.Number(text)), [(text, html.Number(text))],
                                           title=text, marked=0)))  # fmt: skip
    assert "".join(read.texts) == 5 * text


@given(TEXT)
def test_pages_hold_any_text(text: str) -> None:
    read = Reader(html.page(text, text, html.paragraph(text)))
    assert "".join(part for part in read.texts).replace("\n", "") == 3 * text.replace("\n", "")
    assert "script" not in read.tags
    framed = Reader(html.framed(html.page(text, text), 100))
    assert framed.tags == ["iframe"]


def test_numbers_are_aligned_and_a_row_is_marked() -> None:
    made = html.table(("", ""), [("a", html.Number("1")), ("b", html.Number("2"))], marked=1)
    assert "<thead>" not in made
    assert '<tr><td>a</td><td class="number">1</td></tr>' in made
    assert '<tr class="marked"><td>b</td>' in made


def test_what_is_html_already_is_not_escaped_again() -> None:
    assert html.joined(html.code("a"), " < b") == "<code>a</code> &lt; b"
    assert html.paragraph(html.code("<")) == "<p><code>&lt;</code></p>"
