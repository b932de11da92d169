"""Runs a pipeline, or anybody's program, under real failures and audits what came out."""
