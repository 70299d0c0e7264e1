"""The service without the libraries for data files, as ``pip install "spuir[service]"`` leaves it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path

for name in ("pyarrow", "pandas", "duckdb", "sklearn"):
    sys.modules[name] = None  # as if it were not installed

from tests.service.api.servers import create_shop, running_server

with running_server(Path(sys.argv[1])) as server, server.client() as client:
    for name, settings in (("shop", {"context": None}), ("empty", {})):
        create_shop(client, name, **settings)
    one = "/v1/experiments/shop"
    rows = [{"id": str(at), "context": {"age": at, "city": "Oslo" if at % 2 else "Rome"}} for at in range(20)]
    assert client.post(f"{one}/decisions", json={"decisions": rows}).status_code == 200
    client.post(f"{one}/rewards", json={"rewards": [{"decision_id": row["id"], "reward": 1} for row in rows]})
    assert client.post(f"{one}/episodes/close").json()["rows"] == 20
    assert client.get(one).json()["version"] == 1
    assert len(client.get(f"{one}/log").text.splitlines()) == 20
    for name in ("shop", "empty"):
        answer = client.get(f"/v1/experiments/{name}/log?format=parquet")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported"), answer.text
        assert "spuir[data]" in answer.json()["error"]["remedy"]
"""


def test_the_service_needs_no_libraries_for_data_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
