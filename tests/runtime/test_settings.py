"""The keys of containment: what one call may use, how long it may take, and what is switched off."""

import pytest

from appliance.runtime import config, settings
from appliance.runtime.config_keys import About, about
from appliance.runtime.settings import Config
from appliance.runtime.tool_settings import Bounds, SandboxSettings, ToolSettings, WebSearch, bounds_of
from appliance.web.fetch import FetchCaps


@pytest.mark.covers("A-069")
def test_limits_of_a_call_by_default():
    found = bounds_of(SandboxSettings(), "exec", "shell")
    assert (found.cpus, found.memory_mb, found.disk_mb, found.pids) == (1.0, 512, 1024, 64) and found == SandboxSettings()


@pytest.mark.covers("A-070")
@pytest.mark.parametrize(
    ("tool", "group", "limits"),
    [
        ("read_file", "files", (0.1, 64, 10, 30)),
        ("grep", "files", (0.2, 128, 20, 60)),
        ("find", "files", (0.2, 128, 20, 60)),
        ("fetch_url", "web", (0.2, 128, 10, 30)),
        ("web_search", "web", (0.2, 128, 10, 30)),
    ],
)
def test_limits_of_single_tools(tool, group, limits):
    found = bounds_of(SandboxSettings(), tool, group)
    assert (found.cpus, found.memory_mb, found.pids, ToolSettings().deadline_of(tool, group)) == limits


@pytest.mark.covers("A-069")
def test_role_tool_and_group_override_key_by_key():
    sandbox = SandboxSettings(roles={"coder": Bounds(memory_mb=2048, cpus=2)})
    found = bounds_of(sandbox, "grep", "files", "coder")
    assert (found.cpus, found.memory_mb, found.disk_mb, found.pids) == (0.2, 128, 1024, 20)
    assert bounds_of(sandbox, "exec", "shell", "coder").memory_mb == 2048
    assert bounds_of(sandbox, "other", "none", "chat") == sandbox


@pytest.mark.covers("A-071")
@pytest.mark.parametrize(("tool", "seconds"), [("exec", 60), ("web_search", 30), ("fetch_url", 30), ("remember", 60)])
def test_default_deadlines(tool, seconds):
    assert ToolSettings().deadline_of(tool, "") == seconds


@pytest.mark.covers("A-071")
def test_deadline_goes_by_what_is_said_most_exactly():
    tools = ToolSettings(deadline_s=5, deadlines_s={"exec": 60.0, "files": 30.0})
    assert [
        tools.deadline_of(*given) for given in (("exec", "files", 9.0), ("read", "files", 9.0), ("read", "files"), ("x", "y"))
    ] == [60, 9, 30, 5]
    assert (Config().agents["researcher"].timeout_s, Config().agents["coder"].timeout_s) == (600, 300)


@pytest.mark.covers("S-085")
def test_switches_name_tools_and_groups():
    assert ToolSettings().switched_off() == {"web_search"}
    assert ToolSettings(web_search=WebSearch(enabled=True)).switched_off() == set()
    assert "search_history" in ToolSettings(search_history=False).switched_off()
    off = ToolSettings(
        shell=False, files=False, fetch_url=False, disabled=("think",), web_search=WebSearch(enabled=True)
    ).switched_off()
    assert off == {"shell", "exec", "sh", "env", "files", "fetch_url", "think"}


@pytest.mark.covers("A-072", "A-206")
def test_defaults_of_containment():
    found = Config()
    web, search = found.tools.web, found.tools.web_search
    assert (found.sandbox.max_concurrent, found.runs.retention_days) == (10, 31)
    assert (web.requests_per_minute, FetchCaps().max_redirects, FetchCaps().max_bytes, web.timeout_s) == (60, 5, 1_048_576, 20)
    assert (search.provider, search.enabled) == ("searxng", False)


@pytest.mark.covers("S-084")
def test_keys_of_containment_can_be_set(home):
    home.config.write_text(
        '[sandbox.roles.coder]\npids = 200\n[tools.web]\nprivate_networks = ["10.0.0.0/8"]\n'
        '[tools.web_search]\nenabled = true\nprovider = "brave"\nkey = "secret:brave"\n'
    )
    found = config.load(home, {"OWLBOX__SANDBOX__ROLES__CODER__MEMORY_MB": "70"})
    assert found.sandbox.roles["coder"] == Bounds(memory_mb=70, pids=200) and found.tools.web_search.provider == "brave"


def test_names_moved_out_of_settings_are_found_there_too():
    assert settings.DAY_MS == 86_400_000 and settings.SandboxSettings is SandboxSettings
    assert isinstance(about(next(iter(SandboxSettings.__dataclass_fields__.values()))), About)
