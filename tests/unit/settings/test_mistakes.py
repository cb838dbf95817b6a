"""How mistakes in the configuration file are told."""

from pathlib import Path

import pytest

from maestro.domain.errors import ConfigurationError
from maestro.settings import load
from maestro.settings.keys import KEYS
from maestro.settings.problems import LATER
from tests.unit.settings.configured import SECRET, loaded, problem, problems

NOT_YET = "this release of Maestro does not have it yet; leave it out until the one that does"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"webui": {"prot": 1}}, "webui.prot: unknown key, did you mean webui.port?"),
        ({"temporal": {"encryptionKey": ""}}, f"temporal.encryptionKey: {NOT_YET}"),
        ({"jobs": {"max_attempts": 1}}, "jobs.max_attempts: unknown key, did you mean jobs.maxAttempts?"),
        ({"password": SECRET}, "password: unknown key, did you mean webui.password?"),
        ({"xyzzy": {"a": SECRET}}, "xyzzy: unknown key; docs/configuration.md lists all keys"),
        ({"webui": {"port": "8080"}}, "webui.port: expected a whole number"),
        ({"webui": {"port": True}}, "webui.port: expected a whole number"),
        ({"webui": {"port": 0}}, "webui.port: must be at least 1"),
        ({"jobs": {"maxPending": 10**9}}, "jobs.maxPending: must be at most 10000000"),
        ({"webui": {"enabled": 1}}, "webui.enabled: expected true or false"),
        ({"webui": {"password": 1234}}, "webui.password: expected a text in quotes"),
        ({"webui": 8080}, "webui: expected an object {...}"),
        ({"agents": {"slug": "ada"}}, "agents: expected a list [...]"),
        ({"agents": ["ada"]}, "agents[0]: expected an object {...}"),
        ({"agents": [{"name": "Ada"}]}, "agents[0].slug: is missing; add it"),
        ({"dataDir": ""}, "dataDir: expected a folder; leave the key out for the default"),
        ({"logs": {"level": None}}, "logs.level: expected 'debug', 'info', 'warning' or 'error'"),
        ('{"jobs": {"drainSeconds": NaN}}', "jobs.drainSeconds: expected a number"),
        ('{"jobs": {"drainSeconds": 1e999}}', "jobs.drainSeconds: expected a number"),
        ('{"web": {}, "web": {}}', "the key web occurs twice in one object; remove one"),
        ('{\n  "web": }', "line 2, column 10: the file is not JSON (Expecting value); correct it there"),
        ("", "line 1, column 1: the file is not JSON (Expecting value); correct it there"),
        ("[]", "expected an object {...} around all settings"),
        ('{"jobs": {"maxPending": ' + "1" * 5000 + "}}", "a number is too long; shorten it"),
        ('{"\\ud800": 1}', "a text is not UTF-8, or the configuration is nested too deeply; correct it"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_its_fix(tree: object, expected: str) -> None:
    assert problem(tree) == f"maestro.json: {expected}"


def test_what_exists_is_not_called_a_thing_of_a_later_release() -> None:
    assert not [key for key in KEYS if key.startswith(LATER)]


def test_all_mistakes_are_told_at_once() -> None:
    tree = {
        "webui": {"prot": 1, "port": SECRET},
        "temporal": {"apiKey": "env:GONE"},
        "agents": [{"slug": "Ada"}],
        "llm": {"accounts": [{"name": "a", "provider": "x"}, {"name": "b", "provider": "openai", "type": SECRET}]},
    }
    found = problems(tree, {"MAESTRO_WEB_PORT": "x", "MAESTRO_WEBB_PORT": "1"})
    named = ("webui.prot", "webui.port", "temporal.apiKey", "agents[0].slug", "llm.accounts[0]", "llm.accounts[1].type")
    for key in (*named, "MAESTRO_WEB_PORT", "MAESTRO_WEBB_PORT"):
        assert [line for line in found if f"{key}: " in line], key
    assert len(found) == 8


def test_a_file_nested_without_end_is_refused() -> None:
    for depth in (300, 900, 100_000):
        assert "nested too deeply" in problem('{"a":' * depth + "1" + "}" * depth)


def test_a_file_that_cannot_be_read_is_named() -> None:
    Path("maestro.json").mkdir()
    with pytest.raises(ConfigurationError, match=r"maestro\.json cannot be read \(Is a directory\)"):
        load(None, {}, {})
    Path("latin.json").write_bytes(b'{"dataDir": "\xe4"}')
    with pytest.raises(ConfigurationError, match=r"latin\.json is not a text in UTF-8"):
        load(Path("latin.json"), {}, {})


def test_the_error_is_ours_and_hides_the_one_below() -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded({"web": {"port": SECRET}})
    assert refused.value.__cause__ is None
    assert SECRET not in repr(refused.value.__context__)
