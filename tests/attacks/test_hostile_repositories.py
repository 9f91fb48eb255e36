"""Addresses and repositories that are made to reach the server's network and files, or to run code on it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from attacks.other_user import CREW, as_root
from projects.git_server import commit, git, repository, serving
from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.ip_addresses import is_public
from windlass.projects import git as module
from windlass.projects.git import check_origin, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
PRIVATE = (
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1",
)  # fmt: skip


def fetched(url: str, to: Path, ref: str | None = None, **more: Any) -> Any:
    more = {"allow_local": True, **more}
    return fetch(url, ref, None, to / "source.zip", report=lambda _: None, **more)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("/srv/repository", "a path of a machine"),
        ("../repository", "a path of a machine"),
        ("file:///srv/repository", "a path of a machine"),
        ("ext::sh -c touch% /tmp/x", "a path of a machine"),
        ("fd::17/foo", "a path of a machine"),
        ("http://example.com/a", "not fetched with http://"),
        ("git://example.com/a", "not fetched with git://"),
        ("ftp://example.com/a", "not fetched with ftp://"),
        ("https://example.com/" + "a" * 2000, "longer than 2000"),
        ("https://user:s3cret@example.com/a", "has credentials in it"),
        ("https://s3cret@example.com/a", "has credentials in it"),
        ("ssh://git:s3cret@example.com/a", "has credentials in it"),
        ("ssh://-oProxyCommand=touch/a", "no valid form"),
        ("ssh://-x@example.com/a", "no valid form"),
        ("git@-oProxyCommand=touch:a", "a path of a machine"),
        ("https://example.com\\@127.0.0.1/a", "no valid form"),
        ("https://example.com/a?x=1", "no valid form"),
        ("https://example.com/a#x", "no valid form"),
        ("https://exa mple.com/a", "no valid form"),
        ("https://example.com/a\nb", "no valid form"),
        ("https://example.com:99999/a", "no valid form"),
        ("https://[::1/a", "no valid form"),
        ("https:///a", "no valid form"),
        ("https://example.com", "no valid form"),
    ],
)
def test_addresses_that_are_refused_before_anything_is_asked(url: str, words: str) -> None:
    with pytest.raises(ProjectError, match=words) as error:
        check_origin(url, None, None, allow_local=False)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("url", ["ext::sh -c touch% /tmp/x", "fd::17/foo", "../repository", "ftp://example.com/a"])
def test_the_setting_allows_no_programs(url: str) -> None:
    with pytest.raises(ProjectError):
        check_origin(url, None, None, allow_local=True)


@pytest.mark.parametrize(
    "ref",
    ["--upload-pack=touch /tmp/x", "-x", "a b", "main:refs/heads/x", "+main", "a..b", "HEAD^{tree}", "a@{1}", "*", ""],
)
def test_names_that_are_options_or_expressions(ref: str) -> None:
    with pytest.raises(ProjectError, match="no name of a branch"):
        check_origin("https://example.com/a", ref, None, allow_local=False)


@pytest.mark.parametrize("subfolder", ["../other", "a/../..", "a\\b", "a\nb"])
def test_subfolders_that_lead_elsewhere(subfolder: str) -> None:
    with pytest.raises(ProjectError):
        check_origin("https://example.com/a", None, subfolder, allow_local=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_in_private_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Also beside a public address: the client of git would take any of them."""
    assert not is_public(address)

    def resolve(_: str, port: int, **__: object) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (one, port)) for one in ("93.184.215.14", address)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ProjectError, match=r"crews.example has an address in a private network. Set WINDLASS_GIT"):
        fetched("https://crews.example/a", tmp_path, allow_local=False)


def test_public_addresses() -> None:
    assert all(map(is_public, ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e")))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]"])
def test_forms_of_the_loopback_address(tmp_path: Path, host: str) -> None:
    with pytest.raises(ProjectError, match=r"private network|can't be resolved"):
        fetched(f"https://{host}/a", tmp_path, allow_local=False)


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    repository(tmp_path / "served" / "crew", {"work.py": ""})
    with serving(tmp_path / "served") as (inner, seen):
        elsewhere = f"http://127.0.0.1:{inner}/crew/info/refs?service=git-upload-pack"
        with serving(tmp_path, answer=(301, elsewhere)) as (port, _):
            with pytest.raises(ProjectError, match=r"its server redirects to another address\. Give the address"):
                fetched(f"http://127.0.0.1:{port}/crew", tmp_path)
            assert seen == []


