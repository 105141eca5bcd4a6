"""Numbers that the theorems give: functions of what was released, never of the records."""
