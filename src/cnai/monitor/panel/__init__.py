"""The live panel: a run as a web page.

In go run folders; out come a page, its data as JSON, what is new by server-sent events, and
`/metrics`. It reads files and never writes any, so that nothing that happens to it touches a run.
"""

from cnai.monitor.panel.access import Access
from cnai.monitor.panel.app import create_app
from cnai.monitor.panel.server import PanelServer, serve_panel

__all__ = ["Access", "PanelServer", "create_app", "serve_panel"]
