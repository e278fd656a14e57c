"""How contributions are summed."""
