"""A trace as an engine takes it without loss: ids that differ, values that do no harm, slices that nest."""
