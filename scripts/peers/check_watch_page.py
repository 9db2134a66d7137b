#!/usr/bin/env python3
"""Checks the live page of `hybrid watch` in headless Chromium, with a copy of a run that grows, rolls back and is
served again.

usage: scripts/peers/check_watch_page.py HYBRID RUN [PICTURES]      needs: chromium, pip install websocket-client
RUN has at least 1,600 steps. Writes screenshots at 1280 and 390 pixels, light and dark, to PICTURES. Exit code 0:
the page showed the folder's content within two seconds, without an overflow.
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import websocket

PORT, DEBUG_PORT = 8340, 9333
PROBE = """(() => {
  const data = report.data(), count = data.step.length, last = data.step[count - 1];
  const columns = [data.seconds, data.tokens, data.loss, data.host, data.phase, ...data.kinds.flatMap((k) => [k.live, k.peak])];
  const shown = Number(document.querySelector('#now small').textContent.replaceAll(',', '').match(/step (\\d+)/)[1]);
  return { first: data.step[0], last, shown, even: columns.every((column) => column.length === count),
    lost: !document.getElementById('connection').hidden, broken: document.querySelectorAll('svg path[d*=NaN]').length,
    overflow: document.documentElement.scrollWidth > innerWidth, stepsPerPoint: data.stepsPerPoint };
})()"""


class Page:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--remote-debugging-port={DEBUG_PORT}",
             "--remote-allow-origins=*", f"--user-data-dir={folder}/profile", "--hide-scrollbars",
             f"http://127.0.0.1:{PORT}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(5)
        with urllib.request.urlopen(f"http://127.0.0.1:{DEBUG_PORT}/json") as answer:
            tabs = json.load(answer)
        self.socket = websocket.create_connection(
            next(tab for tab in tabs if tab["type"] == "page")["webSocketDebuggerUrl"])
        self.calls = 0

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.calls:
                return answer["result"]

    def expect(self, what, **wanted):
        found = self.call("Runtime.evaluate", expression=PROBE, returnByValue=True)["result"]["value"]
        wanted = {"first": 1, "even": True, "lost": False, "broken": 0, "overflow": False, **wanted}
        wrong = {key: found[key] for key, value in wanted.items() if found[key] != value}
        print(f"{what}: {'as it should be' if not wrong else f'got {wrong}, want {wanted}'}")
        return not wrong

    def picture(self, path, width, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1900, deviceScaleFactor=1, mobile=width < 600)
        time.sleep(1)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


def main():
    hybrid, run = sys.argv[1], pathlib.Path(sys.argv[2])
    pictures = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[:1600]
    assert len(lines) == 1600, f"{run} has fewer than 1,600 steps"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        copy = pathlib.Path(scratch) / "copy"
        copy.mkdir()
        shutil.copy(run / "config.json", copy / "config.json")
        (copy / ".lock").touch()

        def put(first, last, mode="a"):
            with open(copy / "metrics.jsonl", mode) as file:
                file.writelines(lines[first:last])

        def serve():
            process = subprocess.Popen([hybrid, "watch", str(copy), "--port", str(PORT), "--interval", "1"],
                                       stdout=subprocess.DEVNULL)
            time.sleep(1)
            return process

        put(0, 100, "w")
        server = serve()
        page = Page(scratch)
        good = [page.expect("a page of 100 steps", last=100, shown=100)]
        for what, first, last, mode in (("30 more steps", 100, 130, "a"), ("the run goes back", 0, 60, "w"),
                                        ("and goes on", 60, 90, "a"), ("it was rewritten and is longer", 0, 150, "w")):
            put(first, last, mode)
            time.sleep(2)
            good.append(page.expect(what, last=last, shown=last))
        server.terminate()
        good.append(server.wait() == 0)
        put(150, 170)
        time.sleep(1)
        good.append(page.expect("the server is away", last=150, shown=150, lost=True))
        server = serve()
        time.sleep(3)
        good.append(page.expect("the server is back", last=170, shown=170))
        put(170, 1600)
        time.sleep(3)
        good.append(page.expect("so many steps that points are merged", first=2, last=1600, shown=1600, stepsPerPoint=2))
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                if pictures:
                    pictures.mkdir(parents=True, exist_ok=True)
                    page.picture(pictures / f"{width}-{scheme}.png", width, scheme)
        page.call("Browser.close")
        page.process.wait()
        server.kill()
    return 0 if all(good) else 1


sys.exit(main())
