"""Names for people (temporary: titles come from `Run.title`)."""


def title(name: str) -> str:
    """Return the name."""
    return name
