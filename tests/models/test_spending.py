"""What was spent survives kill -9, is refused beyond a limit, and names nobody."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.errors import Exhausted, StoreError
from appliance.models.prices import FREE, Prices, TokenCounts, cost, dollars
from appliance.models.spending import Amount, Spend
from appliance.runtime.settings import Config, Price, ProviderSettings, Spending

ROOT = Path(__file__).parents[2]
DOLLAR = 1_000_000


def account(folder: Path, day: str = "2026-11-22", **limits: float) -> Spend:
    return Spend(folder / "spend/spend.jsonl", Spending(**limits), day=lambda: day)  # type: ignore[arg-type]


@pytest.mark.covers("A-128")
def test_beyond_a_limit_a_request_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    spend = account(tmp_path, day_usd=1.0)
    first = spend.reserve("ada", Amount(700_000, 10))
    with pytest.raises(Exhausted, match=r"\$0\.70 of \$1\.00 for everybody today are spent, and this may cost \$0\.40") as caught:
        spend.reserve("ben", Amount(400_000, 10))
    assert (caught.value.status, caught.value.outcome, spend.spent()) == (429, "resource_exhausted", Amount(700_000, 10))
    spend.settle(first, Amount(100_000, 4))
    assert spend.spent() == Amount(100_000, 4)
    spend.reserve("ben", Amount(400_000, 10))


@pytest.mark.covers("A-128")
def test_tokens_are_counted_by_person_and_begin_anew_each_day(tmp_path: Path) -> None:
    spend = account(tmp_path, person_day_tokens=100)
    spend.settle(spend.reserve("ada", Amount(0, 80)), Amount(0, 90))
    with pytest.raises(Exhausted, match="90 of 100 tokens for you today are used, and this may take 11"):
        spend.reserve("ada", Amount(0, 11))
    spend.reserve("ben", Amount(0, 100))
    assert account(tmp_path, "2026-11-23", person_day_tokens=100).reserve("ada", Amount(0, 100)).day == "2026-11-23"
    with pytest.raises(Exhausted):  # the clock has jumped back: that day was where it is
        spend.reserve("ada", Amount(0, 11))


@pytest.mark.covers("A-128")
def test_a_month_is_the_sum_of_its_days(tmp_path: Path) -> None:
    for day in ("2026-10-31", "2026-11-01", "2026-11-02"):
        spend = account(tmp_path, day)
        spend.settle(spend.reserve("ada", Amount()), Amount(DOLLAR, 5))
    today = account(tmp_path, "2026-11-03", month_usd=2.5)
    assert (today.spent(), today.spent(month=True), today.spent("ben", month=True)) == (Amount(), Amount(2 * DOLLAR, 10), Amount())
    with pytest.raises(Exhausted, match="for everybody this month"):
        today.reserve("ada", Amount(600_000))
    assert today.plain() == {"day_usd": 0.0, "month_usd": 2.0, "day_tokens": 0, "limits": {"month_usd": 2.5}}


KILLED = """
import os, signal, sys
from pathlib import Path
from appliance.runtime.settings import Spending
from appliance.models.spending import Amount, Spend
spend = Spend(Path(sys.argv[1]), Spending(day_usd=100), day=lambda: "2026-11-22")
spend.settle(spend.reserve("ada", Amount(5_000_000, 500)), Amount(1_000_000, 100))
spend.reserve("ada", Amount(2_000_000, 200))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.covers("A-128")
def test_a_request_in_a_process_that_is_killed_counts_as_the_most_it_could_cost(tmp_path: Path) -> None:
    path = tmp_path / "spend/spend.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, timeout=180)
    assert done.returncode == -signal.SIGKILL
    assert account(tmp_path).spent() == Amount(3_000_000, 300)


def test_a_line_torn_by_a_power_cut_is_left_out_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    spend = account(tmp_path)
    spend.settle(spend.reserve("ada", Amount(9, 9)), Amount(5, 5))
    path = tmp_path / "spend/spend.jsonl"
    for length in (1, 9, 20):
        with path.open("ab") as file:
            file.write(b'["r", 17, "2026-11-22", "x", 100, 100]'[:length])
        again = account(tmp_path)
        assert again.spent() == Amount(5, 5)
        again.settle(again.reserve("ada", Amount(1, 1)), Amount())
        assert account(tmp_path).spent() == Amount(5, 5)


def test_two_brokers_of_one_home_count_together(tmp_path: Path) -> None:
    one, two = account(tmp_path, day_usd=1), account(tmp_path, day_usd=1)
    mine = one.reserve("ada", Amount(600_000))
    with pytest.raises(Exhausted):
        two.reserve("ben", Amount(600_000))
    one.settle(mine, Amount(100_000))
    two.settle(two.reserve("ben", Amount(600_000)), Amount(200_000))
    assert one.spent() == two.spent() == Amount(300_000)


