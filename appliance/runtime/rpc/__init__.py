"""What the method table tells beside answers: notifications, and the log of its calls."""
