"""The record of conversations: sessions, runs, turns, events, branches, transcripts, the outbox."""
