"""What outlives a restart: the folder, the originals and what was read from them, and the catalog."""
