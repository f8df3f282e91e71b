"""The composition root: builds the real effects and wires everything together."""
