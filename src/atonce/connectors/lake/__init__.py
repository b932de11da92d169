"""Tables of files: tasks write Parquet, the driver commits their names and the progress in one conditional step."""
