"""Code that knows neither the private nor the untrusted side."""
