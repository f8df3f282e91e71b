"""What the broker knows of its cluster: the store, the image made from it, topics and configs."""
