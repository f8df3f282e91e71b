"""What the broker knows of the cluster, and its partitions: metadata, topics, configurations, leadership."""
