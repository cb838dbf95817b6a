"""CSV: one line for each row, and nothing that a spreadsheet would compute."""

import csv
import io

import pytest

from maestro.domain.texts import csv_lines, escape_formula


def test_a_row_is_a_line_whatever_is_in_it() -> None:
    rows = [("id", "text"), ("1", 'he said "no",\nand left'), ("2", "ünïcode, 🎩"), ("3", "")]
    lines = list(csv_lines(rows))
    assert len(lines) == len(rows)
    assert all(line.endswith("\r\n") for line in lines)
    assert [tuple(row) for row in csv.reader(io.StringIO("".join(lines), newline=""))] == rows


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-cmd|' /C calc'!A0", "@here", "\tx", "\r=x", "-", "+"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert escape_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-1", "+2.5", "plain", "a=b", "", "'quoted"])
def test_plain_texts_and_numbers_stay(text: str) -> None:
    assert escape_formula(text) == text
