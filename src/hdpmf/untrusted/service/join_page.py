"""The page that the link of an invitation opens: it hands the link to the person's app.

What is behind the link's ``#`` is told to nobody, here neither: the page has no way out but a link
that the person taps, and browsers keep what is behind a ``#`` to themselves.
"""

import base64
from hashlib import sha256
from html import escape

_STYLE = """
main { font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 1rem auto; padding: 0 }
a, button { font: inherit; display: inline-block; padding: .6rem 1rem; border-radius: .5rem;
  border: 1px solid currentColor; background: none; color: inherit; text-decoration: none }
input { font: inherit; width: 100%; box-sizing: border-box; padding: .6rem; margin-bottom: .6rem }
:root { color-scheme: light dark }
"""

_SCRIPT = r"""
const link = location.href, at = (id) => document.getElementById(id);
const whole = /^#[\w-]{43}(\.[\w-]{32})?$/.test(location.hash);
at(whole ? "whole" : "cut").hidden = false;
at("one").hidden = !location.hash.includes(".");
at("link").value = link;
at("copy").onclick = () => {
  at("link").select();
  navigator.clipboard.writeText(link).then(() => { at("copy").textContent = "Copied"; });
};
if (at("app")) at("app").href = at("app").dataset.app + "#" + link;
"""

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>An invitation</title><style>{style}</style><main>
<h1>You are invited</h1>
<p>Here you get recommendations without giving your ratings away. They stay on your device. Of the
sealed reports that leave it, two servers of different organisations make nothing but sums, with
noise.</p>
<div id="whole" hidden>
{app}<p><label for="link">{paste}</label></p>
<input id="link" readonly><button id="copy">Copy</button>
<p>Before you agree, it shows who runs the two servers.</p>
<p id="one">This link is for one person: pass it to nobody else.</p>
</div>
<p id="cut" hidden>The link is cut off: ask for the whole one.</p>
<noscript><p>Copy the whole address of this page, and paste it into the app.</p></noscript>
</main><script>{script}</script>
"""

_APP = '<p><a id="app" rel="noreferrer" data-app="{app}">Open in the app</a></p>\n'
_PASTE = "Copy the link, and paste it into the app or the browser extension."


def _source(text: str) -> str:
    """Return what allows just this text in a content security policy."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        f"default-src 'none'; script-src {_source(_SCRIPT)}; style-src {_source(_STYLE)}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def join_page(app: str) -> str:
    """Return the page.

    Args:
        app: Address of the app that it opens; empty for none.
    """
    opens = _APP.format(app=escape(app)) if app else ""
    paste = f"Or: {_PASTE[0].lower()}{_PASTE[1:]}" if app else _PASTE
    return _PAGE.format(style=_STYLE, script=_SCRIPT, app=opens, paste=paste)