def test_hooks_filters_submodules_and_links_have_no_effect(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    folder = repository(
        tmp_path / "served" / "crew",
        {
            "work.py": "",
            ".gitattributes": "*.py filter=evil\n",
            ".gitmodules": f'[submodule "s"]\n\tpath = s\n\turl = ext::touch {touched}\n\tupdate = !touch {touched}\n',
        },
    )
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{git(folder, 'rev-parse', 'HEAD')},s")
    git(folder, "commit", "--quiet", "--message", "a submodule")
    git(folder, "config", "filter.evil.smudge", f"touch {touched}")
    written(folder / ".git" / "hooks", {"post-checkout": f"#!/bin/sh\ntouch {touched}\n"})
    (folder / ".git" / "hooks" / "post-checkout").chmod(0o755)
    with serving(tmp_path / "served") as (port, _):
        fetched(f"http://127.0.0.1:{port}/crew", tmp_path)
        assert not touched.exists()
        (folder / "passwd").symlink_to("/etc/passwd")
        commit(folder, {})
        with pytest.raises(ProjectError, match="'passwd' can't be deployed: it is a link with an absolute target"):
            fetched(f"http://127.0.0.1:{port}/crew", tmp_path)


def test_configuration_of_the_machine_and_of_the_user_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = tmp_path / "touched"
    home = written(tmp_path / "home", {".gitconfig": f'[url "ext::touch {touched} "]\n\tinsteadOf = http://\n'})
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(home))
    repository(tmp_path / "served" / "crew", {"work.py": ""})
    with serving(tmp_path / "served") as (port, _):
        fetched(f"http://127.0.0.1:{port}/crew", tmp_path, environment=dict(os.environ))  # noqa: TID251 - as the server
    assert not touched.exists()


def test_passwords_of_the_servers_user_are_not_sent(tmp_path: Path) -> None:
    home = written(tmp_path / "home", {".netrc": "machine 127.0.0.1 login git password s3cret\n"})
    repository(tmp_path / "served" / "crew", {"work.py": ""})
    with (
        serving(tmp_path / "served", password="s3cret") as (port, _),
        pytest.raises(ProjectError, match="other credentials"),
    ):
        fetched(f"http://127.0.0.1:{port}/crew", tmp_path, environment={"HOME": str(home)})


def test_git_connects_to_the_address_that_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of git would get no address of this name, or later another one than the server has checked."""
    repository(tmp_path / "served" / "crew", {"work.py": ""})
    with serving(tmp_path / "served") as (port, seen):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", port))])
        assert fetched(f"http://crews.example:{port}/crew", tmp_path).snapshot.files == 1
    assert {one.partition("/")[0] for one in seen} == {f"crews.example:{port}"}


def fake_git(folder: Path, script: str) -> Path:
    """A program that stands for git: what it does is what git does for a hostile repository or server."""
    program = written(folder, {"git": f"#!/bin/sh\n{script}\n"}) / "git"
    program.chmod(0o755)
    return program


@contextmanager
def instead_of_git(program: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda _: str(program))
        yield


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("head -c 3000000 /dev/zero > large", "it is larger than 500 MB"),
        ('case "$1" in archive) cat /dev/zero;; *) echo 0123;; esac', "it has more than 100 MB"),
        ('case "$1" in fetch) yes x | head -c 1000000 >&2; exit 1;; esac', "git reports: x"),
        ("printf 'fatal: \\033[2Jcleared' >&2; exit 1", r"git reports: fatal: \?\[2Jcleared"),
    ],
)
def test_what_is_too_large_or_prints_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(module, "LIMITED", module.LIMITED.replace("-f 1024000", "-f 2048"))
    program = fake_git(tmp_path / "bin", script)
    with instead_of_git(program, monkeypatch), pytest.raises(ProjectError, match=words):
        fetched("http://127.0.0.1:1/a", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_server_that_sends_a_little_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of git gives up only on one that sends less than 1 KB in a second."""
    monkeypatch.setattr(module, "SECONDS", 0.5)
    program = fake_git(tmp_path / "bin", "while :; do sleep 1; done")
    with instead_of_git(program, monkeypatch), pytest.raises(ProjectError, match="it took more than 0 s"):
        fetched("http://127.0.0.1:1/a", tmp_path)
    assert not any(isinstance(one, threading.Timer) for one in threading.enumerate())


