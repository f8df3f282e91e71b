"""Authorization: ACLs, and what a principal may do on which resource. Pure."""
