"""Serves the API of a crew: inputs, kickoffs, statuses, events, files."""

# See docs/decisions/api.md#the-crew-api-is-plain-starlette