def test_credentials_are_on_no_command_line_and_in_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo "$@" >> {tmp_path}/seen; env >> {tmp_path}/seen; echo "fatal: s3cret" >&2; exit 1'
    program = fake_git(tmp_path / "bin", script)
    with instead_of_git(program, monkeypatch), pytest.raises(ProjectError, match=r"git reports: fatal: \*\*\*"):
        fetched("http://127.0.0.1:1/a", tmp_path, variables={"GIT_PASSWORD": "s3cret"})
    seen = (tmp_path / "seen").read_text()
    assert "s3cret" not in seen
    assert "GIT_CONFIG_NOSYSTEM=1" in seen, "no configuration of the machine"


def test_over_ssh_only_the_checked_address_is_used_and_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "served" / "crew", {"work.py": ""})
    ssh = f'printf "%s\\n" "$@" > {tmp_path}/seen; shift $(($# - 1)); cd {tmp_path}/served; exec sh -c "$1"'
    written(tmp_path / "bin", {"ssh": f"#!/bin/sh\n{ssh}\n"})
    (tmp_path / "bin" / "ssh").chmod(0o755)
    address = [(0, 0, 0, "", ("93.184.215.14", 22))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address)
    path = {"PATH": f"{tmp_path}/bin:{os.defpath}", "SSH_AUTH_SOCK": "/agent", "GIT_SSH": "/evil"}
    url = f"git@crews.example:{folder}"
    found = fetched(url, tmp_path, allow_local=False, environment=path)
    assert found.snapshot.files == 1
    options = (tmp_path / "seen").read_text().splitlines()
    for one in ("HostName=93.184.215.14", "HostKeyAlias=crews.example", "StrictHostKeyChecking=yes", "BatchMode=yes"):
        assert one in options
    assert options[options.index("-F") + 1] == "/dev/null"
    assert "git@crews.example" in options
    for one in ("IdentityFile=none", "IdentitiesOnly=yes", "IdentityAgent=none", "UserKnownHostsFile=/dev/null"):
        assert one in options, "no key and no known host of the server's own user"


def test_over_ssh_the_key_is_that_of_the_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        f'for one in "$@"; do case "$one" in IdentityFile=*) stat -c %a "${{one#*=}}" > {tmp_path}/seen; '
        f'cat "${{one#*=}}" >> {tmp_path}/seen;; esac; done; env >> {tmp_path}/environment; '
        'echo "Permission denied (publickey)" >&2; exit 255'
    )
    written(tmp_path / "bin", {"ssh": f"#!/bin/sh\n{script}\n"})
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.215.14", 22))])
    path = {"PATH": f"{tmp_path}/bin:{os.defpath}", "SSH_AUTH_SOCK": "/agent"}
    with pytest.raises(ProjectError, match="other credentials"):
        fetched(
            "git@crews.example:a/b.git",
            tmp_path,
            allow_local=False,
            environment=path,
            variables={"GIT_SSH_KEY": "-----BEGIN KEY-----\r\nabc\r\n-----END KEY-----"},
        )
    assert (tmp_path / "seen").read_text() == "600\n-----BEGIN KEY-----\nabc\n-----END KEY-----\n"
    assert "SSH_AUTH_SOCK" not in (tmp_path / "environment").read_text()
    assert "abc" not in (tmp_path / "environment").read_text()


@as_root
def test_root_runs_git_as_another_user(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_git(open_folder / "bin", 'echo "fatal: $(id -u) $(id -G) $(ls -ld . | cut -c1-10)" >&2; exit 1')
    with instead_of_git(program, monkeypatch), pytest.raises(ProjectError, match=rf"{CREW.uid} {CREW.gid} drwx------"):
        fetched("http://127.0.0.1:1/a", open_folder, account=CREW)
    repository(open_folder / "served" / "crew", {"work.py": ""})
    with serving(open_folder / "served") as (port, _):
        assert fetched(f"http://127.0.0.1:{port}/crew", open_folder, account=CREW).snapshot.files == 1
