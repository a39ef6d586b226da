"""Datasets: the columns and the facts of many traces in a folder or a bucket, made and asked by many processes."""
