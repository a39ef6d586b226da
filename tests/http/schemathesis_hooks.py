"""Extensions of schemathesis, which `test_fuzzed` runs as a program."""

import schemathesis

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
