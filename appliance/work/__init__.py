"""What is done without a person waiting: tasks, workers, jobs, schedules, the heartbeat."""
