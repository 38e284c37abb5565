"""HTTP: one table of routes, one file per resource, errors as problems, OpenAPI from the types. No framework."""
