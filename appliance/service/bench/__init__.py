"""The everyday set: requests that a person makes, put to a model in a home of its own, and judged by program."""
