"""Doors for people and programs: one module a door."""
