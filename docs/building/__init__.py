"""What the site needs beside its pages: links that work in both places, docstrings, and the generated reference."""
