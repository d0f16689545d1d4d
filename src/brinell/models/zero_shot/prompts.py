"""Prompts: templates with {} in the place of a class name, from a set or a file, and class names for them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from brinell.classes import Classes
from brinell.config.model import PROMPT_SETS, ModelOptions
from brinell.errors import ConfigError

PLAIN = "photo"  # the default set
_PLAIN_PROMPTS = ("a photo of a {}.",)


def read_prompts(name: str | None) -> tuple[str, ...]:
    """Return the templates of a set or of a file with one template per line."""
    if name is None or name == PLAIN:
        return _PLAIN_PROMPTS
    if name in PROMPT_SETS:
        return _packaged(f"{name}.txt")
    try:
        lines = Path(name).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompts {name!r} can't be read as UTF-8 text: {error}") from error
    prompts = tuple(line.strip() for line in lines if line.strip())
    wrong = next((prompt for prompt in prompts if prompt.count("{}") != 1), None)
    if not prompts or wrong is not None:
        shown = "it has none" if wrong is None else f"got {wrong!r}"
        raise ConfigError(f"the prompts {name!r} should have one {{}} per line in the place of the class name; {shown}")
    return prompts


def class_phrases(options: ModelOptions, classes: Classes) -> tuple[str, ...]:
    """Return the class names as prompts say them: OpenAI's for ImageNet, else the first synonym of each class."""
    if options.classes == "imagenet":
        return _packaged("imagenet.txt")  # WordNet's lemmas are ambiguous (two cranes), so CLIP's authors wrote their own
    return tuple(classes.short_name(index).replace("_", " ") for index in range(len(classes)))


def fill(prompts: tuple[str, ...], phrases: tuple[str, ...]) -> list[str]:
    """Return all prompts of the first class, then all of the second, and so on."""
    return [prompt.replace("{}", phrase) for phrase in phrases for prompt in prompts]


def _packaged(name: str) -> tuple[str, ...]:
    """Return the lines of a file that was published with CLIP (OpenAI, MIT licence)."""
    return tuple(files("brinell.models.zero_shot").joinpath(name).read_text(encoding="utf-8").splitlines())
