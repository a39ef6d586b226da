"""``python -m service.rendering``: compile the rendering before its first use."""

from service.rendering.document import prepare
from service.rendering.pftrace.document import prepare as prepare_pftrace

if __name__ == "__main__":
    prepare()
    prepare_pftrace()
