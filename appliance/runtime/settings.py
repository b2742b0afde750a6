"""Every configuration key: its name, type, default, range, meaning, and the key of a seed it stands for.

Owns the shape of `owlbox.toml` as a tree of frozen dataclasses; a table of the file is a class, a key
is a field. What holds tools and skills is in `runtime.tool_settings`, what a key is in `runtime.config_keys`. Knows nothing about
files, the environment or how a value is checked: `runtime.config` reads and checks, `runtime.config_reference` prints. To add a
key, add one line here and run `runtime.config_reference` again.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from appliance.runtime.config_keys import DAY_MS as DAY_MS
from appliance.runtime.config_keys import DAY_S, Keys, setting
from appliance.runtime.tool_settings import Audit, PolicyKeys, SandboxSettings, SkillSettings, ToolSettings

LOCAL = "local"  # the route and the provider that are always there: the local model
Pruning = Literal["opening", "recent", "ends", "important"]
Copied = Literal["entries", "all", "none"]
Level = Literal["", "silent", "error", "warn", "info", "debug"]


class System(Keys):
    """The box itself."""

    timezone: str = setting("local", "`local`, `UTC`, `+HH:MM` or an IANA name.", seed="A system.timezone", mark="needed shown")
    log_level: Level = setting("", "How much is logged; empty means info.", seed="B log_level; A log level", mark="broker")
    debug: bool = setting(False, "Log everything, whatever `log_level` says.", seed="R debug", mark="broker")
    admin_users: tuple[str, ...] = setting((), "People who may manage the whole box.", seed="A system.admin_users")

    @property
    def level(self) -> str:
        """The log level in force."""
        return "debug" if self.debug else self.log_level or "info"


class ModelSettings(Keys):
    """The local model, and what every model call starts from."""

    default: str = setting(
        "", "Local model: file stem or catalogue name; empty means the newest in models/.", seed="B model", mark="shown broker"
    )
    script: str = setting(
        "", "Scripted-provider file that replaces every model; relative to the home.", seed="B environment switch", mark="broker"
    )
    embedding: str = setting(
        "", "Local embedding model; empty means the newest in models/.", seed="B embedding_model", mark="broker"
    )
    embedding_dimension: int = setting(384, "Length of a vector.", seed="B embedding_dimension", within=(1, 8192), mark="broker")
    context: int = setting(0, "Context window in tokens; 0 picks up to 8192.", within=(0, 1_048_576), mark="broker")
    threads: int = setting(0, "CPU threads; 0 picks.", within=(0, 256), mark="broker")
    memory_mb: int = setting(0, "Memory a model may take; 0 goes by what is free.", within=(0, 1_048_576), mark="broker")
    cache_type: Literal["f16", "q8_0"] = setting(
        "f16",
        "How a conversation's evaluated tokens are kept in memory; q8_0 takes half of it and a little accuracy.",
        mark="broker",
    )
    temperature: float = setting(0.1, "Randomness of answers.", seed="R temperature", within=(0, 2))
    max_output_tokens: int = setting(512, "Longest answer of the local model.", within=(1, 131_072))
    tier: Literal["auto", "tiny", "small", "able"] = setting(
        "auto",
        "How much the program decides in place of a local model: `tiny` most, `able` nothing; auto goes by its size.",
    )
    thinking: bool = setting(False, "Let an able local model think before it answers, where it can; slow on a small computer.")
    local_only: bool = setting(True, "Never ask a remote model, whatever the pools say.", mark="shown broker")
    pool: str = setting("default", "Pool used where none is named.", seed="S default_pool", mark="needed broker")
    failover: bool = setting(
        True,
        "Ask the next route when one fails; false: the first one's error is what you see.",
        seed="A failover enabled",
        mark="broker",
    )


class ProviderSettings(Keys):
    """A service that offers models over HTTP. Those built in need nothing but their `key`; without one they are never asked."""

    kind: str = setting("openai", "Wire format; most services speak `openai`.", seed="A providers", folder="providers/formats")
    base_url: str = setting("", "Address of its API.", seed="S providers.api_base", mark="needed")
    key: str = setting("", "API key, better `secret:llm/NAME` or `${VARIABLE}`.", seed="S providers.api_key; B key", mark="secret")
    reasoning: bool = setting(False, "Send its reasoning text back to it.", seed="S providers.supports_reasoning_content")
    images: bool = setting(False, "Its models see pictures.", seed="A vision")
    tools: bool = setting(True, "Its models call tools; if not, they are told in words how to, and do it in words.")
    headers: Mapping[str, str] = setting({}, "Sent with each request; `{key}` in a value takes the key's place.", mark="secret")
    ca_file: str = setting("", "File of authorities that vouch for its certificate; empty means the usual ones.")
    timeout_s: float = setting(120, "Longest silence of one request.", seed="A request timeout", within=(1, 3600))
    requests_per_minute: int = setting(60, "More requests than this wait.", seed="A rate limit", within=(1, 100_000))
    concurrent: int = setting(10, "Requests at a time; more wait.", seed="A concurrent requests", within=(1, 1000))
    priority: int = setting(100, "Lower is asked first when several could answer.", seed="A provider priority", within=(0, 1000))
    fallback: tuple[str, ...] = setting((), "Providers to try when this one fails.", seed="A fallback chains")

    @property
    def is_remote(self) -> bool:
        """True unless the address is this machine or this network."""
        host = (urlsplit(self.base_url).hostname or "").rstrip(".")
        try:
            return ipaddress.ip_address(host).is_global
        except ValueError:
            return "." in host and not host.endswith((".local", ".localhost", ".lan", ".home.arpa", ".internal"))


class RouteTable(Keys):
    """One way to reach a model. Pools may also name `provider/model` directly, without a table here."""

    provider: str = setting("", "A provider, or `local`.", seed="S models.provider", mark="needed")
    model: str = setting("", "The provider's name of the model.", seed="S models.model", mark="needed")
    also: tuple[str, ...] = setting((), "The same as other `provider/model`: the cheapest goes first.", seed="A alias")
    max_output_tokens: int = setting(8192, "Longest answer.", seed="S models.max_tokens", within=(1, 1_000_000))
    context: int = setting(
        0,
        "Context window in tokens; 0 means what the provider says, or 100000.",
        seed="S models.max_context_tokens",
        within=(0, 10_000_000),
    )


class Price(Keys):
    """What a model costs, in US dollars for a million tokens. Lies over the table that ships."""

    input: float = setting(0, "Tokens read.", within=(0, 1_000_000))
    output: float = setting(0, "Tokens written.", within=(0, 1_000_000))
    cached: float | None = setting(None, "Tokens found in its cache; unset means as `input`.", within=(0, 1_000_000))
    cache_write: float | None = setting(None, "Tokens put into its cache; unset means as `input`.", within=(0, 1_000_000))


class Spending(Keys):
    """What remote models may cost; 0 sets no limit. At a limit they are refused, and pools fall to what is free."""

    day_usd: float = setting(0, "By everybody, each day.", seed="A token budgets", within=(0, 1_000_000))
    month_usd: float = setting(0, "By everybody, each month.", within=(0, 10_000_000))
    person_day_usd: float = setting(0, "By one person, each day.", within=(0, 1_000_000))
    day_tokens: int = setting(0, "Tokens, by everybody, each day.", seed="A token budgets", within=(0, 10**12))
    person_day_tokens: int = setting(0, "Tokens, by one person, each day.", seed="A token budgets", within=(0, 10**12))


class Llm(Keys):
    """Patience with models."""

    deadline_ms: int = setting(
        600_000, "Longest time a model call may take, retries included.", seed="R LLM deadline", within=(1, DAY_MS)
    )
    broker_wait_s: float = setting(
        60, "How long requests wait for a broker that restarts.", seed="A broker health wait", within=(0, 3600)
    )
    max_backoff_ms: int = setting(30_000, "Longest pause between two tries.", seed="R max backoff", within=(0, DAY_MS))


class BudgetSettings(Keys):
    """What of a model's window may be used, and for what."""

    ceiling: float = setting(0.9, "Part of the window a prompt may fill.", seed="R budget ceiling", within=(0.1, 1))
    entry_token_limit: int = setting(
        512, "Longest piece of knowledge that is written.", seed="R entry token limit", within=(1, 1_000_000), mark="restart"
    )
    token_divisor: float = setting(
        2, "Characters per token where nothing better is known.", seed="R token divisor", within=(0.5, 16)
    )
    history_messages: int = setting(
        80, "Newest messages in a chat's prompt.", seed="S history_context_messages", within=(1, 100_000)
    )
    pruning: Pruning = setting("opening", "Which messages of a chat stay when not all fit.", seed="A pruning strategies")


