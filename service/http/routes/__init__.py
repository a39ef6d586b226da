"""The routes of the API and of the Perfetto UI, a module for each resource."""
