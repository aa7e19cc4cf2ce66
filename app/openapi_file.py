"""`python -m app.openapi_file`: print the API's document without a server.

The page's types are generated from it when the page is built (`make page`).
"""

import sys

import orjson

from app.openapi import document
from app.server import api_routes


def main() -> None:
    """Print the document as JSON."""
    text = orjson.dumps(document(api_routes(), base_path="", version="0"))
    sys.stdout.write(text.decode() + "\n")


if __name__ == "__main__":
    main()