class RunLifeSettings(Keys):
    """When a run ends by itself, and how long it is kept."""

    max_turns: int = setting(99, "Turns in one loop.", seed="R loop turns", within=(1, 100_000))
    max_commands: int = setting(99, "Commands taken from one answer.", seed="R commands", within=(1, 100_000))
    max_strikes: int = setting(3, "Bad answers in a row before giving up.", seed="R strikes", within=(1, 1000))
    max_cycles: int = setting(3, "Repetitions of a pattern before giving up.", seed="R cycles", within=(2, 1000))
    max_period: int = setting(4, "Longest pattern looked for.", seed="R period", within=(1, 20))
    retention_days: int = setting(
        31, "Inner records of a run are kept this long; what was said is never dropped.", seed="R retention", within=(1, 36_500)
    )
    titles: Literal["auto", "model", "words"] = setting(
        "auto",
        "What a chat is called: by the pool `small` where its model is large enough, always by that pool, or by its first words.",
        seed="B chat titles",
    )
    copies: Copied = setting("entries", "Runs that keep what their model was sent: of entries, all, or none.", seed="R audit")


class RoleSettings(Keys):
    """One role. Any name may be used; those built in start from the values above."""

    model: str = setting("", "A route instead of a pool: name or `provider/model`.", seed="A agents.ROLE.model")
    pool: str = setting("", "A pool; empty means `models.pool`.", seed="S pool")
    max_iterations: int = setting(15, "Model calls in one run.", seed="A agents.ROLE.max_iterations", within=(1, 10_000))
    temperature: float | None = setting(None, "Unset means `models.temperature`.", seed="A agents.ROLE.temperature", within=(0, 2))
    timeout_s: float = setting(300, "Longest time of one run.", seed="A agents.ROLE.timeout", within=(1, DAY_S))


