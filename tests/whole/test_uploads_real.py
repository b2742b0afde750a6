"""Files that come with messages, through a real core and a server that looks like a provider's: what the model is told of them."""

import base64
import json
from typing import Any

import pytest
from process import Box, Core, a_box  # noqa: F401
from test_remote_end_to_end import HOOT, asked_for, remote_box
from test_uploads import PNG

MAIL = b"From: bob@example.org\r\nSubject: Peas\r\nContent-Type: text/plain\r\n\r\nThe peas are ripe.\r\n"


def sent(core: Core, name: str, data: bytes) -> dict[str, Any]:
    with core.client() as client:
        client.call("ingest.piece", {"key": "k", "data": base64.b64encode(data).decode()})
        kept: dict[str, Any] = client.call("upload.keep", {"key": "k", "name": name})
    return kept


@pytest.mark.covers("A-180")
def test_a_model_that_sees_pictures_is_shown_them_any_other_is_told_and_documents_are_read(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        text = box.home.config.read_text()
        box.home.config.write_text(text.replace('key = "sk-a-', 'images = true\nkey = "sk-a-'))
        wires["a"].answers, wires["b"].answers = [HOOT], [HOOT]
        core = box.serve()
        owl, peas = sent(core, "owl.png", PNG), sent(core, "../peas.eml", MAIL)
        assert (owl["is_image"], owl["note"], peas["path"]) == (True, "", "/work/uploads/peas.eml")
        told = core.call("message.send", text="What is this?", uploads=["owl.png", "peas.eml"])
        asked = json.dumps(asked_for(wires["a"])[-1])
        assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in asked
        assert "The peas are ripe." in asked and "/work/uploads/owl.png" in asked
        [event] = [one for one in core.call("thread.view", id=told["run"])["events"] if one["role"] == "user"]
        assert event["input"]["own"] == len("What is this?") and event["content"].startswith("What is this?\n\n[file owl.png")
        core.call("run.config", run=told["run"], settings={"model": "b/m"})
        core.call("message.send", text="And now?", thread=told["run"])
        asked = json.dumps(asked_for(wires["b"])[-1])
        assert base64.b64encode(PNG).decode() not in asked
        assert "[picture owl.png, image/png, 1 kB: this model cannot see it]" in asked
