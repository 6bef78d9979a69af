"""HTTP: authentication, limits, routes and the OpenAPI document."""
