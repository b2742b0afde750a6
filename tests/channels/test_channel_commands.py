"""`owlbox channel`: a person switches a channel on and off beside a running core, and tries it without one."""

from process import Box, a_box, until  # noqa: F401
from slack_server import workspace


def state(box: Box) -> str:
    return str(next(one for one in box.json("channel", "list") if one["name"] == "slack")["state"])


def test_a_channel_is_switched_tried_and_shown_with_its_problem(box: Box) -> None:
    with workspace() as space:
        for key, value in (("api_url", space.url), ("bot_token", "xoxb"), ("app_token", "wrong")):
            assert box.run("config", "set", f"channels.slack.{key}", value).returncode == 0
        tried = box.run("channel", "test", "slack")
        assert tried.returncode != 0 and "does not take the app_token: invalid_auth" in tried.stderr
        assert box.run("config", "set", "channels.slack.app_token", "xapp").returncode == 0
        assert "the bot is owl in Birds" in box.run("channel", "test", "slack").stdout, "while it is off, and without a core"
        assert state(box) == "off"
        assert "when a core runs" in box.run("channel", "enable", "slack").stdout and not space.sockets
        box.serve()
        until(lambda: state(box) == "connected", "it is connected")
        assert "already" in box.run("channel", "enable", "slack").stdout
        assert "slack is off" in box.run("channel", "disable", "slack").stdout and state(box) == "off"
        assert "slack is on" in box.run("channel", "enable", "slack").stdout, "beside a running core"
        until(lambda: state(box) == "connected", "it is connected again")
        space.stop()
        until(lambda: state(box) == "failing", "the loss is shown")
        assert "slack" in box.run("status").stdout and "refused" in box.run("channel", "list").stdout
        shown = 'owlbox_channel_connected{channel="slack"}'
        assert f"{shown} 0" in box.run("metrics").stdout
        space.start()
        until(lambda: state(box) == "connected", "it comes back by itself")
        assert f"{shown} 1" in box.run("metrics").stdout
        box.run("channel", "disable", "slack")
        assert shown not in box.run("metrics").stdout
    assert box.run("channel", "enable", "pigeon").returncode == 3