class DelegationSettings(Keys):
    """Work that one run hands to another."""

    retry_s: float = setting(1, "Pause before the second try; twice as long each time.", seed="A initial delay", within=(0, 600))
    spawn: bool = setting(
        False, "Offer `delegate` with `priority` `collect` (`spawn`), and `spawn_await`.", seed="S spawn.enabled", mark="restart"
    )


class Orchestrator(Keys):
    """How the core looks after its parts."""

    result_poll_ms: int = setting(
        1000, "Pause between looks for results, where polling is used.", seed="A results", within=(10, DAY_MS)
    )
    health_interval_ms: int = setting(30_000, "Pause between two probes.", seed="A health_check.interval", within=(100, DAY_MS))
    health_timeout_ms: int = setting(5000, "Time a part has to answer a probe.", seed="A health_check.timeout", within=(10, DAY_MS))
    health_failures: int = setting(3, "Failed probes in a row before a restart.", seed="A failure_threshold", within=(1, 1000))
    disk_warn: float = setting(0.90, "Part of the disk in use that gives a warning.", seed="A disk warning", within=(0.1, 1))
    disk_refuse: float = setting(0.95, "Part of the disk in use that is a problem.", seed="A disk limit", within=(0.1, 1))


class Matrix(Keys):
    """A channel through Matrix."""

    enabled: bool = setting(False, "Open it.", seed="S channels.matrix.enabled")
    homeserver: str = setting("https://matrix.org", "Address of the server.", seed="S matrix.homeserver", mark="needed")
    user: str = setting("", "The assistant's id, `@owl:matrix.org`.", seed="S matrix.user_id", mark="needed")
    token: str = setting("", "Its access token.", seed="S matrix.access_token", mark="needed secret")
    policy: Literal["open", "mention", "allowlist"] = setting(
        "mention", "Who may write: docs/guides/channels.md.", seed="S matrix.policy"
    )
    rooms: tuple[str, ...] = setting((), "Only these rooms; none means all.", seed="S matrix.room_ids")
    allow_from: tuple[str, ...] = setting((), "Senders read beside linked persons.", seed="S matrix.allowlist")
    trusted_servers: tuple[str, ...] = setting((), "Servers trusted to say who a sender is, such as yours: docs/guides/matrix.md.")


