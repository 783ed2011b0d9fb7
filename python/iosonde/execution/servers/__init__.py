"""Servers of a session: started before a run or loaded once as a template, observed during it, and removed after it."""
