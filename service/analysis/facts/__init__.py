"""Facts from which questions are answered: the activity of a rank's host and devices, read from columns into arrays."""
