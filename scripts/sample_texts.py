"""Draw docstrings, comments, messages and names of the product at random, for a reader who judges how clear they are.

``python scripts/sample_texts.py --seed 7`` prints sixty texts, a quarter of each kind, with their places. The same seed
and the same code give the same texts. A text is clear when a platform engineer who never saw this project understands
it at first reading (docs/glossary.md).
"""

import argparse
import ast
import random
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("maestro", "connectors", "activities", "workflows", "temporal", "api")
FEWEST_WORDS = 4
SAMPLE = 60

Text = tuple[str, int, str]


def qualified_names(tree: ast.AST, prefix: str = "") -> dict[ast.AST, str]:
    """Return the names of classes and functions; the name of a method begins with its class, as readers meet it."""
    found: dict[ast.AST, str] = {}
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node] = f"{prefix}{node.name}"
            inner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        found |= qualified_names(node, inner)
    return found


def docstrings(path: str, tree: ast.Module) -> Iterator[Text]:
    """Yield each docstring with the name of what it describes."""
    names = qualified_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield path, getattr(node, "lineno", 1), f"{names.get(node, 'module')}: {text}"


def comments(path: str) -> Iterator[Text]:
    """Yield each comment of at least four words; consecutive lines are one comment."""
    with (ROOT / path).open("rb") as file:
        found = [(t.start[0], t.string) for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT]
    joined: list[tuple[int, int, str]] = []
    for line, text in found:
        if joined and joined[-1][1] == line - 1:
            first, _, before = joined.pop()
            joined.append((first, line, f"{before} {text.lstrip('# ')}"))
        else:
            joined.append((line, line, text))
    yield from ((path, first, text) for first, _, text in joined if len(text.split()) > FEWEST_WORDS)


def messages(path: str, tree: ast.Module) -> Iterator[Text]:
    """Yield each text of at least four words that a call is given: errors, log lines, notices, help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
                text = ast.unparse(value) if isinstance(value, ast.Constant | ast.JoinedStr) else ""
                if len(text.split()) >= FEWEST_WORDS:
                    yield path, value.lineno, text


def names(path: str, tree: ast.Module) -> Iterator[Text]:
    """Yield the head of each class and function."""
    for node, name in qualified_names(tree).items():
        if isinstance(node, ast.ClassDef):
            yield path, node.lineno, f"class {name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            yield path, node.lineno, f"def {name}({ast.unparse(node.args)}){returns}"


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description="Draw texts of the product at random.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=SAMPLE)
    options = parser.parse_args()
    paths = sorted(path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    trees = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in paths}
    kinds = {
        "docstring": [text for path, tree in trees.items() for text in docstrings(path, tree)],
        "comment": [text for path in paths for text in comments(path)],
        "message": [text for path, tree in trees.items() for text in messages(path, tree)],
        "name": [text for path, tree in trees.items() for text in names(path, tree)],
    }
    draw = random.Random(options.seed)  # noqa: S311 - it draws texts, not secrets
    for kind, texts in kinds.items():
        print(f"\n{kind} ({len(texts)} in all)")
        for path, line, text in draw.sample(texts, options.count // len(kinds)):
            print(f"* {path}:{line}\n  {text.replace(chr(10), chr(10) + '  ')}")


if __name__ == "__main__":
    main()