class Email(Keys):
    """A channel through email."""

    enabled: bool = setting(False, "Open it.", seed="S channels.email.enabled")
    imap_host: str = setting("", "Server for reading.", seed="S email.imap_host", mark="needed")
    imap_port: int = setting(993, "Its port.", seed="S email.imap_port", within=(1, 65_535))
    smtp_host: str = setting("", "Server for sending.", seed="S email.smtp_host", mark="needed")
    smtp_port: int = setting(587, "Its port.", seed="S email.smtp_port", within=(1, 65_535))
    user: str = setting("", "Login name.", seed="S email.username", mark="needed")
    password: str = setting("", "Password.", seed="S email.password", mark="needed secret")
    from_address: str = setting("", "Sender of replies; empty means `user`.", seed="S email.from_address")
    tls: bool = setting(True, "Encrypt.", seed="S email.use_tls")
    verify: bool = setting(True, "Check certificates.", seed="S email.tls_verify")
    imap_starttls: bool = setting(False, "Encrypt after connecting, when reading.", seed="S email.imap_starttls")
    smtp_starttls: bool = setting(True, "Encrypt after connecting, when sending.", seed="S email.smtp_starttls")
    poll_s: float = setting(
        60, "Pause between looks, for servers that cannot call.", seed="S email.poll_interval", within=(1, DAY_S)
    )
    policy: Literal["open", "allowlist"] = setting("allowlist", "Whose mails it reads: everybody's, or those of `allow_from`.")
    allow_from: tuple[str, ...] = setting((), "Senders read beside linked persons.", seed="S email.allow_from")
    trusted_server: str = setting("", "Whose `Authentication-Results` are believed; empty means nobody's: docs/guides/email.md.")
    pins: tuple[str, ...] = setting((), "SHA-256 of the servers' certificates; any, and no other is taken.")


class Workspace(Keys):
    """A channel through one workspace of Slack."""

    enabled: bool = setting(False, "Open it.", seed="A channels.slack.enabled")
    bot_token: str = setting("", "Token of the bot, `xoxb-`.", seed="A slack bot token", mark="needed secret")
    app_token: str = setting("", "Token of the app, `xapp-`.", seed="A slack app token", mark="needed secret")
    trigger: str = setting(
        r"^@owlbox\b", "Messages in channels that address it, beside mentions.", seed="A trigger pattern", mark="needed"
    )
    policy: Literal["open", "mention", "allowlist"] = setting("mention", "Whose messages it reads, as of Matrix.")
    rooms: tuple[str, ...] = setting((), "Only these channels, `C024BE91L`; none means all that it is in.")
    allow_from: tuple[str, ...] = setting((), "Senders read beside linked persons, `T024BE7LD/U061F7AUR`.")
    api_url: str = setting("https://slack.com/api", "Where the API is.")


class Slack(Workspace):
    """A channel through Slack."""

    workspaces: Mapping[str, Workspace] = setting({}, "More workspaces, each a channel `slack-NAME` of its own.")


class WebSettings(Keys):
    """The web page and what else is asked by HTTP: docs/guides/web-page.md."""

    enabled: bool = setting(False, "Serve it.", seed="A channels.web.enabled", mark="restart")
    host: str = setting("127.0.0.1", "Address to listen at; any but loopback needs `certificate` or `address`.", mark="restart")
    port: int = setting(8420, "Port to listen at.", within=(0, 65_535), mark="restart")
    address: str = setting("", "Where people reach it when a proxy is before it, such as `https://owl.lan`.", mark="restart")
    certificate: str = setting("", "Certificates in PEM, for https; relative to the home.", mark="restart")
    key: str = setting("", "Their private key; empty when it is in the same file.", mark="restart")


