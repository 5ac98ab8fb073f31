"""Capstone proposals as files: read, checked, ticked off from evidence, stopped when a stop condition holds, reported."""
