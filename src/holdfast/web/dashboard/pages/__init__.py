"""One module a topic: what is read, and which template shows it."""
