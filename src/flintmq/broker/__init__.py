"""Requests and their answers: the list of APIs, dispatch, and one small handler for each."""
