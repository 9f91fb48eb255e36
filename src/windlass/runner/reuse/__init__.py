"""Children that run several kickoffs of one crew, one after the other (`reuse`)."""
