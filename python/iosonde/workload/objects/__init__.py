"""Whole objects in an object store: a Ceph cluster that iosonde starts, or an S3 server of the user."""
