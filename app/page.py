"""The web page: the files of its build, listed once at start.

Only what is in the list has a route, so no path can lead out of the folder. Files under `assets/`
have their contents' hash in the name and never change; all others are asked for again each time.
aiohttp sends a precompressed sibling (`.br`, `.gz`) by itself where a browser takes it.
"""

from pathlib import Path

from aiohttp import web

from app.place import place_of

INDEX = "index.html"
_COMPRESSED = frozenset({".br", ".gz", ".zst"})
_NOT_BUILT = (
    "The page is not built. Build it with `make page` and start the server again.\n"
    "The API is at /v1 all the same.\n"
)


class Page:
    """The built page, or the lack of one."""

    def __init__(self, folder: Path | None) -> None:
        self._file_by_path = {} if folder is None else _files(folder.resolve())

    @property
    def is_built(self) -> bool:
        """Whether there is a page to serve."""
        return INDEX in self._file_by_path

    def routes(self) -> list[web.RouteDef]:
        """`/` and one route a file; what isn't there is nobody's route."""
        files = [web.get(f"/{path}", self._file) for path in self._file_by_path]
        return [web.get("/", self._index), *files]

    async def _index(self, request: web.Request) -> web.StreamResponse:
        if not self.is_built:
            return web.Response(status=404, text=_NOT_BUILT)
        return self._serve(INDEX)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._serve(place_of(request).removeprefix("/"))

    def _serve(self, path: str) -> web.FileResponse:
        is_hashed = path.startswith("assets/")
        caching = "public, max-age=31536000, immutable" if is_hashed else "no-cache"
        return web.FileResponse(self._file_by_path[path], headers={"Cache-Control": caching})


def _files(root: Path) -> dict[str, Path]:
    """List the files under a folder by their path on the web; links that lead out are left out."""
    return {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix not in _COMPRESSED and path.resolve().is_relative_to(root)
    }
