"""Tiny packages on disk: wheels, and a source that runs code when it is built."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def index(folder: Path) -> dict[str, str]:
    """The variables with which uv finds packages in this folder, and nowhere else."""
    return {"UV_FIND_LINKS": str(folder), "UV_NO_INDEX": "true", "UV_OFFLINE": "true"}


def wheel(folder: Path, name: str, version: str = "1.0", needs: tuple[str, ...] = (), code: str = "") -> str:
    """Writes a wheel with one module. Returns its hash, as locks write it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in needs)]
    files = {
        f"{name}.py": code or f"version = {version!r}\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={encoded(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def source(folder: Path, name: str, build: str) -> None:
    """Writes a source distribution with a build backend of its own, whose `build_wheel` is this code."""
    folder.mkdir(exist_ok=True)
    backend = f"""
import os, sys, zipfile
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
{build}
    path = os.path.join(wheel_directory, "{name}-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("{name}.py", locals().get("noted", ""))
        archive.writestr("{name}-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        archive.writestr("{name}-1.0.dist-info/WHEEL", WHEEL)
        archive.writestr("{name}-1.0.dist-info/RECORD", "")
    return os.path.basename(path)
"""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n',
        "backend.py": backend,
    }
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
