"""``maestro settings``: what holds, and what is set while Maestro runs, from a terminal."""

from tests.unit.cli.conftest import Maestro

LIMIT = "chat.limits.maxMessageChars"


def test_a_key_is_set_listed_and_taken_back(maestro: Maestro) -> None:
    assert maestro("settings", "list", "--runtime").out == "Nothing was set while Maestro ran.\n"
    assert maestro("settings", "set", LIMIT, "8192").out == f"{LIMIT} is 8192 now, from runtime\n"
    assert maestro("settings", "set", "chat.scanner.scope", "memory, logs").code == 0
    _, *listed = maestro("settings", "list", "--runtime").out.splitlines()
    assert listed[0].split() == [LIMIT, "8192", "runtime", "live"]
    assert '["memory", "logs"]' in listed[1]
    assert maestro("settings", "unset", LIMIT).out == f"{LIMIT} is 4096 now, from default\n"
    everything = {one["key"]: one for one in maestro("settings", "list", "--json").json["items"]}
    assert everything[LIMIT]["origin"] == "default"
    assert "llm.accounts" not in everything, "the command does not read it"


def test_what_cannot_be_set_is_one_line(maestro: Maestro) -> None:
    for words, said in (
        ((LIMIT, "many"), f"{LIMIT}: expected a whole number"),
        ((LIMIT, "1"), f"{LIMIT}: must be at least 64"),
        (
            ("web.port", "1"),
            "web.port: this key is read only at the start; set it in maestro.json or in MAESTRO_WEB_PORT",
        ),
        (("chat.limit", "1"), "chat.limit: unknown key, did you mean chat.limits?"),
    ):
        ran = maestro("settings", "set", *words)
        assert (ran.code, ran.err.count("\n"), ran.err.startswith(f"maestro: {said}")) == (1, 1, True), ran.err


def test_another_command_works_by_what_was_set(maestro: Maestro) -> None:
    maestro("settings", "set", "pairing.expiryMinutes", "1440")
    day = maestro("pairings", "invite", "--json").json["expiresAt"]
    maestro("settings", "unset", "pairing.expiryMinutes")
    assert day > maestro("pairings", "invite", "--json").json["expiresAt"]
