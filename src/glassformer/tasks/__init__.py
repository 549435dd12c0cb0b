"""What can be learnt: a folder a task, and what all tasks share."""
