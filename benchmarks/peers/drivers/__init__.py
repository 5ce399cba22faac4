"""One module a system: puts one workload to it, once, and prints one line of JSON. Each runs in its own environment."""
