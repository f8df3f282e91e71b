"""Tables of every format behind one protocol."""