class Programs(Keys):
    """Programs that speak OpenAI's interface, and webhooks: docs/guides/programs.md."""

    enabled: bool = setting(False, "Let programs with a token ask at the web page's port too; needs `channels.web.enabled`.")


class Connector(Keys):
    """A channel that is a file in `appliance/channels/connectors/`, under the file's name."""

    enabled: bool = setting(False, "Open it.")
    keys: Mapping[str, Any] = setting({}, "What the file's `connect` takes, checked when it is opened.", mark="secret rest")


class Channels(Keys):
    """Ways to people, beside the screen and the command line."""

    matrix: Matrix = setting(Matrix(), "")
    email: Email = setting(Email(), "")
    slack: Slack = setting(Slack(), "")
    web: WebSettings = setting(WebSettings(), "")
    programs: Programs = setting(Programs(), "")
    connectors: Mapping[str, Connector] = setting({}, "", mark="rest", folder="channels/connectors")


class PluginSettings(Keys):
    """Python of your own in the core: docs/guides/plugins.md."""

    enabled: tuple[str, ...] = setting((), "Plugins that are loaded, by name; none is otherwise.", seed="R plugins")


class SchedulerSettings(Keys):
    """Work that starts at a time."""

    poll_ms: int = setting(60_000, "Pause between looks for due work.", seed="A scheduler; S 60 s", within=(100, DAY_MS))
    min_interval_s: float = setting(
        60, "Shortest pause between two evaluations.", seed="B schedule min interval", within=(0, DAY_S)
    )
    claim_stale_s: float = setting(
        300, "An evaluation older than this is taken over.", seed="B schedule claim stale", within=(1, DAY_S)
    )
    max_failures: int = setting(5, "Failures in a row before a schedule pauses.", seed="A 5 consecutive failures", within=(1, 1000))
    timeout_s: float = setting(300, "Longest time of one piece of work.", seed="A task timeout", within=(1, DAY_S))


class HeartbeatSettings(Keys):
    """Looking around unasked."""

    enabled: bool = setting(True, "Do what HEARTBEAT.md says, unasked.", seed="S heartbeat.enabled", mark="shown")
    interval_minutes: float = setting(
        30,
        "Pause between two looks.",
        seed="S heartbeat.interval_minutes",
        within=(0.01, 10_080),
    )
    prompt: str = setting(
        "Read HEARTBEAT.md and do what is due. If nothing needs attention, answer with HEARTBEAT_OK only.",
        "What the assistant is told.",
        seed="S heartbeat.prompt",
        mark="needed",
    )
    active_from: str = setting("00:00", "First time of day, HH:MM.", seed="S heartbeat.active_hours_start", mark="shown")
    active_until: str = setting(
        "24:00", "End of the day, HH:MM, itself excluded.", seed="S heartbeat.active_hours_end", mark="shown"
    )
    timezone: str = setting("local", "Where these hours hold.", seed="S heartbeat.timezone", mark="needed")
    pool: str = setting("", "A pool; empty means that of role `heartbeat`.", seed="S heartbeat.pool")


class Notifications(Keys):
    """What Owlbox says unasked. Answers and reminders are never held back."""

    quiet_from: str = setting("00:00", "From then on nothing is said unasked, HH:MM.", mark="shown")
    quiet_until: str = setting("00:00", "Until then; the same time means no quiet hours.", mark="shown")


class WorkerSettings(Keys):
    """Processes that work through the queue."""

    tick_interval_s: float = setting(
        300, "Pause after a look that found no work.", seed="B tick_interval_seconds", within=(0.1, DAY_S)
    )
    max_tick_s: float = setting(
        120, "Longest piece of work; claims are stale after three of these.", seed="B max_tick_duration_seconds", within=(1, DAY_S)
    )
    max_turns: int = setting(
        0, "Turns of a worker's run; 0 leaves it to `runs.max_turns`.", seed="B max_turns", within=(0, 100_000)
    )
    heartbeat_s: float = setting(15, "Pause between signs of life.", seed="B heartbeat", within=(1, 3600))
    dead_after_s: float = setting(60, "Silence after which a worker counts as dead.", seed="B dead after", within=(2, DAY_S))
    reap_interval_s: float = setting(30, "Pause between looks for dead workers.", seed="B reap", within=(1, DAY_S))
    stopped_retention_s: float = setting(
        3600, "Stopped workers are listed this long.", seed="B stopped retention", within=(0, 365 * DAY_S)
    )


