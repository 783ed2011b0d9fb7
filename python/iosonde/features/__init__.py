"""The features of iosonde, one folder each. `FEATURES` is the one list of them.

A feature imports the core, never another feature, and the core imports none (`lint-imports`). How a folder extends the
core is in `iosonde.base.features`.
"""

FEATURES = (
    "iosonde.features.sustained_load",
    "iosonde.features.simulated_drives",
    "iosonde.features.key_value_stores",
    "iosonde.features.arrays",
    "iosonde.features.block_caches",
    "iosonde.features.kernel_trace",
    "iosonde.features.database_transactions",
    "iosonde.features.paging",
    "iosonde.features.graph",
    "iosonde.features.ai",
    "iosonde.features.object_stores",
    "iosonde.features.external_commands",
    "iosonde.features.swap_areas",
    "iosonde.features.nvme_driver",
    "iosonde.features.rate_limits",
    "iosonde.features.many_hosts",
    "iosonde.features.network_storage",
)
"""Packages of the features, in the order in which what they contribute is listed."""
