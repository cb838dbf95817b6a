"""A provider may cut a character in half: what no store takes costs neither a second payment nor the answer."""

from pathlib import Path

from tests.support.instance import running_instance


async def test_an_answer_with_half_a_character_is_paid_once_and_arrives(tmp_path: Path) -> None:
    async with running_instance(tmp_path) as maestro:
        maestro.llm.script(match="half", calls=[("web\ud83d", {"query": "a\ud83d"})], rounds=0)
        maestro.llm.script(match="half", reply="broken \ud83d and a \0 end", rounds=1)
        async with maestro.client("half") as person:
            assert await person.ask("half") == "broken \ufffd and a  end"
        assert len(maestro.llm.matching("half")) == 2