class OutboxSettings(Keys):
    """What people are to be told."""

    retry_s: float = setting(5, "Pause after a delivery that failed; twice as long each time.", within=(0.05, DAY_S))
    retry_max_s: float = setting(3600, "Longest such pause.", within=(0.05, DAY_S))


class Archival(Keys):
    """Putting sessions away."""

    enabled: bool = setting(True, "Do it.", seed="A sessions.archival.enabled")
    inactivity_s: float = setting(
        DAY_S, "Silence after which a session is archived.", seed="A inactivity_timeout", within=(60, 3650 * DAY_S)
    )
    memory_extraction: bool = setting(True, "Write memories first.", seed="A memory_extraction")


class SessionSettings(Keys):
    """Conversations."""

    archival: Archival = Archival()


class Api(Keys):
    """The local socket."""

    rpc_timeout_ms: int = setting(
        30_000, "Longest time of a plain request.", seed="R RPC timeout", within=(1, DAY_MS), mark="restart"
    )


class StoreSettings(Keys):
    """The database."""

    mmap_mb: int = setting(0, "Part of the file mapped into memory; 0 maps none.", seed="R mmap", within=(0, 1_048_576))


class ContextSettings(Keys):
    """What is kept, and how it is made findable."""

    chunker: Literal["structure", "model"] = setting(
        "structure", "What long texts are cut by: their structure, or the small model, when there is time.", seed="B chunking"
    )
    describe: bool = setting(False, "Let the small model describe texts that have no description.", seed="B descriptions")


class PromptSettings(Keys):
    """What models are told."""

    system_prompt_override: str = setting("", "Added to our instructions.", seed="B system_prompt_override")


class Alias(Keys):
    """An address of the owner: plain text counts everywhere, `{address, channel}` in that channel only."""

    address: str = setting("", "The address, in this case of letters.", seed="S owner.aliases.address", mark="needed")
    channel: str = setting("", "Channel it belongs to; empty means all.", seed="S owner.aliases.channel")


class PeopleSettings(Keys):
    """Who is who."""

    owner_aliases: tuple[Alias, ...] = setting((), "Addresses of the owner.", seed="S owner.aliases", mark="restart")


# Priorities as the seed has them. A provider whose `fallback` names one without a key has none there.
PROVIDERS = {
    "anthropic": ProviderSettings("anthropic", "https://api.anthropic.com", priority=10, fallback=("openrouter",)),
    "openai": ProviderSettings("openai", "https://api.openai.com/v1", priority=20, fallback=("openrouter",)),
    "gemini": ProviderSettings("gemini", "https://generativelanguage.googleapis.com"),
    "openrouter": ProviderSettings("openai", "https://openrouter.ai/api/v1"),
    "groq": ProviderSettings("openai", "https://api.groq.com/openai/v1"),
    "deepseek": ProviderSettings("openai", "https://api.deepseek.com/v1"),
    "xai": ProviderSettings("openai", "https://api.x.ai/v1"),
    "mistral": ProviderSettings("openai", "https://api.mistral.ai/v1"),
    "ollama": ProviderSettings("openai", "http://localhost:11434/v1"),
    "lmstudio": ProviderSettings("openai", "http://localhost:1234/v1"),
    "vllm": ProviderSettings("openai", "http://localhost:8000/v1"),
    "llamacpp": ProviderSettings("openai", "http://localhost:8080/v1"),
}
AGENTS = {
    "assistant": RoleSettings(max_iterations=20, temperature=0.7),
    "worker": RoleSettings(max_iterations=15),
    "researcher": RoleSettings(max_iterations=50, timeout_s=600),
    "coder": RoleSettings(max_iterations=30),
    "memory": RoleSettings(pool="small", max_iterations=10),
    "heartbeat": RoleSettings(pool="small", max_iterations=15),
}


