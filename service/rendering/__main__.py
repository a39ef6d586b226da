"""Compiles the rendering ahead of its first use: ``python -m service.rendering``."""

from service.rendering.document import prepare

if __name__ == "__main__":
    prepare()
