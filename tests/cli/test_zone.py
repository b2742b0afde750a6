"""One zone for every list: `system.timezone`, whatever zone the machine is in."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from process import Box, a_box, script

from appliance.clock import now_ms

__all__ = ["a_box"]
ZONES = {"Pacific/Kiritimati": "Pacific/Kiritimati", "+05:45": "Asia/Kathmandu"}


@pytest.mark.covers("A-178")
@pytest.mark.parametrize("zone", ZONES)
def test_lists_show_moments_in_the_zone_of_the_configuration(box: Box, zone: str) -> None:
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot."\n')
    assert box.run("config", "set", "system.timezone", zone).returncode == 0
    if zone.startswith("Pacific"):
        box.serve()  # else the commands do it in their own process
    box.run("ask", "hello")
    box.run("task", "add", "feed the owl")
    box.run("backup")
    now = datetime.fromtimestamp(now_ms() / 1000, ZoneInfo(ZONES[zone]))
    for command in (("thread", "list"), ("task", "list"), ("session", "list"), ("backup", "list")):
        assert f"{now:%Y-%m-%d %H:}" in box.run(*command).stdout, command


@pytest.mark.covers("A-178")
def test_the_box_s_own_schedules_follow_the_zone_and_others_name_theirs(box: Box) -> None:
    box.run("config", "set", "system.timezone", "Europe/Berlin")
    box.run("remind", "me tomorrow at 9 to call Ann")
    box.serve().stop()  # which makes the box's own schedules, in the zone of then
    box.run("config", "set", "system.timezone", "Pacific/Auckland")
    box.serve()
    rows = box.run("schedule", "list").stdout.splitlines()
    (care,) = [row for row in rows if "Look after the database" in row]
    assert " 03:17 " in care and care.endswith("at 03:17 every day (Pacific/Auckland)")
    (other,) = [row for row in rows if "call Ann" in row]
    assert "me to" not in other and "09:00 (Europe/Berlin)" in other
    nine = datetime.strptime(other.partition("once, on ")[2][:20], "%a %Y-%m-%d %H:%M").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    assert f"{nine.astimezone(ZoneInfo('Pacific/Auckland')):%Y-%m-%d %H:%M} " in other


@pytest.mark.parametrize("has_core", [False, True])
def test_a_zone_that_nobody_knows_is_said_and_utc_is_shown(box: Box, has_core: bool) -> None:
    box.environ["TZ"] = "Asia/Kathmandu"
    box.run("remind", "me tomorrow at 9 to call Ann")
    box.home.config.write_text('[system]\ntimezone = "Mars/Base"\n')
    core = box.serve() if has_core else None
    listed = box.run("schedule", "list")
    assert " 03:15 " in listed.stdout and listed.stderr.count("system.timezone 'Mars/Base' is not known") == 1
    assert "problem      system.timezone cannot work" in box.run("status").stdout
    assert core is None or core.stop() == 0
