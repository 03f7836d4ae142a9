"""Six labelled texts of three classes, and texts to ask about."""

from __future__ import annotations

TEXTS = (
    "rain and wind in the city",
    "a storm on my trip",
    "the team was good",
    "what a great goal",
    "the player was bad",
    "soup and a cheap dish",
)
LABELS = ("weather", "weather", "sport", "sport", "sport", "food")
QUESTIONS = ("will it rain", "who was the best player of the game", "cook me a soup", "sun", "i want to eat at night")
