"""Many result sets: kept and listed, over time, of several studies, of many targets, and judged for an application."""
