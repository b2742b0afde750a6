"""Model providers: one file per kind of model, each a plug behind `pool`; nothing else imports them."""
