"""``python -m service.rendering``: compile the rendering before its first use."""

from service.rendering.document import prepare

if __name__ == "__main__":
    prepare()
