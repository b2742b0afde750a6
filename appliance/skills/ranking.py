"""Finding skills by words: what a hit in the name, the description, an argument or the body counts.

A word counts once for each place: name 10, description 5, name of an argument 3, its description 2, and the body as often as
it stands there, at most 5. Pure: the same skills and words give the same order, ties by name.
"""

from collections.abc import Iterable, Sequence

import msgspec

from appliance.skills.skill_file import Skill

IN_NAME, IN_DESCRIPTION, IN_ARGUMENT, IN_ARGUMENT_TEXT, MOST_IN_BODY = 10, 5, 3, 2, 5


class SkillHit(msgspec.Struct, frozen=True):
    """A skill that was found, and what speaks for it."""

    skill: Skill
    score: int


def search_skills(skills: Iterable[Skill], query: str, top_k: int = 10) -> list[SkillHit]:
    """The best skills for a query, best first; none for a query without words."""
    words = [word for word in dict.fromkeys(query.lower().split()) if word]
    hits = [SkillHit(skill, _score(skill, words)) for skill in skills]
    return sorted((hit for hit in hits if hit.score), key=lambda hit: (-hit.score, hit.skill.name))[: max(0, top_k)]


def _score(skill: Skill, words: Sequence[str]) -> int:
    name, description, body = skill.name.lower(), skill.description.lower(), skill.body.lower()
    score = 0
    for word in words:
        score += IN_NAME * (word in name) + IN_DESCRIPTION * (word in description) + min(MOST_IN_BODY, body.count(word))
        for one in skill.arguments:
            score += IN_ARGUMENT * (word in one.name.lower()) + IN_ARGUMENT_TEXT * (word in one.description.lower())
    return score
