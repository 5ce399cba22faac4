"""The dashboard: pages made on the server, a little JavaScript, nothing from elsewhere.

A map:

    routes       which path shows which page; `routes(...)` is what the server mounts
    pages/       one module a topic: what is read (from `holdfast.views`) and which template shows it
    actions      what forms post: cancel, pause, resume, retry, fork, signal, schedules, queues
    render       templates, their filters, and what every page knows
    words        times, lengths and statuses in a person's terms
    json_view    payloads as collapsible text, always escaped
    gantt        a timeline as places on the page
    diagram      a graph as boxes and curves
    templates/ static/

There is no inline script and no style attribute anywhere: the Content-Security-Policy forbids both. What must be placed
is drawn with SVG attributes. Whatever came from users (names, payloads, errors, keys) reaches a page as text.
"""
