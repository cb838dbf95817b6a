"""The parts of prompts, kept once and compressed."""

import zlib
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.job_rows import JobRows

SENTENCE = "The dip comes from the maintenance window, and nothing was lost. Das weiß auch 東京. "


@pytest.mark.parametrize("length", [0, 1, 255, 256, 511, 4_095, 4_096, 40_000, 400_000])
def test_a_text_of_any_length_comes_back_as_it_was(tmp_path: Path, length: int) -> None:
    rows = JobRows.at(tmp_path)
    text = (SENTENCE * (length // len(SENTENCE) + 1))[:length]
    with closing(rows.store), rows.store.begin() as tx:
        digest = tx.llm.prompts.store_text(text)
        assert tx.llm.prompts.read_text(digest) == text
        (body,) = tx._link.connection.exec_driver_sql(f"SELECT body FROM prompt_parts WHERE digest = '{digest}'").one()
        assert len(body) <= len(zlib.compress(text.encode(), 6)) * 1.05 + 10
