"""Owlbox: a private assistant that lives in a small box."""

__version__ = "0.1.0"
