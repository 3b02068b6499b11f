"""Importers: models of other tools become Relax modules. Each package here is one source format."""
