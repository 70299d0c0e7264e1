"""How versions come about: rows joined from the log, learned in a process of their own, or learned again."""
