"""Attribution of device work to launches, operators and steps: one rule for every caller."""
