"""The only way out to the web: fetching, host checks, search engines, pages as text."""
