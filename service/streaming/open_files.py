"""The limit of the files that a process may have open."""

import resource


def allow_open_files(count: int) -> int:
    """Raise the process's limit of open files to a number, as far as the system allows, and return the limit.

    A higher limit stays as it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        soft = count if hard == resource.RLIM_INFINITY else min(hard, count)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return count if soft == resource.RLIM_INFINITY else soft
