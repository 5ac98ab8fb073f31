"""The commands that are the bot's own; the laboratories bring theirs."""
