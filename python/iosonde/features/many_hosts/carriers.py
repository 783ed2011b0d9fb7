"""The carrier of `--hosts`."""

from iosonde.features.many_hosts.together import Together

CARRIERS = (Together(),)
