"""What questions are answered from: what a rank's host and devices do, read from columns into arrays."""
