"""Which skills there are, when some come with Maestro, some are the operator's own, and some files are broken."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from maestro.domain.skills.files import SkillFile, read_skill
from maestro.domain.skills.front_matter import InvalidSkill


@dataclass(frozen=True)
class FoundFile:
    """A file with a skill, or with what is wrong instead; ``source`` is its path."""

    source: str
    shipped: bool
    skill: SkillFile | None = None
    problem: str = ""

    @classmethod
    def read(cls, source: str, data: bytes, *, shipped: bool) -> "FoundFile":
        """Read a file."""
        try:
            return cls(source, shipped, skill=read_skill(data))
        except InvalidSkill as error:
            return cls(source, shipped, problem=str(error))


@dataclass(frozen=True)
class Known:
    """A skill as it was when its file could be read."""

    slug: str
    source: str


@dataclass(frozen=True)
class Library:
    """The skills of all files: those to take from their file, by slug, and those to leave as they were known.

    ``problems`` are pairs of a file and a sentence.
    """

    taken: dict[str, FoundFile] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    problems: tuple[tuple[str, str], ...] = ()


def arrange(files: Iterable[FoundFile], known: Sequence[Known]) -> Library:
    """Arrange files into a library.

    An own skill replaces one that was shipped with the same slug; of two own ones the first by path stays. What a
    broken file said before it broke stays as it was known.
    """
    ordered = sorted(files, key=lambda file: file.source)
    taken: dict[str, FoundFile] = {}
    problems: list[tuple[str, str]] = []
    for file in ordered:
        problems += ((file.source, problem) for problem in _problems(file, taken))
        if file.skill is not None and not file.shipped:
            taken.setdefault(file.skill.slug, file)
    broken = {file.source for file in ordered if file.skill is None}
    kept = frozenset(before.slug for before in known if before.source in broken and before.slug not in taken)
    for file in ordered:
        if file.skill is not None and file.skill.slug not in kept:
            taken.setdefault(file.skill.slug, file)
    return Library(taken, kept, tuple(problems))


def _problems(file: FoundFile, taken: dict[str, FoundFile]) -> Iterator[str]:
    if file.skill is None:
        yield file.problem
        return
    yield from file.skill.problems
    first = taken.get(file.skill.slug)
    if first is not None and not file.shipped:
        yield f"its slug {file.skill.slug} is that of {first.source} already; give it another"
