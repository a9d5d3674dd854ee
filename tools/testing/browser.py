"""What a headless Chromium makes of a page."""

import html
import json
import re
import shutil
import subprocess
import tempfile

from .marked_jobs import expect

LIMIT_S = 120
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# A page's own policy allows scripts that stand in it. LOOK is the body of a function.
SCRIPT = """<script>
addEventListener("load", () => setTimeout(() => {
  const made = document.createElement("pre");
  made.id = "seen";
  made.textContent = JSON.stringify((() => {
LOOK  })());
  document.body.append(made);
}, 300));
</script>"""


def seen(page, look, width=1400):
    """What `look`, lines of JavaScript, returns of a page that is shown; None without a browser. The page with the script lies beside it."""
    browser = next((path for path in map(shutil.which, NAMES) if path), None)
    if browser is None:
        return None
    looked = page.with_name("looked.html")
    looked.write_text(page.read_text().replace("</body>", SCRIPT.replace("LOOK", look) + "</body>"))
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}", f"--window-size={width},1000"]
        done = subprocess.run([*command, "--virtual-time-budget=3000", "--dump-dom", f"file://{looked}"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    expect(found is not None, "the browser shows no page", done.stdout[-2000:] + done.stderr[-2000:])
    return json.loads(html.unescape(found.group(1)))
