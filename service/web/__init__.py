"""The pages: HTML shells and the scripts that fill them from the JSON API."""
