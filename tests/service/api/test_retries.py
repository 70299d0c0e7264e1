"""Requests that are sent again: one record, one answer; another body under the same id is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.api.servers import CONTEXT, RunningServer, code, create_shop

TIMES = 32


@pytest.fixture
def shop(open_server: RunningServer, request: pytest.FixtureRequest) -> str:
    """The address of an experiment of this test."""
    name = f"retry-{abs(hash(request.node.name)) % 10**9}"
    with open_server.client() as client:
        create_shop(client, name)
    return f"/v1/experiments/{name}"


def records(server: RunningServer, shop: str) -> int:
    return server.records(shop.rpartition("/")[2])


def together(server: RunningServer, address: str, body: dict) -> list:
    """Send the same request many times at once, each over a connection of its own."""

    def send(_: int):
        with server.client() as client:
            return client.post(address, json=body)

    with ThreadPoolExecutor(TIMES) as pool:
        return list(pool.map(send, range(TIMES)))


def test_a_decision_sent_again_is_answered_as_before(open_server: RunningServer, shop: str) -> None:
    with open_server.client() as client:
        body = {"id": "d1", "context": CONTEXT}
        first = client.post(f"{shop}/decisions", json=body).json()
        before = records(open_server, shop)
        again = client.post(f"{shop}/decisions", json=body).json()
        assert again == {**first, "replayed": True}
        assert first["replayed"] is False
        answer = client.post(f"{shop}/decisions", json={"id": "d1", "context": CONTEXT[::-1]})
        assert (answer.status_code, code(answer)) == (409, "conflict")
        assert records(open_server, shop) == before


def test_the_same_decision_many_times_at_once_is_one_record(open_server: RunningServer, shop: str) -> None:
    before = records(open_server, shop)
    answers = together(open_server, f"{shop}/decisions", {"id": "d1", "context": CONTEXT})
    assert [answer.status_code for answer in answers] == [200] * TIMES
    bodies = [answer.json() for answer in answers]
    assert sum(not body.pop("replayed") for body in bodies) == 1
    assert all(body == bodies[0] for body in bodies)
    assert records(open_server, shop) == before + 1


def test_the_same_reward_many_times_at_once_is_one_record(open_server: RunningServer, shop: str) -> None:
    with open_server.client() as client:
        client.post(f"{shop}/decisions", json={"id": "d1", "context": CONTEXT})
    before = records(open_server, shop)
    answers = together(open_server, f"{shop}/rewards", {"id": "r1", "decision_id": "d1", "reward": 0.5})
    statuses = sorted(answer.json()["status"] for answer in answers)
    assert statuses == ["duplicate"] * (TIMES - 1) + ["joined"]
    assert records(open_server, shop) == before + 1
    with open_server.client() as client:
        answer = client.post(f"{shop}/rewards", json={"id": "r1", "decision_id": "d1", "reward": 0.7})
        assert (answer.status_code, code(answer)) == (409, "conflict")
        assert client.get(f"{shop}/decisions/d1").json()["reward"] == 0.5


def test_a_batch_sent_again_is_answered_as_before(open_server: RunningServer, shop: str) -> None:
    body = {"decisions": [{"id": f"d{number}", "context": CONTEXT} for number in range(5)]}
    with open_server.client() as client:
        first = client.post(f"{shop}/decisions", json=body).json()["decisions"]
        before = records(open_server, shop)
        again = client.post(f"{shop}/decisions", json=body).json()["decisions"]
    assert again == [{**one, "replayed": True} for one in first]
    assert records(open_server, shop) == before


def test_an_experiment_created_again_is_answered_as_before(open_server: RunningServer, shop: str) -> None:
    body = {"name": "twice", "actions": 3, "seed": 1}
    with open_server.client() as client:
        assert client.post("/v1/experiments", json=body).status_code == 201
        assert client.post("/v1/experiments", json=body).status_code == 200
        answer = client.post("/v1/experiments", json={**body, "actions": 4})
        assert (answer.status_code, code(answer)) == (409, "exists")


def test_many_different_decisions_at_once_are_all_recorded(open_server: RunningServer, shop: str) -> None:
    """Requests of many connections share commits, and each gets its own answer."""
    before = records(open_server, shop)

    def send(number: int):
        with open_server.client() as client:
            rows = [f"d{number}-{row}" for row in range(10)]
            return [client.post(f"{shop}/decisions", json={"id": one, "context": CONTEXT}).json()["id"] for one in rows]

    with ThreadPoolExecutor(16) as pool:
        answered = [one for part in pool.map(send, range(16)) for one in part]
    assert len(set(answered)) == len(answered) == 160
    assert records(open_server, shop) == before + 160
    with open_server.client() as client:
        for one in answered[::20]:
            assert client.get(f"{shop}/decisions/{one}").json()["status"] == "pending"


def test_late_early_unknown_and_duplicate_rewards_get_their_own_answer(open_server: RunningServer, shop: str) -> None:
    with open_server.client() as client:
        client.post(f"{shop}/decisions", json={"id": "d1", "context": CONTEXT})
        one = {"id": "r1", "decision_id": "d1", "reward": 1}
        first = client.post(f"{shop}/rewards", json=one)
        assert (first.status_code, first.json()["status"]) == (200, "joined")
        again = client.post(f"{shop}/rewards", json=one)
        assert (again.status_code, again.json()["status"]) == (200, "duplicate")
        early = client.post(f"{shop}/rewards", json={"decision_id": "d2", "reward": 1})
        assert (early.status_code, early.json()["status"]) == (202, "early")
        assert client.post(f"{shop}/episodes/close").json() == {"rows": 1, "version": 1}
        late = client.post(f"{shop}/rewards", json={"id": "r2", "decision_id": "d1", "reward": 1})
        assert (late.status_code, late.json()["status"]) == (202, "late")
        assert client.get(f"{shop}/decisions/d1").json()["used_in"] == 1
        client.patch(shop, json={"early": None})
        before = records(open_server, shop)
        unknown = client.post(f"{shop}/rewards", json={"decision_id": "d3", "reward": 1})
        assert (unknown.status_code, code(unknown)) == (404, "unknown_decision")
        assert records(open_server, shop) == before + 1, "it is recorded all the same"
        several = client.post(f"{shop}/rewards", json={"rewards": [one, {"decision_id": "d4", "reward": 1}]}).json()
        assert [answer["status"] for answer in several["rewards"]] == ["duplicate", "unknown"]


@pytest.mark.parametrize("written", ["[1,-0,2.50]", "[ 1.0, 0, 25e-1 ]", f"[1,{' ' * 500}0,2.5]"])
def test_numbers_written_in_another_way_are_the_same_context(
    open_server: RunningServer, shop: str, written: str
) -> None:
    how = {"Content-Type": "application/json"}
    with open_server.client() as client:
        first = client.post(f"{shop}/decisions", json={"id": "d1", "context": [1.0, 0.0, 2.5]}).json()
        before = records(open_server, shop)
        body = f'{{"id": "d1", "context": {written}}}'
        assert client.post(f"{shop}/decisions", content=body, headers=how).json() == {**first, "replayed": True}
        assert records(open_server, shop) == before
        other = f'{{"decisions": [{{"id": "d2", "context": {written}}}]}}'
        assert client.post(f"{shop}/decisions", content=other, headers=how).status_code == 200
        again = client.post(f"{shop}/decisions", json={"id": "d2", "context": [1.0, 0.0, 2.5]}).json()
        assert again["replayed"] is True
