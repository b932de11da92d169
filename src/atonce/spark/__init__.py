"""The only room that touches PySpark: sessions, plans, jobs on columns, checkpoints."""
