"""Methods that touch the records once: every node by itself and then consensus, or a curator with all records."""
