from __future__ import annotations

from hypothesis import settings

# A property is about values; how long one example takes on a busy machine is not its business.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
