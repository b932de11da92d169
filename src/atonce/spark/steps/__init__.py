"""Steps that a pipeline names by a word: records parsed, changes of a database applied."""
