"""Models behind HTTP: requests, responses, retries, budgets and a cache of responses."""
