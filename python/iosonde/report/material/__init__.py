"""Result sets of one study, and how their factors, levels and metrics are named."""
