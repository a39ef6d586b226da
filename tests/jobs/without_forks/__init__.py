"""A package that stands in for `service.jobs.children` where the system refuses each fork."""
