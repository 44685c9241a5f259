"""The client's side of the wire: channel, errors, conversion, re-attachment.

Nothing outside this package and ``client.py`` knows gRPC.
"""
