"""Figures: from views of a study to Vega-Lite and to files."""
