"""Operations across several parts of the service: stores, jobs and engines. Routes call them; they do not use HTTP."""
