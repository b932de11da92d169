"""The heart: two writes in the order that a guarantee names. It knows no system and no PySpark class."""
