"""Top floor: GitHub, comments, commands. The composition root is `cli`."""
