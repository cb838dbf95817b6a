"""What ``maestro init`` decides."""

import pytest

from maestro.installation.initial import Discovery, FileAction, choose_model, compose_document, decide_action
from maestro.settings import survey_settings
from tests.unit.settings.configured import write


@pytest.mark.parametrize(
    ("present", "same", "force", "only_prepare", "action"),
    [
        (False, False, False, False, FileAction.WRITTEN),
        (False, False, True, True, FileAction.WRITTEN),
        (True, True, False, False, FileAction.UNCHANGED),
        (True, True, True, False, FileAction.UNCHANGED),
        (True, False, True, True, FileAction.REPLACED),
        (True, False, False, True, FileAction.KEPT),
        (True, False, False, False, None),
    ],
)
def test_only_force_replaces_a_file(
    present: bool, same: bool, force: bool, only_prepare: bool, action: FileAction | None
) -> None:
    assert decide_action(present, same, force, only_prepare) is action


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        ((), None),
        (("nomic-embed-text:latest",), None),
        (("nomic-embed-text:latest", "llama3:8b", "mistral"), "llama3:8b"),
        (("llama3:8b", "qwen2.5-coder:7b"), "qwen2.5-coder:7b"),
    ],
)
def test_the_default_model_is_preferred_and_one_for_embeddings_never_talks(
    installed: tuple[str, ...], chosen: str | None
) -> None:
    assert choose_model(installed) == chosen


def test_where_data_and_cluster_are_is_taken_over(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    temporal = {"address": "old:7233", "namespace": "ours", "apiKey": "env:CLUSTER_KEY"}
    older = {"dataDir": "precious", "temporal": temporal, "webui": {"port": 1}}
    options = {"temporal.address": "new:7233"}
    surveyed = survey_settings(write(older), {"CLUSTER_KEY": "secret"}, options)
    assert compose_document(surveyed, Discovery(), options) == {
        "dataDir": "precious",
        "temporal": {**temporal, "address": "new:7233"},
        "agents": [{"slug": "conductor", "role": "conductor"}],
        "llm": {"accounts": []},
    }
