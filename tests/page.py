"""The page of `yggc serve` in a browser: `python3 tests/page.py URL [FOLDER [QUESTION]]`, for a server that runs.

Needs the package playwright and a Chromium (PATH, as `chromium`). Asks a question, compares with plain decoding, and checks what the
page shows, on a wide and a narrow screen, light and dark. Screenshots go to FOLDER (docs/images has two, of the default model). .ci/clients runs it.
"""

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


def main():
    url = sys.argv[1].rstrip("/") + "/"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    question = sys.argv[3] if len(sys.argv) > 3 else "one and one and one"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for screen in SCREENS:
                check(browser, url, scheme, screen, folder, question)
        browser.close()
    print("4 passed, 0 failed")


if __name__ == "__main__":
    main()
