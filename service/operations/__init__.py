"""Operations across several parts of the service: stores, jobs and engines.

Routes call these operations, which do not use HTTP themselves.
"""
