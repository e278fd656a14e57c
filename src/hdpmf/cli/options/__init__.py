"""Options that commands share. A name means the same in every command."""
