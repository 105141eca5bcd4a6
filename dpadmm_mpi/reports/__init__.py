"""What people read: tables, exports, the HTML report, and a look at a run that is under way."""
