"""The host's gRPC service: handlers, conversion, error mapping, server."""
