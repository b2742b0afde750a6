"""Updates: signed bundles with another version, applied beside the old one and taken back when it is not well."""
