"""Stands between the store and DynamoDB: counts requests, gives answers of its own, and can be gone for a while.

DynamoDB Local never says that a transaction was in another one's way; the real service does. Here it can be said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import ClientSession, web

from tests.servers.process import free_port

Answer = tuple[int, dict[str, Any]]


class Proxy:
    """`answer(operation, request)` may return a status and a body, or None to pass the request on."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self.counts: Counter[str] = Counter()
        self.answer: Callable[[str, dict[str, Any]], Answer | None] = lambda operation, request: None
        self.alter: Callable[[str, dict[str, Any]], object] = lambda operation, answer: None
        """May change what DynamoDB has answered."""
        self.lose_answers = False
        self.bad_shard: int | None = None
        """A shard whose partition is throttled: of a batch only its items fail."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=20_000_000)
        app.router.add_post("/", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        body = await request.read()
        self.counts[operation] += 1
        answer = self.answer(operation, json.loads(body))
        if answer is not None:
            return web.json_response(answer[1], status=answer[0], content_type="application/x-amz-json-1.0")
        kept = ("X-Amz-Target", "X-Amz-Date", "Authorization", "Content-Type")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        if self.bad_shard is not None:
            return await self._throttled(operation, json.loads(body), headers)
        async with ClientSession() as session, session.post(self._behind, data=body, headers=headers) as response:
            content = await response.read()
        altered = json.loads(content)
        self.alter(operation, altered)
        content = json.dumps(altered).encode()
        if self.lose_answers and request.transport is not None:
            request.transport.close()
        return web.Response(body=content, status=response.status, content_type="application/x-amz-json-1.0")

    async def _throttled(self, operation: str, request: dict[str, Any], headers: dict[str, str]) -> web.Response:
        """Pass on what does not concern the bad shard, and add what the service says of the rest."""
        bad = {"N": str(self.bad_shard)}
        failure = {"Error": {"Code": "ThrottlingError", "Message": "slow down"}}
        places: list[bool] = []
        unprocessed: dict[str, Any] = {}
        if operation == "BatchExecuteStatement":
            places = [_shard_in(statement) == bad for statement in request["Statements"]]
            request["Statements"] = [one for one in request["Statements"] if _shard_in(one) != bad]
        elif operation == "BatchGetItem":
            [(table, asked)] = request["RequestItems"].items()
            refused = [key for key in asked["Keys"] if key["shard_id"] == bad]
            asked["Keys"] = [key for key in asked["Keys"] if key["shard_id"] != bad]
            unprocessed = {table: {**asked, "Keys": refused}} if refused else {}
        elif json.dumps(bad) in json.dumps(request):
            status, answer = error("ProvisionedThroughputExceededException", "slow down")
            return web.json_response(answer, status=status, content_type="application/x-amz-json-1.0")
        answer = {"Responses": {} if operation == "BatchGetItem" else []}
        if request.get("Statements", True) and all(asked["Keys"] for asked in request.get("RequestItems", {}).values()):
            body = json.dumps(request).encode()
            # The signature is of the whole request; DynamoDB Local does not look.
            async with ClientSession() as session, session.post(self._behind, data=body, headers=headers) as response:
                answer = json.loads(await response.read())
                if response.status != 200:
                    return web.json_response(answer, status=response.status, content_type="application/x-amz-json-1.0")
        if places:
            passed = iter(answer["Responses"])
            answer["Responses"] = [failure if is_bad else next(passed) for is_bad in places]
        if unprocessed:
            answer["UnprocessedKeys"] = unprocessed
        return web.json_response(answer, content_type="application/x-amz-json-1.0")


def _shard_in(statement: dict[str, Any]) -> dict[str, str]:
    """The shard's number: the first value of an insert, and in an update the first behind its WHERE."""
    text, values = statement["Statement"], statement["Parameters"]
    shard: dict[str, str] = values[0 if text.startswith("INSERT") else text.partition("WHERE")[0].count("?")]
    return shard


def cancelled(*codes: str) -> Answer:
    """The answer to a transaction that was refused, with one code for each of its actions."""
    return 400, {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": f"Transaction cancelled, specific reasons [{', '.join(codes)}]",
        "CancellationReasons": [{"Code": code} for code in codes],
    }


def error(code: str, message: str = "") -> Answer:
    return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
