"""The types of all requests and answers, and the endpoints that connect them with methods and paths.

`worker.http.api` gives each endpoint its handler; the client, the OpenAPI document and the viewer's types are made of
them. The module of an endpoint is that of its handler in `worker.http.routes`.
"""