def test_many_threads_lose_nothing_and_the_file_stays_small(tmp_path: Path) -> None:
    spends = [account(tmp_path), account(tmp_path)]

    def work(number: int) -> None:
        for _ in range(60):
            spend = spends[number % 2]
            spend.settle(spend.reserve(f"p{number}", Amount(7, 7)), Amount(1, 2))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account(tmp_path).spent() == Amount(240, 480)
    assert one_after_another(tmp_path, 1100) == Amount(240 + 1100, 480 + 2200)
    assert len((tmp_path / "spend/spend.jsonl").read_text().splitlines()) < 1000


def one_after_another(folder: Path, count: int) -> Amount:
    """What is spent after so many requests more."""
    spend = account(folder)
    for _ in range(count):
        spend.settle(spend.reserve("ada", Amount(7, 7)), Amount(1, 2))
    return account(folder).spent()


def test_the_file_holds_no_name_and_is_private(tmp_path: Path) -> None:
    spend = account(tmp_path)
    spend.settle(spend.reserve("ada@example.org", Amount(1, 1)), Amount(1, 1))
    path = tmp_path / "spend/spend.jsonl"
    assert b"ada" not in path.read_bytes() and path.stat().st_mode & 0o077 == 0
    assert {json.loads(line)[0] for line in path.read_text().splitlines()} == {"r", "s"}


def test_what_cannot_be_written_down_is_not_spent(tmp_path: Path) -> None:
    (tmp_path / "spend").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        account(tmp_path).reserve("ada", Amount(1, 1))


def test_a_disk_that_takes_half_a_line_refuses_the_request_and_loses_nothing(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from appliance.errors import DiskFull, StoreError
from appliance.models.spending import Amount, Spend
spend = Spend(Path(sys.argv[1]))
spend.reserve("ada", Amount(7, 7))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, -1))
try:
    spend.reserve("ada", Amount(1, 1))
except (DiskFull, StoreError):
    print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
spend.reserve("ada", Amount(2, 2))
"""
    path = tmp_path / "spend.jsonl"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr
    assert Spend(path, day=lambda: "").spent() == Amount(9, 9)


def test_who_only_looks_leaves_the_line_alone_that_another_broker_writes(tmp_path: Path) -> None:
    spend, path = account(tmp_path), tmp_path / "spend/spend.jsonl"
    spend.reserve("ada", Amount(5, 5))
    with path.open("a") as other:
        other.write('["r", 17, "2026-11-22", ')
        other.flush()
        assert spend.spent() == Amount(5, 5)
        other.write('"x", 100, 100]\n')
    assert spend.spent() == Amount(105, 105)


# -- prices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "output"),
    [
        ("openai", "gpt-4o", 10),
        ("openai", "gpt-4o-2024-11-20", 10),
        ("openai", "gpt-4o-mini-2024-07-18", 0.6),
        ("openrouter", "openai/gpt-4o-mini", 0.6),
        ("anthropic", "claude-opus-4-5-20251101", 25),
        ("openai", "gpt-4oh", None),
        ("openai", "gpt-5-chat-latest", 10),
        ("openai", "gpt-5-pro-2025-10-06", 120),
        ("openai", "gpt-4o-audio-preview", None),  # another model, and dearer
        ("openai", "o3-deep-research", None),
        ("anthropic", "claude-opus-4-1-20250805", 75),
        ("gemini", "gemini-2.5-flash-preview-09-2025", 2.5),
        ("openrouter", "deepseek/deepseek-chat-v3-0324:nitro", 0.42),
        ("ollama", "gpt-4o", 0),
        ("local", "owl", 0),
        ("lab", "owl", 0),
        ("openai", "mine", 3),
        ("openrouter", "a/b:free", 0),
    ],
)
def test_a_price_is_the_configurations_then_the_longest_name_of_the_table(provider: str, model: str, output: float | None) -> None:
    config = Config(
        prices={"mine": Price(1, 3), "openrouter/a/b:free": FREE},
        providers={**Config().providers, "lab": ProviderSettings(base_url="http://10.0.0.2/v1")},
    )
    price = Prices(config).of(provider, model)
    assert (None if price is None else price.output) == output


@pytest.mark.covers("R-201")
def test_a_cost_counts_cached_tokens_once_and_at_their_own_price() -> None:
    price = Price(3, 15, 0.3, 3.75)
    assert (
        cost(price, TokenCounts(prompt=1_000_000, output=100_000, cached=600_000, cache_write=200_000))
        == 600_000 + 180_000 + 750_000 + 1_500_000
    )
    assert cost(Price(3, 15), TokenCounts(prompt=1000, output=0, cached=500)) == 3000
    assert cost(Price(0.05, 0.4), TokenCounts(prompt=1)) == 1  # never less than it was
    assert [dollars(n) for n in (0, 400, 123_456, 12_345_678)] == ["$0.00", "$0.0004", "$0.12", "$12.35"]
