"""Where GitHub is unless the environment says otherwise: GITHUB_API_URL and GITHUB_SERVER_URL name an Enterprise Server."""

API_URL = "https://api.github.com"
SERVER_URL = "https://github.com"
