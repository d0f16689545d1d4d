"""Questions to chat models, and how their answers are read.

An answer is an output: a choice, or, without choices, whatever was said, by a hash of its words. What is no valid answer (a
refusal, prose, a truncated answer) has an output of its own, so that it is counted and never taken for another answer.
"""

from __future__ import annotations

import hashlib
import math
import re
import string
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brinell.classes import NO_ANSWER, Classes

CHOICES = "{choices}"
QUESTION = f"Which of these does the image show?\n{CHOICES}\nAnswer with the letter of one choice and nothing else."
QUESTION_BY_NAME = f"Which of these does the image show?\n{CHOICES}\nAnswer with one of these names and nothing else."
TOKENS = 16  # of an answer that is a choice
OPEN_TOKENS = 64  # of any other
OPEN_OUTPUTS = 4096  # two different answers share an output once in so many pairs
LONGEST = 200  # characters of an answer that are kept for people
_QUOTES = " \t\r\n\"'`*_.()[]:"


@dataclass(frozen=True)
class Question:
    """A question with its choices: letters, or the names themselves if there are too many classes for letters."""

    text: str
    classes: Classes  # without the one for invalid answers

    tokens: int = TOKENS  # of an answer at most

    @property
    def outputs(self) -> int:
        """The number of classes, with the one for invalid answers."""
        return len(self.classes) + 1

    @property
    def invalid(self) -> int:
        """The class of invalid answers."""
        return len(self.classes)

    @property
    def letters(self) -> str:
        """The letters of the choices; none: choices are names."""
        return string.ascii_uppercase[: len(self.classes)] if len(self.classes) <= len(string.ascii_uppercase) else ""

    def ask(self) -> str:
        """Return the question as it is sent."""
        names = [self.classes.short_name(index) for index in range(len(self.classes))]
        pairs = zip(self.letters, names, strict=True) if self.letters else ()
        lines = [f"{letter}. {name}" for letter, name in pairs] or names
        return self.text.replace(CHOICES, "\n".join(lines))

    def read(self, answer: str) -> int:
        """Return the class of an answer: a letter, a name, or both; that of invalid answers if it is anything else."""
        text = answer.strip(_QUOTES)
        letter, _, rest = text.partition(" ")
        letter = letter.strip(_QUOTES).upper()
        if len(letter) == 1 and letter in self.letters:
            index = self.letters.index(letter)
            if not rest or self.classes.find(rest.strip(_QUOTES)) == [index]:
                return index
        found = self.classes.find(text)
        return found[0] if len(found) == 1 else self.invalid

    def read_tokens(self, tokens: list[Any], answer: str) -> np.ndarray | None:
        """Return the probabilities of the choices from the tokens of an answer; None if there are none."""
        first = next((token for token in tokens if str(token.get("token", "")).strip(_QUOTES)), None)
        if first is None or not self.letters:
            return None
        scores = np.zeros(self.outputs)
        options = {str(each.get("token")): each for each in (*(first.get("top_logprobs") or ()), first)}
        for token, each in options.items():
            chosen = self._read_start(answer) if each is first else self.read(token)
            if chosen != self.invalid and isinstance(each.get("logprob"), (int, float)):
                scores[chosen] += math.exp(min(0.0, each["logprob"]))
        scores[-1] = max(0.0, 1.0 - scores.sum())
        return scores

    def _read_start(self, answer: str) -> int:
        """Return the class that an answer chooses, whatever it adds: "A. light, since …", but not "A light image"."""
        found = self.read(answer)
        start = re.match(r"\W*([A-Z])(?=[^\w\s'’]|\s*\n)", answer, re.IGNORECASE)
        return self.read(start[1]) if found == self.invalid and start is not None else found


@dataclass(frozen=True)
class OpenQuestion:
    """A question without choices. Each answer has its own output, by a hash of its words; the first is for invalid ones."""

    text: str
    seen: dict[int, str] = field(default_factory=lambda: {0: NO_ANSWER})  # answers by output
    tokens: int = OPEN_TOKENS
    letters: str = ""
    outputs: int = OPEN_OUTPUTS
    invalid: int = 0

    def ask(self) -> str:
        """Return the question as it is sent."""
        return self.text

    def read(self, answer: str) -> int:
        """Return the output of an answer; case, punctuation and spaces don't matter."""
        words = " ".join(re.findall(r"\w+", answer.casefold()))
        if not words:
            return self.invalid
        number = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "big")
        output = 1 + number % (self.outputs - 1)
        self.seen.setdefault(output, " ".join(answer.split())[:LONGEST])
        return output

    def read_tokens(self, tokens: list[Any], answer: str) -> np.ndarray | None:
        """Return None: there are no choices that could have probabilities."""
        return None
