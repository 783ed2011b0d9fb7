"""Questions that a study asks (`[[analysis]]`), one file each: arithmetic, typed findings, sentences."""
