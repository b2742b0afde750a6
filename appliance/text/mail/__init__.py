"""Mails as bytes: the fields of their header, and what their parts say."""
