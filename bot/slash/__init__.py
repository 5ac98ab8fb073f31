"""Slash commands: `/assay <verb> …` on the first line of a new comment of a pull request."""
