"""The configuration: defaults, the file, the environment, and what is refused with which words."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.errors import ConfigError
from appliance.runtime import config
from appliance.runtime.paths import Home

DOCS = Path(__file__).parents[2] / "docs/reference/configuration.md"


@pytest.fixture
def read(tmp_path):
    """Load a home whose file has this text and no other environment than the one given."""

    def read(text="", environ=None):
        (tmp_path / "owlbox.toml").write_text(text)
        return config.load(Home(tmp_path), environ or {})

    return read


@pytest.fixture
def refuse(read):
    """The ConfigError that a text and an environment end in."""

    def refuse(text="", environ=None):
        with pytest.raises(ConfigError) as caught:
            read(text, environ)
        return caught.value

    return refuse


def get(node, key):
    for step in key.split("."):
        node = node[step] if isinstance(node, dict) else getattr(node, step)
    return node


# -- defaults -------------------------------------------------------------------------------------

SEEDS = {
    "B-149": {
        "models.default": "",
        "pools.small": ("local",),
        "models.embedding": "",
        "models.embedding_dimension": 384,
        "workers.tick_interval_s": 300,
        "workers.max_tick_s": 120,
        "prompt.system_prompt_override": "",
        "workers.max_turns": 0,
        "workers.heartbeat_s": 15,
        "workers.dead_after_s": 60,
        "workers.reap_interval_s": 30,
        "workers.stopped_retention_s": 3600,
        "scheduler.min_interval_s": 60,
        "scheduler.claim_stale_s": 300,
        "system.log_level": "",
        "system.level": "info",
    },
    "R-202": {
        "budget.ceiling": 0.9,
        "budget.entry_token_limit": 512,
        "budget.token_divisor": 2,
        "runs.max_turns": 99,
        "runs.max_commands": 99,
        "runs.max_strikes": 3,
        "runs.max_cycles": 3,
        "runs.max_period": 4,
        "runs.retention_days": 31,
        "models.temperature": 0.1,
        "api.rpc_timeout_ms": 30_000,
        "llm.deadline_ms": 600_000,
        "llm.max_backoff_ms": 30_000,
        "store.mmap_mb": 0,
        "system.debug": False,
    },
    "A-259": {
        "system.timezone": "local",
        "system.admin_users": (),
        "sandbox.cpus": 1.0,
        "sandbox.memory_mb": 512,
        "sandbox.max_concurrent": 10,
        "sandbox.mounts": (),
        "orchestrator.health_interval_ms": 30_000,
        "orchestrator.health_timeout_ms": 5000,
        "orchestrator.health_failures": 3,
        "agents.assistant.max_iterations": 20,
        "agents.assistant.temperature": 0.7,
        "agents.researcher.timeout_s": 600,
        "agents.coder.timeout_s": 300,
        "agents.memory.pool": "small",
        "sessions.archival.inactivity_s": 86_400,
        "channels.slack.enabled": False,
        "skills.enabled": True,
        "scheduler.poll_ms": 60_000,
        "tools.deadline_s": 60,
        "providers.anthropic.fallback": ("openrouter",),
    },
    "S-027": {
        "sandbox.workspace": "",
        "sandbox.restrict_to_workspace": True,
        "budget.history_messages": 80,
        "heartbeat.enabled": True,
        "heartbeat.interval_minutes": 30,
        "heartbeat.active_from": "00:00",
        "heartbeat.active_until": "24:00",
        "heartbeat.timezone": "local",
        "heartbeat.pool": "",
    },
    "S-028": {
        "tools.shell": True,
        "tools.files": True,
        "tools.fetch_url": True,
        "tools.search_history": True,
        "tools.web_search.enabled": False,
        "tools.web_search.provider": "searxng",
        "delegation.spawn": False,
        "tools.mcp": {},
        "channels.matrix.enabled": False,
        "channels.email.enabled": False,
    },
    "S-029": {
        "channels.matrix.homeserver": "https://matrix.org",
        "channels.matrix.policy": "mention",
        "channels.email.imap_port": 993,
        "channels.email.smtp_port": 587,
        "channels.email.tls": True,
        "channels.email.verify": True,
        "channels.email.imap_starttls": False,
        "channels.email.smtp_starttls": True,
        "channels.email.poll_s": 60,
    },
}


def check_defaults(config: config.Config, seed: str) -> None:
    found = {key: get(config, key) for key in SEEDS[seed]}
    assert found == SEEDS[seed]


@pytest.mark.covers("B-149")
def test_defaults_of_workers_and_models(read):
    check_defaults(read(), "B-149")


@pytest.mark.covers("R-202")
def test_defaults_of_budget_and_limits(read):
    check_defaults(read(), "R-202")


@pytest.mark.covers("A-259")
def test_defaults_of_every_table(read):
    check_defaults(read(), "A-259")


@pytest.mark.covers("S-027")
def test_defaults_of_workspace_and_heartbeat(read):
    check_defaults(read(), "S-027")


@pytest.mark.covers("S-028")
def test_defaults_of_tools(read):
    check_defaults(read(), "S-028")


@pytest.mark.covers("S-029")
def test_defaults_of_matrix_and_email(read):
    check_defaults(read(), "S-029")


@pytest.mark.covers("S-027")
def test_heartbeat_has_a_prompt_by_default(read):
    assert "HEARTBEAT.md" in read().heartbeat.prompt


@pytest.mark.covers("B-150", "S-026")
def test_missing_file_gives_all_defaults(tmp_path):
    assert config.load(Home(tmp_path / "none"), {}) == config.Config()


@pytest.mark.covers("B-150", "S-026")
def test_missing_keys_keep_their_defaults(read):
    loaded = read("[models]\nthreads = 3\n[agents.coder]\ntimeout_s = 5\n")
    assert (loaded.models.threads, loaded.models.temperature) == (3, 0.1)
    assert (loaded.agents["coder"].timeout_s, loaded.agents["coder"].max_iterations) == (5, 30)


@pytest.mark.covers("A-259")
def test_one_file_holds_every_table_of_the_seed(read):
    loaded = read(
        '[system]\nadmin_users = ["ada"]\n[providers.lab]\nbase_url = "http://10.0.0.2/v1"\nfallback = ["openai"]\n'
        '[routes.big]\nprovider = "lab"\nmodel = "q"\n[pools]\nchat = ["big", "local"]\n'
        '[agents.poet]\npool = "chat"\ntemperature = 1\n'
        '[[sandbox.mounts]]\npath = "/srv"\nmode = "readwrite"\nkind = "project"\n'
    )
    assert loaded.pools == {"default": ("local",), "small": ("local",), "chat": ("big", "local")}
    assert (loaded.routes["big"].context, loaded.agents["poet"].temperature) == (0, 1.0)
    assert (loaded.providers["lab"].fallback, loaded.sandbox.mounts[0].mode) == (("openai",), "readwrite")


@pytest.mark.covers("S-030")
def test_owner_aliases_are_texts_or_scoped(read):
    aliases = read('[people]\nowner_aliases = ["ada", {address = "a@b.c", channel = "email"}]').people.owner_aliases
    assert [(alias.address, alias.channel) for alias in aliases] == [("ada", ""), ("a@b.c", "email")]


# -- the environment ------------------------------------------------------------------------------


@pytest.mark.covers("A-260", "S-031", "B-150")
@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("OWLBOX__SYSTEM__LOG_LEVEL", "debug", "system.log_level", "debug"),
        ("OWLBOX__MODELS__THREADS", "4", "models.threads", 4),
        ("OWLBOX__MODELS__LOCAL_ONLY", "off", "models.local_only", False),
        ("OWLBOX__BUDGET__CEILING", "0.5", "budget.ceiling", 0.5),
        ("OWLBOX__CHANNELS__EMAIL__IMAP_PORT", "143", "channels.email.imap_port", 143),
        ("OWLBOX__SYSTEM__ADMIN_USERS", '["ada", "bob"]', "system.admin_users", ("ada", "bob")),
        ("OWLBOX__POOLS__SMALL", '["local", "local/tiny"]', "pools.small", ("local", "local/tiny")),
        ("OWLBOX__AGENTS__WORKER__TEMPERATURE", "0.3", "agents.worker.temperature", 0.3),
        ("OWLBOX__PROVIDERS__ANTHROPIC__KEY", "${x}", "providers.anthropic.key", "${x}"),
        ("OWLBOX__TOOLS__WEB_SEARCH", '{"provider": "brave"}', "tools.web_search.provider", "brave"),
    ],
)
def test_variable_overrides_one_value(read, variable, text, key, value):
    plain = read('[system]\nlog_level = "warn"\n[providers.anthropic]\nkey = "old"')
    changed = read('[system]\nlog_level = "warn"\n[providers.anthropic]\nkey = "old"', {variable: text})
    assert get(changed, key) == value
    assert get(plain, key) != value


@pytest.mark.covers("S-031")
def test_override_leaves_neighbours_alone(read):
    loaded = read("[models]\nthreads = 3\ncontext = 2048", {"OWLBOX__MODELS__THREADS": "5"})
    assert (loaded.models.threads, loaded.models.context) == (5, 2048)


@pytest.mark.covers("A-260")
def test_single_key_wins_over_whole_table(read):
    environ = {"OWLBOX__MODELS__THREADS": "5", "OWLBOX__MODELS": '{"threads": 2, "context": 512}'}
    loaded = read("[models]\nmemory_mb = 9", environ)
    assert (loaded.models.threads, loaded.models.context, loaded.models.memory_mb) == (5, 512, 0)


def test_names_in_variables_match_any_case(read):
    loaded = read('[tools.mcp.x]\ncommand = "y"\nenv = {TOKEN = "old"}', {"OWLBOX__TOOLS__MCP__X__ENV__TOKEN": "new"})
    assert loaded.tools.mcp["x"].env == {"TOKEN": "new"}


def test_other_variables_are_not_configuration(read):
    assert read("", {"OWLBOX_HOME": "/x", "OWLBOX_SYSTEM__NAME": "y", "HOME": "/"}) == config.Config()


@pytest.mark.covers("A-260")
@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("OWLBOX__SYSTEM__ADMIN_USERS", '["ada"', "not JSON"),
        ("OWLBOX__SYSTEM__ADMIN_USERS", "ada", "not JSON"),
        ("OWLBOX__SYSTEM__ADMIN_USERS", '{"a": "b"}', "JSON array"),
        ("OWLBOX__SYSTEM__ADMIN_USERS__0", "ada", "set it as a whole: OWLBOX__SYSTEM__ADMIN_USERS"),
        ("OWLBOX__SYSTEM", "[]", "JSON object"),
        ("OWLBOX__SYSTEM", "[" * 100_000, "flat JSON"),
        ("OWLBOX__SYSTEM__DEBUG", "maybe", "true or false"),
        ("OWLBOX__MODELS__THREADS", "many", "a whole number"),
        ("OWLBOX__MODELS__THREADS", "", "a whole number"),
        ("OWLBOX__MODELS__TEMPERATURE", "hot", "a number"),
        ("OWLBOX__MODELS__TREADS", "1", "models.threads"),
        ("OWLBOX__MODEL__THREADS", "1", "models"),
        ("OWLBOX__", "1", "unknown key"),
    ],
)
def test_bad_variable_is_refused_by_name(refuse, variable, text, words):
    error = refuse("", {variable: text})
    assert error.key == variable
    assert str(error).startswith(variable) and words in str(error)


@pytest.mark.covers("A-261")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${WHO}", "ada"),
        ("the ${WHO} of ${WHO}", "the ada of ada"),
        ("${NONE:-bob}", "bob"),
        ("${WHO:-bob}", "ada"),
        ("${EMPTY:-bob}", "bob"),
        ("x${NONE:-}", "x"),
        ("x${EMPTY}", "x"),
        ("$${WHO}", "${WHO}"),
        ("$WHO costs 5$", "$WHO costs 5$"),
    ],
)
def test_placeholder_is_replaced(read, text, value):
    loaded = read(f'[sandbox]\nworkspace = "{text}"\n[system]\nadmin_users = ["{text}"]', {"WHO": "ada", "EMPTY": ""})
    assert (loaded.sandbox.workspace, loaded.system.admin_users) == (value, (value,))


@pytest.mark.covers("A-261", "R-203")
def test_unset_placeholder_names_variable_and_key(refuse):
    error = refuse('[[people.owner_aliases]]\naddress = "${NOBODY}"')
    assert error.key == "people.owner_aliases[0].address"
    assert "NOBODY" in str(error) and error.key in str(error)


def test_replaced_text_is_not_replaced_again(read):
    assert read('[channels.email]\nuser = "${A}"', {"A": "${B}", "B": "c"}).channels.email.user == "${B}"


def test_broken_placeholder_is_refused(refuse):
    assert refuse('[channels.email]\nuser = "${WHO"', {"WHO": "x"}).key == "channels.email.user"


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.covers("A-262")
@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[models]\nthreads = -1", "models.threads", "-1: must be between 0 and 256"),
        ("[budget]\nceiling = 1.5", "budget.ceiling", "1.5: must be between 0.1 and 1"),
        ("[budget]\nceiling = nan", "budget.ceiling", "a number"),
        ("[budget]\nhistory_messages = 0", "budget.history_messages", "between 1 and"),
        ("[workers]\nheartbeat_s = 0.5", "workers.heartbeat_s", "between 1 and"),
        ("[workers]\ndead_after_s = 10", "workers.dead_after_s", "more than workers.heartbeat_s (15)"),
        ("[orchestrator]\ndisk_refuse = 0.5", "orchestrator.disk_refuse", "at least orchestrator.disk_warn"),
        ("[tools.deadlines_s]\nexec = 0", "tools.deadlines_s.exec", "between 0.1 and"),
        ('[system]\nlog_level = "loud"', "system.log_level", '"silent", "error", "warn", "info", "debug"'),
        ("[sandbox.roles.exec]\nmemory_mb = 1", "sandbox.roles.exec.memory_mb", "between 16 and"),
        ("[sandbox.roles.coder]\npids = 0", "sandbox.roles.coder.pids", "between 1 and"),
        ("[runs]\nretention_days = 0", "runs.retention_days", "between 1 and"),
        ('[policy]\nmode = "lax"', "policy.mode", '"strict", "permissive", "disabled"'),
        ('[channels.matrix]\npolicy = "all"', "channels.matrix.policy", '"open", "mention", "allowlist"'),
        (
            '[providers.a]\nkind = "gemni"',
            "providers.a.kind",
            '\'gemni\': must be one of "anthropic", "gemini", "openai" (did you mean "gemini"?',
        ),
        ('[providers.a]\nkind = "smoke"', "providers.a.kind", '"openai"'),
        ('[tools.web_search]\nprovider = "google"', "tools.web_search.provider", '"searxng", "duckduckgo", "brave"'),
        ('[heartbeat]\nactive_until = "25:00"', "heartbeat.active_until", "'25:00': must be HH:MM"),
        ('[tools.mcp.a]\ntransport = "smoke"', "tools.mcp.a.transport", '"stdio", "http"'),
        ("[models]\nthreads = true", "models.threads", "True: must be a whole number"),
        ('[models]\nthreads = "4"', "models.threads", "'4': must be a whole number"),
        ("[models]\nthreads = 1.0", "models.threads", "a whole number"),
        ("[channels.email]\nuser = 5", "channels.email.user", "5: must be text"),
        ("[system]\ndebug = 1", "system.debug", "true or false"),
        ('[system]\nadmin_users = "ada"', "system.admin_users", "a list"),
        ("system = 1", "system", "must be a table"),
        ('[pools]\n"a b" = ["local"]', "pools.a b", "names have letters"),
        ('[channels.matrix]\nhomeserver = "matrix.org"', "channels.matrix.homeserver", "https://"),
    ],
)
def test_bad_value_names_key_value_and_what_is_allowed(refuse, text, key, words):
    error = refuse(text)
    assert error.key == key
    assert key in str(error) and words in str(error)


@pytest.mark.covers("A-262")
def test_bad_value_from_a_variable_names_both(refuse):
    error = refuse("", {"OWLBOX__MODELS__THREADS": "-1"})
    assert error.key == "models.threads" and "OWLBOX__MODELS__THREADS" in str(error)


def test_secret_is_not_repeated_in_an_error(refuse):
    assert "8177" not in str(refuse("[channels.email]\npassword = 8177"))


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[models]\ntreads = 1", "models.treads", "models.threads"),
        ("[model]\nthreads = 1", "model", "models"),
        ("[chanels.email]\nuser = 1", "chanels", "channels"),
        ("[channels.emial]\nuser = 1", "channels.emial", "channels.email"),
        ("[system]\nmax_strikes = 1", "system.max_strikes", "runs.max_strikes"),
        ("[agents.coder]\niterations = 1", "agents.coder.iterations", "agents.coder.max_iterations"),
        ('[[sandbox.mounts]]\npth = "/"', "sandbox.mounts[0].pth", "sandbox.mounts[0].path"),
        ("zzz = 1", "zzz", ""),
    ],
)
def test_unknown_key_names_the_nearest(refuse, text, key, nearest):
    error = refuse(text)
    assert error.key == key
    assert error.hint == (f"did you mean {nearest}?" if nearest else "owlbox config list shows every key")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[system\n", "line 1, column 8"),
        ("[system]\nname = \n", "line 2, column 8"),
        ("[system]\n\nname = [1,\n", "line 4, column 1"),
        ('a = "x', "line 1, column 7"),
    ],
)
def test_broken_toml_names_file_line_and_column(refuse, tmp_path, text, place):
    assert f"{tmp_path}/owlbox.toml, {place}: " in str(refuse(text))


def test_text_that_is_not_utf8_names_line_and_column(tmp_path):
    (tmp_path / "owlbox.toml").write_bytes(b"[system]\nname = 'gr\xfc'")
    with pytest.raises(ConfigError, match=r"owlbox.toml, line 2, column 11: not UTF-8"):
        config.load(Home(tmp_path), {})


def test_file_from_windows_is_read(tmp_path):
    (tmp_path / "owlbox.toml").write_bytes(b"\xef\xbb\xbf[models]\r\nthreads = 2\r\n")
    assert config.load(Home(tmp_path), {}).models.threads == 2


def test_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "owlbox.toml").mkdir()
    with pytest.raises(ConfigError, match="owlbox.toml: Is a directory"):
        config.load(Home(tmp_path), {})


# -- references and mandatory keys ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('[pools]\ndefault = ["big"]', "pools.default[0]", "'big': must be a route (local)"),
        ('[pools]\ndefault = ["nobody/x"]', "pools.default[0]", "provider/model"),
        ("[pools]\nsmall = []", "pools.small", "at least one route"),
        ('[models]\npool = "big"', "models.pool", "one of the pools default, small"),
        ('[agents.coder]\npool = "big"', "agents.coder.pool", "one of the pools"),
        ('[agents.coder]\nmodel = "big"', "agents.coder.model", "must be a route"),
        ('[heartbeat]\npool = "big"', "heartbeat.pool", "one of the pools"),
        ('[routes.a]\nprovider = "big"\nmodel = "m"', "routes.a.provider", "one of local, anthropic"),
        ('[providers.openai]\nfallback = ["big"]', "providers.openai.fallback[0]", "one of anthropic"),
        ('[routes.local]\nprovider = "local"\nmodel = "m"', "routes.local", "another name"),
        ('[audit]\nfile = "owlbox.db"', "audit.file", "a name that ends in .jsonl"),
        ('[[sandbox.mounts]]\npath = "srv"', "sandbox.mounts[0].path", "an absolute path"),
        ('[tools.web]\nprivate_networks = ["lan"]', "tools.web.private_networks[0]", "a network such as"),
        ('[tools]\nblocked_patterns = ["sl", " "]', "tools.blocked_patterns[1]", "a command"),
        ('[[sandbox.mounts]]\npath = "/s"\nuser = "a"\ngroup = "b"', "sandbox.mounts[0]", "not both"),
    ],
)
def test_reference_to_nothing_names_the_offender(refuse, text, key, words):
    error = refuse(text)
    assert error.key == key
    assert key in str(error) and words in str(error)


MATRIX = '[channels.matrix]\nenabled = true\nuser = "@o:m.org"\ntoken = "t"\n'
EMAIL = '[channels.email]\nenabled = true\nimap_host = "i"\nsmtp_host = "s"\nuser = "u"\npassword = "p"\n'
SLACK = '[channels.slack]\nenabled = true\nbot_token = "b"\napp_token = "a"\n'
MANDATORY = [
    (MATRIX, "channels.matrix", ("user", "token")),
    (EMAIL, "channels.email", ("imap_host", "smtp_host", "user", "password")),
    (SLACK, "channels.slack", ("bot_token", "app_token")),
    ('[routes.r]\nprovider = "local"\nmodel = "m"\n', "routes.r", ("provider", "model")),
    ('[tools.web_search]\nenabled = true\nurl = "http://s"\n', "tools.web_search", ("url",)),
    ('[tools.web_search]\nenabled = true\nprovider = "brave"\nkey = "k"\n', "tools.web_search", ("key",)),
    ('[tools.mcp.m]\ncommand = "c"\n', "tools.mcp.m", ("command",)),
    ('[tools.mcp.m]\ntransport = "http"\nurl = "http://m"\n', "tools.mcp.m", ("url",)),
    ('[pools]\nbig = ["openai/x"]\n[providers.openai]\nkey = "k"\n', "providers.openai", ("key",)),
    ('[agents.coder]\nmodel = "openai/x"\n[providers.openai]\nkey = "k"\n', "providers.openai", ("key",)),
]


@pytest.mark.covers("R-203")
@pytest.mark.parametrize(("text", "table", "name"), [(text, table, name) for text, table, names in MANDATORY for name in names])
def test_missing_mandatory_key_is_named(read, refuse, text, table, name):
    read(text)
    error = refuse("\n".join(line for line in text.splitlines() if not line.startswith(f"{name} =")))
    assert error.key == f"{table}.{name}" and f"{error.key} is missing" in str(error)
    assert "OWLBOX__" + error.key.upper().replace(".", "__") in error.hint


@pytest.mark.parametrize(
    ("url", "is_remote"),
    [
        ("http://127.0.0.1:11434/v1", False),
        ("http://192.168.1.4/v1", False),
        ("http://[::1]/v1", False),
        ("http://pi/v1", False),
        ("http://pi.local/v1", False),
        ("https://api.example.com/v1", True),
        ("http://8.8.8.8/v1", True),
    ],
)
def test_only_a_remote_provider_needs_a_key(tmp_path, url, is_remote):
    (tmp_path / "owlbox.toml").write_text(f'[providers.p]\nbase_url = "{url}"\n[pools]\nbig = ["p/m"]')
    if is_remote:
        with pytest.raises(ConfigError, match="providers.p.key is missing"):
            config.load(Home(tmp_path), {})
    else:
        assert config.load(Home(tmp_path), {}).pools["big"] == ("p/m",)


@pytest.mark.covers("R-202", "S-028")
@pytest.mark.parametrize("key", ["runs.think", "tools.spawn.enabled", "channels.matrix.device", "system.name"])
def test_keys_that_nothing_would_use_are_refused(refuse, key):
    table, _, name = key.rpartition(".")
    assert refuse(f"[{table}]\n{name} = false").key in (key, table)


# -- reload, secrets, what is written -------------------------------------------------------------


@pytest.mark.covers("A-263")
def test_reload_takes_a_good_file_and_says_what_changed(tmp_path):
    live = config.Live(Home(tmp_path), {})
    (tmp_path / "owlbox.toml").write_text("[models]\nthreads = 2\n[agents.coder]\ntimeout_s = 9")
    assert live.reload() == ("models.threads", "agents.coder")
    assert live.current.models.threads == 2
    assert live.reload() == ()


@pytest.mark.covers("A-263")
@pytest.mark.parametrize("text", ["[models", "[models]\nthreads = -1", '[pools]\ndefault = ["x"]', "[modles]"])
def test_reload_keeps_the_old_configuration_when_the_new_is_bad(tmp_path, text):
    (tmp_path / "owlbox.toml").write_text("[models]\nthreads = 2")
    live = config.Live(Home(tmp_path), {})
    old = live.current
    (tmp_path / "owlbox.toml").write_text(text)
    with pytest.raises(ConfigError):
        live.reload()
    assert live.current is old


def test_secrets_are_listed_and_not_printed(read):
    loaded = read(
        '[channels.email]\npassword = "hush1"\n[providers.openai]\nkey = "hush2"\n[providers.anthropic]\nkey = "secret:llm/a"\n'
        '[tools.mcp.m]\ncommand = "c"\nenv = {TOKEN = "hush3"}'
    )
    assert sorted(config.secrets(loaded)) == ["hush1", "hush2", "hush3"]
    assert "hush" not in repr(loaded)


def test_configuration_cannot_be_changed_in_place(read):
    with pytest.raises(AttributeError):
        read().models.threads = 3


@pytest.mark.parametrize(
    ("text", "level"), [("", "info"), ('log_level = "warn"', "warn"), ("debug = true", "debug"), ('log_level = "silent"', "silent")]
)
def test_log_level_in_force(read, text, level):
    assert read(f"[system]\n{text}").system.level == level


def test_default_file_loads_to_the_defaults(read):
    text = config.default_toml()
    assert len(text.splitlines()) <= 40
    assert read(text) == config.Config()


def test_every_commented_key_of_the_default_file_is_its_default(read):
    lines = config.default_toml().splitlines()
    bare = [line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in lines]
    assert bare != lines
    assert read("\n".join(bare)) == config.Config()


def test_reference_page_is_up_to_date():
    assert DOCS.read_text() == config.reference(), "run: make docs"


WITHOUT_ROW = ("system.level", "tools.mcp", "sandbox.mounts")  # worked out from others, or tables with their own heading
ROWS = [key for keys in SEEDS.values() for key in keys if key not in WITHOUT_ROW]


@pytest.mark.covers("S-026")
@pytest.mark.parametrize("key", ROWS)
def test_reference_says_which_seed_key_it_stands_for(key):
    table, name, *rest = key.split(".")
    shown = ".".join((table, "NAME" if table in ("agents", "providers", "pools") else name, *rest))
    row = next(line for line in config.reference().splitlines() if line.startswith(f"| `{shown}` |"))
    assert row.split(" | ")[-1].strip(" |")


@pytest.mark.covers("S-026")
@pytest.mark.parametrize(
    ("key", "cells"),
    [
        (
            "budget.history_messages",
            "whole number 1 to 100000 | `80` | Newest messages in a chat's prompt. | S history_context_messages",
        ),
        ("tools.shell", "true or false | `true` | Offer the shell. | S tools.shell.enabled"),
        (
            "agents.NAME.temperature",
            "number 0 to 2 | unset | Unset means `models.temperature`. | A agents.ROLE.temperature",
        ),
    ],
)
def test_reference_row_has_type_range_default_and_meaning(key, cells):
    assert f"\n| `{key}` | {cells} | " in config.reference().replace(" |\n", " | \n")


def test_reference_is_printed_by_its_module():
    done = subprocess.run(
        [sys.executable, "-m", "appliance.runtime.config_reference"],
        capture_output=True,
        text=True,
        check=True,
        cwd=DOCS.parents[2],
    )
    assert done.stdout == config.reference()
