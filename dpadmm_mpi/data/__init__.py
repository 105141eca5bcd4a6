"""Records: where they come from and how they are spread over the nodes."""
