"""Every option of a run, as frozen pydantic models. Nothing here imports torch."""
