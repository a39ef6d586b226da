"""Facts on which analyses rest: the activity of a rank's host and devices, read from columns into arrays."""
