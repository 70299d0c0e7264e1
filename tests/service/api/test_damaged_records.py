"""A record that was damaged while the service runs: a request that needs it is answered, and so are its neighbours."""

import sqlite3
from pathlib import Path

import pytest

from tests.service.api.servers import CONTEXT, RunningServer, code, create_shop, running_server

ONE = "/v1/experiments/shop"


def damage(server: RunningServer, kind: str, key: str, payload: bytes) -> None:
    """Overwrite the payload of a record behind the back of the service."""
    store = sqlite3.connect(server.folder / "log.db")
    changed = store.execute("UPDATE record SET payload = ? WHERE kind = ? AND key = ?", (payload, kind, key)).rowcount
    store.commit()
    store.close()
    assert changed == 1


@pytest.mark.parametrize("payload", [b"{", b"\xff\x00", b"{}", b'{"context": [9, 9, 9]}'])
def test_repeating_a_damaged_decision_or_reward_is_answered(tmp_path: Path, payload: bytes) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        create_shop(client)
        for name in ("broken", "whole"):
            decision = {"id": name, "context": CONTEXT, "defer": True}
            assert client.post(f"{ONE}/decisions", json=decision).status_code == 200
            reward = {"id": f"of {name}", "decision_id": name, "reward": 1}
            assert client.post(f"{ONE}/rewards", json=reward).status_code == 200
        damage(server, "decision", "broken", payload)
        damage(server, "reward", "of broken", payload)
        before = server.records()
        for method, address, body in [
            ("POST", f"{ONE}/decisions", {"id": "broken", "context": CONTEXT, "defer": True}),
            ("POST", f"{ONE}/decisions", {"decisions": [{"id": "broken", "context": CONTEXT, "defer": True}]}),
            ("POST", f"{ONE}/decisions/broken/activate", None),
            ("GET", f"{ONE}/decisions/broken", None),
            ("GET", f"{ONE}/log", None),
        ]:
            answer = client.request(method, address, json=body)
            assert (answer.status_code, code(answer)) == (503, "damaged"), address
            assert "--check" in answer.json()["error"]["remedy"]
        # The digest of the reward says what it was: the same one again is known, another one is a conflict.
        again = {"id": "of broken", "decision_id": "broken", "reward": 1}
        assert client.post(f"{ONE}/rewards", json=again).json()["status"] == "duplicate"
        assert code(client.post(f"{ONE}/rewards", json={**again, "reward": 2})) == "conflict"
        assert server.records() == before
        assert client.post(f"{ONE}/decisions", json={"id": "whole", "context": CONTEXT, "defer": True}).json()[
            "replayed"
        ]
        assert client.post(f"{ONE}/decisions/whole/activate").json()["status"] == "activated"
        assert "spuir_failures_total" not in client.get("/metrics").text
