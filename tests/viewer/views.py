"""Every view of the viewer, with an address at which the made history has something to show."""

from __future__ import annotations

from playwright.sync_api import Page

VIEWS = {
    "home": "/",
    "search": "/search?q=tax",
    "sessions": "/sessions",
    "session": "/session/1",
    "observation": "/observation/1",
    "projects": "/projects",
    "project": "/project/1",
    "project-files": "/project/1?tab=files",
    "project-timeline": "/project/1?tab=timeline",
    "project-manage": "/project/1?tab=manage",
    "context": "/context?project=1",
    "worth": "/worth",
    "cost": "/cost",
    "health": "/health",
    "logs": "/logs",
    "settings": "/settings",
    "quarantine": "/quarantine",
    "changes": "/changes",
}
# No answer is awaited and nothing is being put together any more, for two pictures in a row.
QUIET = """async () => {
  const still = () => !window.__asking && !document.querySelector("#view[aria-busy]") && document.fonts.status === "loaded";
  const frame = () => new Promise(requestAnimationFrame);
  for (let calm = 0; calm < 2; calm = still() ? calm + 1 : 0) await frame();
}"""


def show(page: Page, path: str) -> Page:
    """Open a view and wait until all of it is there and the worker is heard."""
    page.goto(path)
    page.locator("#live[data-state=live]").wait_for()
    return quiet(page)


def quiet(page: Page) -> Page:
    page.evaluate(QUIET)
    return page
