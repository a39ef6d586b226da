"""A trace as a document that an engine loads without loss: distinct ids, harmless values, slices that nest."""
