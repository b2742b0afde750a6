"""Model providers: one file per kind of model, each a plug behind `models.pool`; nothing else imports them.

The formats in which remote providers are asked are in `formats`.
"""
