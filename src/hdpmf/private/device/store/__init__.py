"""A person's store: one file, sealed with a passphrase if there is one."""
