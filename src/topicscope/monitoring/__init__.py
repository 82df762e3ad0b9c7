"""Topic structure while a model trains: what is measured, when, and what it costs."""
