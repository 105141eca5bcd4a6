"""The methods: mathematics only, no messages and no files."""