class ScreenSettings(Keys):
    """The full screen in a terminal."""

    owl: bool = setting(True, "Show the owl, beside the input and in the corner.")
    theme: Literal["auto", "dark", "light", "contrast", "terminal"] = setting(
        "auto", "Its colours; auto goes by the terminal, `terminal` uses the terminal's own. NO_COLOR goes before it."
    )


class Backups(Keys):
    """Copies that `owlbox backup` makes: docs/guides/backup.md."""

    keep: int = setting(14, "Backups kept in one folder; older ones are removed.", within=(1, 10_000))

    target: str = setting(
        "", "Where backups go that name no place: a folder, or `sftp://user@host/folder`; empty means backups/ of the home."
    )
    key_file: str = setting("", "File whose content encrypts backups; empty leaves them plain. Keep a copy elsewhere.")


class Updates(Keys):
    """Signed bundles with another version: docs/guides/upgrade.md."""

    enabled: bool = setting(False, "Ask the source for a newer version, at most once a day. Nothing is applied by itself.")
    source: str = setting("", "Where bundles are: an https address, a folder or a file.")
    key: str = setting("", "Public key that must have signed a bundle, in base64; empty means the one that was installed.")
    folder: str = setting("/opt/owlbox", "Where the versions lie, with the link `current`.")


class Metrics(Keys):
    """Figures for Prometheus: docs/guides/watching.md."""

    port: int = setting(0, "Port of 127.0.0.1 that answers /metrics and /health; 0 opens none.", within=(0, 65_535))


class Config(Keys):
    """The whole file."""

    system: System = System()
    models: ModelSettings = ModelSettings()
    pools: Mapping[str, tuple[str, ...]] = setting(
        {"default": (LOCAL,), "small": (LOCAL,)},
        "Routes in the order they are tried; `local` is the local model.",
        seed="S pools; B small_model",
        mark="shown broker",
    )
    routes: Mapping[str, RouteTable] = setting({}, "Ways to reach models.", seed="S models", mark="broker")
    providers: Mapping[str, ProviderSettings] = setting(
        PROVIDERS, "Services that offer models.", seed="S providers; A providers", mark="broker"
    )
    prices: Mapping[str, Price] = setting({}, "What models cost, by their name or `provider/model`, in quotes.", mark="broker")
    spending: Spending = setting(Spending(), "", mark="broker")
    llm: Llm = Llm()
    budget: BudgetSettings = BudgetSettings()
    runs: RunLifeSettings = RunLifeSettings()
    prompt: PromptSettings = PromptSettings()
    agents: Mapping[str, RoleSettings] = setting(AGENTS, "Roles, where their files in `box/roles/` do not say it.", seed="A agents")
    delegation: DelegationSettings = DelegationSettings()
    orchestrator: Orchestrator = Orchestrator()
    sandbox: SandboxSettings = SandboxSettings()
    policy: PolicyKeys = PolicyKeys()
    audit: Audit = Audit()
    tools: ToolSettings = ToolSettings()
    channels: Channels = Channels()
    people: PeopleSettings = PeopleSettings()
    skills: SkillSettings = SkillSettings()
    plugins: PluginSettings = setting(PluginSettings(), "", mark="restart")
    scheduler: SchedulerSettings = SchedulerSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    notifications: Notifications = Notifications()
    workers: WorkerSettings = setting(WorkerSettings(), "")
    outbox: OutboxSettings = setting(OutboxSettings(), "", mark="restart")
    sessions: SessionSettings = SessionSettings()
    api: Api = Api()
    store: StoreSettings = setting(StoreSettings(), "", mark="restart")
    backups: Backups = Backups()
    updates: Updates = Updates()
    metrics: Metrics = setting(Metrics(), "", mark="restart")
    context: ContextSettings = setting(ContextSettings(), "", mark="restart")
    screen: ScreenSettings = ScreenSettings()


@dataclass(frozen=True)
class ConfigReloaded:
    """Another configuration is in force; `keys` are those that differ from the one before."""

    settings: Config
    keys: tuple[str, ...] = ()
