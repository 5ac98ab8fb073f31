"""Paired statistics: two measurements of the same examples, and what their difference allows one to say."""
