"""Gate: decides by a test of significance whether the steps of a candidate cost more than those of a baseline."""
