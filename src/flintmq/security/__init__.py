"""Security decisions: principals and what they may do. Pure; nothing here knows a socket."""
