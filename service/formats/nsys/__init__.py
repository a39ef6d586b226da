"""SQLite exports of NVIDIA Nsight Systems (``nsys export --type sqlite``)."""
