"""What mkdocs does besides: the quick start is the README, whose links begin one folder above."""

from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[1] / "README.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page."""
    if page.file.src_uri != "index.md":
        return markdown
    text = README.read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace('src="docs/', 'src="')
