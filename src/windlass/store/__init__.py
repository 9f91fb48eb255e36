"""Access to PostgreSQL. No other package contains SQL.

Named statements are in queries/*.sql. The schema is in the numbered files migrations/*.sql.
"""
