"""What commands share: options, output, and how experiments are run."""
