"""Files of skills."""

from pathlib import Path


def skill_text(slug: str, *keywords: str, body: str = "Boil water first.", more: str = "") -> str:
    """Return the text of a skill with these keywords; ``more`` are further lines of its front matter."""
    return (
        f"---\nslug: {slug}\nname: {slug.title()}\ntriggers: {{keywords: [{', '.join(keywords)}]}}\n{more}---\n{body}\n"
    )


def write_skill(folder: Path, name: str, text: str) -> Path:
    """Write a file, with the folders above it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
