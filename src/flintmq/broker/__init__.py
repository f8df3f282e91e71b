"""Requests and their responses: the list of APIs, dispatch, and one small handler for each."""
