"""Days of the calendar with a name of their own, by the rules of the language files: fixed days, Easter, Advent. Pure."""

from datetime import date, timedelta

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")  # as the rules name them


def day_of(rule: str, year: int) -> date:
    """`12-25`, `easter+1`, or `sunday-4 12-25`: so many such weekdays before a day."""
    if rule.startswith("easter"):
        return _easter(year) + timedelta(days=int(rule.removeprefix("easter") or 0))
    if " " in rule:
        weekday, before = rule.split(" ")
        name, count = weekday.rsplit("-", 1)
        day = day_of(before, year)
        back = (day.weekday() - WEEKDAYS.index(name)) % 7 or 7
        return day - timedelta(days=back + 7 * (int(count) - 1))
    month, number = rule.split("-")
    return date(year, int(month), int(number))


def _easter(year: int) -> date:
    """Easter Sunday of the Gregorian calendar (the anonymous algorithm of 1876)."""
    golden, century, rest = year % 19, year // 100, year % 100
    leap, skipped = divmod(century, 4)
    lunar = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - leap - lunar + 15) % 30
    weekday = (32 + 2 * skipped + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)
