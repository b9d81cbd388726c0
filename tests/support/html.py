"""Pages of HTML, read as a browser without eyes would."""

from html.parser import HTMLParser

VOID = {"meta", "br", "input", "link"}


class Page(HTMLParser):
    """The elements of a page, their attributes, and its text; complains of elements that are not closed."""

    def __init__(self, path):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open, f"{path}: {self.open} stay open"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def assert_whole(path):
    """A page without anything from elsewhere, that a screen reader can make sense of."""
    page = Page(path)
    for tag, attributes in page.elements:
        assert tag not in ("img", "link", "iframe"), f"{path} is not whole by itself"
        assert "src" not in attributes
    links = [attributes["href"] for _, attributes in page.elements if attributes.get("href")]
    dead = [href for href in links if not href.startswith("#") and not (path.parent / href).exists()]
    assert dead == [], f"{path} has links that lead nowhere"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len({*ids}), "two elements have one id"
    assert page.all("html") == [{"lang": "en"}]
    assert all("scope" in th for th in page.all("th")), "a head of a column or row says which it is"
    assert [svg for svg in page.all("svg") if not {"aria-label", "aria-hidden"} & svg.keys()] == [], (
        "pictures without words"
    )
    scrolls = [
        attributes
        for tag, attributes in page.elements
        if tag == "pre" or {"scroll", "heat", "short"} & {*attributes.get("class", "").split()}
    ]
    assert [one for one in scrolls if "tabindex" not in one or "aria-label" not in one] == [], (
        "what may scroll is out of a keyboard's reach, or without a name"
    )
    return page
