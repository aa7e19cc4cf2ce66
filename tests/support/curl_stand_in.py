"""As much of curl as the README uses, for machines without it: `-sf URL [-H header] [-d data]`."""

import argparse
import sys
import urllib.error
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("-sf", action="store_true")
parser.add_argument("url")
parser.add_argument("-H", dest="headers", action="append", default=[])
parser.add_argument("-d", dest="data")
arguments = parser.parse_args()

request = urllib.request.Request(
    arguments.url,
    data=arguments.data.encode() if arguments.data is not None else None,
    headers=dict(header.split(": ", 1) for header in arguments.headers),
)
try:
    with urllib.request.urlopen(request, timeout=120) as answer:
        sys.stdout.buffer.write(answer.read())
except urllib.error.HTTPError:
    sys.exit(22)
