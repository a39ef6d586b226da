"""Which work belongs to which launch, operator and step: one rule, for all that ask."""
