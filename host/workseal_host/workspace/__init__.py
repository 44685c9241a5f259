"""What lies in a workspace: scan, ignore policy, tree, digest, manifest, diff. Knows nothing of tools.

Pure: ``model``, ``scheme``, ``manifest``, ``diff``, ``ignore``, ``rules``, ``wildmatch``.
Only ``root``, ``scan`` and what it is made of (``walk``, ``frames``, ``leaves``, ``reading``,
``mounts``) touch files.
"""
