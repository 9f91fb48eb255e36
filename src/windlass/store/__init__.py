"""PostgreSQL: the only package that knows SQL. Statements are in queries/*.sql, by name; the schema in
migrations/*.sql, by number.
"""
