"""The owner's page in the browser (``hdpmf device open``)."""
