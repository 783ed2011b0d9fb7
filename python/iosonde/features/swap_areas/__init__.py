"""Swap areas on the target or on zram, and the kernel's settings for swap (docs/paging.md)."""
