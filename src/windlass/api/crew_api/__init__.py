# See docs/decisions/api.md#the-crew-api-is-plain-starlette
