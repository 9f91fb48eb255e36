def nothing() -> None:
    """Returns at once."""
