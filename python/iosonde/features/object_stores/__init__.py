"""Whole objects in an object store: a Ceph cluster that iosonde starts, or an S3 server of the user.

`run.py` starts the cluster of a run (`ceph`), and stops one of its object daemons.
"""

TOPICS = (("objects", "Object stores"),)
