"""The options of runs, models, data and execution, as frozen pydantic models."""
