"""Pictures and pages drawn from records alone: plain dicts and tables in, figures and HTML out; no model is loaded."""
