"""Access to PostgreSQL. No other package contains SQL.

Named statements are in queries/*.sql. Tables, indexes and data are in the numbered files migrations/*.sql. Functions
and triggers are in functions/*.sql.
"""
