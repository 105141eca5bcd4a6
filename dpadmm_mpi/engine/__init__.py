"""The loop, rows on their way to rank 0, stopping, several configurations at once, the self-test, and what a run will cost."""
