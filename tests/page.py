"""The page of `yggc serve` in a browser: `python3 tests/page.py URL [FOLDER [QUESTION]]`, for a server that runs.

Needs the package playwright and a Chromium (PATH, as `chromium`). Asks a question, compares with plain decoding, and checks what the
page shows, on a wide and a narrow screen, light and dark. Then models, tools, drafters and errors say what would be markup, and all of it must
be shown as text: once as the server itself answers, made to by a constraint, and once in the place of the server, in every field that it
sends. Screenshots go to FOLDER (docs/images has two, of the default model). .ci/clients runs it.
"""

import json
import pathlib
import shutil
import sys

from playwright.sync_api import expect, sync_playwright

SCREENS = [("wide", 1280, 900), ("phone", 390, 844)]


def check(browser, url, scheme, screen, folder, question):
    name, width, height = screen
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else faults.append(asked.url))
    page.goto(url)
    expect(page.locator("#model")).to_contain_text("version")
    page.get_by_text("Settings").click()
    page.get_by_label("Most tokens").fill("120")
    page.get_by_label("Drafter", exact=True).fill("lookup")
    page.get_by_label("Message").fill(question)
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_role("button", name="Compare")).to_be_enabled(timeout=120_000)
    expect(page.locator("#state")).to_be_empty()
    expect(page.locator("#talk li")).to_have_count(2)
    expect(page.locator("#talk b")).to_have_text(["You", "Model"])
    expect(page.locator("#by")).to_have_text("lookup")
    assert page.locator("#talk .assistant .token").count() > 3, "tokens are shown"
    assert page.locator("#trees figure").count() > 0, "trees are shown"
    assert "lookup" in page.locator("#names").inner_text(), "the legend names who drafted"
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#same")).to_have_text("The text is the same.", timeout=120_000)
    expect(page.locator("#gain")).to_contain_text("times")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} pixels on a screen of {width}"
    if folder:
        page.screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#talk li")).to_have_count(0)
    # A refusal is shown, and the next question is asked without what was refused.
    page.get_by_label("Drafter", exact=True).fill("oracle")
    page.get_by_label("Message").fill("<b>bold</b>")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#talk .user")).to_contain_text("<b>bold</b>")
    expect(page.locator("#state")).to_contain_text("drafter")
    faults = [fault for fault in faults if "status of 400" not in fault]
    assert not faults, faults
    page.close()


# Each calls a function of the page if a browser takes it for markup.
MARKUP = [
    "<img src=x onerror=hit()>",
    "</span><script>hit()</script>",
    "<svg onload=hit()>",
    "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
    "<a href=javascript:hit() id=state>x</a>",
]


def stream(markup):
    """An answer that has the markup wherever a server could put a text of a model, of a client or of a plan."""
    node = {"text": markup, "drafters": [markup], "accepted": True}
    step = {"rows": 2, "accepted": 1, "tree": [node | {"parent": None}, node | {"parent": 0}, node | {"parent": 0, "accepted": False}]}
    call = {"index": 0, "id": markup, "type": "function", "function": {"name": markup, "arguments": json.dumps({markup: markup})}}
    report = {"drafter": markup, "tokens_per_s": 1.0, "average_accepted_length": 1.0, "drafted": 1, "accepted": 1, "speculation_off": markup}
    deltas = [({"role": markup, "content": ""}, {}), ({"content": markup}, {"drafters": [markup], "step": step}), ({"tool_calls": [call]}, {})]
    chunks = [{"id": markup, "model": markup, "choices": [{"index": 0, "delta": delta}], "yggc": about} for delta, about in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": markup}], "yggc": {"report": report}})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def check_markup(browser, url, markup):
    page = browser.new_page()
    hits, faults = [], []
    page.expose_function("hit", lambda: hits.append(markup))
    page.on("dialog", lambda dialog: (hits.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else faults.append(asked.url))
    answer = "**/v1/chat/completions"
    page.route(url, lambda route: route.fulfill(json={"model": markup, "version": markup}) if "json" in route.request.headers.get("accept", "") else route.fallback())
    page.goto(url)
    expect(page.locator("#model")).to_contain_text(markup)
    elements = page.locator("body *").count()

    def ask(question):
        page.get_by_label("Message").fill(question)
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#send")).to_be_enabled(timeout=120_000)
        expect(page.locator("img, svg, iframe, a, script:not([nonce])")).to_have_count(0)
        expect(page.locator("#talk .user").last).to_contain_text(question)

    # The server's own words: the model can say nothing but the markup.
    constraint = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": markup}}}}
    with_more = lambda more: lambda route: route.continue_(post_data=json.dumps(route.request.post_data_json | more))
    page.route(answer, with_more(constraint))
    ask(markup)
    expect(page.locator("#state")).to_be_empty()
    expect(page.locator("#talk .assistant")).to_contain_text(json.dumps(markup, ensure_ascii=False))
    # Errors that repeat what was sent.
    for more in ({"drafter": markup}, {"model": markup}, {"messages": [{"role": markup, "content": "x"}]}, {markup: 1, "stop": [""] * 99}):
        page.unroute(answer)
        page.route(answer, with_more(more))
        ask(markup)
        expect(page.locator("#state")).to_contain_text("Failed: ")
    # What no server of ours says, in every field.
    page.unroute(answer)
    page.route(answer, lambda route: route.fulfill(content_type="text/event-stream", body=stream(markup)))
    ask(markup)
    expect(page.locator("#talk .assistant").last).to_contain_text(markup)
    for place in ("#by", "#off", "#names", "#trees"):
        expect(page.locator(place)).to_contain_text(markup)
    page.unroute(answer)
    page.route(answer, lambda route: route.fulfill(status=500, json={"error": {"message": markup}}))
    ask(markup)
    expect(page.locator("#state")).to_have_text(f"Failed: {markup}")
    page.unroute(answer)
    page.route(answer, lambda route: route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps({'error': {'message': markup}})}\n\n"))
    ask(markup)
    expect(page.locator("#state")).to_have_text(f"Failed: {markup}")
    assert not hits, f"{hits} was run"
    assert not faults, faults
    assert page.locator("body *").count() > elements, "nothing was shown"
    page.close()


def main():
    url = sys.argv[1].rstrip("/") + "/"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    question = sys.argv[3] if len(sys.argv) > 3 else "one and one and one"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"])
        for scheme in ("light", "dark"):
            for screen in SCREENS:
                check(browser, url, scheme, screen, folder, question)
        for markup in MARKUP:
            check_markup(browser, url, markup)
        browser.close()
    print(f"{2 * len(SCREENS) + len(MARKUP)} passed, 0 failed")


if __name__ == "__main__":
    main()
