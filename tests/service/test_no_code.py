"""Nothing that the service loads is run: no module can do it, and hostile model files are refused before they cost."""

import ast
import io
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import spuir
from spuir import Bandit
from spuir.service.commands import CreateExperiment, ImportModel
from spuir.service.settings import ExperimentSettings
from tests.service.api.servers import RunningServer, code, create_shop, running_server

HOUSE = Path(spuir.__file__).parent
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code", "codeop"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
ROOMS = ("service", "storage", "base", "core", "policies", "features", "sketches", "tables")
"""What a model file or a request passes through."""


def modules() -> list[Path]:
    return [module for room in ROOMS for module in sorted((HOUSE / room).rglob("*.py"))]


def dangers(source: str) -> Iterator[str]:
    """Yield what in a module could run data as code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LOADERS:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in RUNNERS:
                yield node.func.id
            yield from ("allow_pickle" for word in node.keywords if word.arg == "allow_pickle" and _is_true(word.value))


def _is_true(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is False)


def test_dangers_are_found() -> None:
    source = "import pickle\nfrom marshal import loads\neval('1')\nnp.load(x, allow_pickle=True)\nre.compile('a')\n"
    assert set(dangers(source)) == {"pickle", "marshal", "eval", "allow_pickle"}


def test_no_module_on_the_way_of_a_model_can_run_data() -> None:
    assert len(modules()) > 80
    assert {str(module): found for module in modules() if (found := list(dangers(module.read_text("utf-8"))))} == {}


class _Trap:
    """An object whose pickle creates a file when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("trapped", "w")


def archives() -> Iterator[tuple[str, bytes]]:
    """Yield archives with members outside of where they are unpacked."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        zipped.writestr("../../trapped", "x")
    yield "zip", content.getvalue()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        link = tarfile.TarInfo("model")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    yield "tar", content.getvalue()


def hostile() -> dict[str, bytes]:
    """Return model files that nobody should load, made from a sound one."""
    sound = (
        Bandit("puir", ["red", "green", "blue"]).partial_fit(np.eye(3), ["red", "green", "blue"], [1, 0, 1]).to_bytes()
    )
    objects = io.BytesIO()
    np.save(objects, np.array([_Trap()], dtype=object), allow_pickle=True)
    files = {
        "nothing": b"",
        "text": b"a model",
        "pickle": pickle.dumps(_Trap()),
        "object array": objects.getvalue(),
        "cut": sound[: len(sound) // 2],
        "longer": sound + b"x",
        "flipped": sound[:-40] + bytes([sound[-40] ^ 1]) + sound[-39:],
    }
    # The head of a snapshot says how long its header is: 4 GiB, and the most that fits.
    for place in range(4, 24, 4):
        for length in (2**32 - 1, 2**31):
            files[f"length {length} at {place}"] = sound[:place] + struct.pack("<I", length) + sound[place + 4 :]
    return files | dict(archives())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("hostile")) as running:
        with running.client() as client:
            create_shop(client, policy="puir")
        yield running


@pytest.mark.parametrize("name", hostile())
def test_a_hostile_model_is_refused_and_leaves_nothing(
    name: str, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = server.records()
    with server.client() as client:
        answer: httpx.Response = client.post(
            "/v1/experiments/shop/model", content=hostile()[name], headers={"Content-Type": "application/octet-stream"}
        )
    assert (answer.status_code, code(answer)) == (400, "invalid")
    assert server.records() == before
    assert not list(tmp_path.iterdir())


def test_a_length_of_four_gigabytes_is_refused_before_it_is_allocated(server: RunningServer) -> None:
    engine = server.service.engine
    files = [content for name, content in hostile().items() if name.startswith("length")]
    tracemalloc.start()
    for content in files:
        (answer,) = engine.execute([ImportModel(experiment="shop", model=content)])
        assert isinstance(answer, Exception)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**26


def test_a_sound_model_is_taken(server: RunningServer) -> None:
    engine = server.service.engine
    settings = ExperimentSettings(actions=["red", "green", "blue"], policy="puir", window=None)
    engine.execute([CreateExperiment(experiment="sound", settings=settings)])
    bandit = Bandit("puir", ["red", "green", "blue"]).partial_fit(np.eye(3), ["red", "green", "blue"], [1, 0, 1])
    engine.execute([ImportModel(experiment="sound", model=bandit.to_bytes())])
    assert engine.experiment("sound").version == 1
