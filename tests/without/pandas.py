"""Hides pandas from the servers of tests, as in an installation without the tools of the tests.

pyarrow imports pandas for its first array where it is installed, which takes each process of a server 0.4 s.
"""

raise ModuleNotFoundError("pandas is hidden from servers of tests", name="pandas")
