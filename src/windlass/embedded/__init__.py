"""What Windlass brings along, so that nothing else has to be installed: PostgreSQL, and a model without a key."""
