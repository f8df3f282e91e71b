"""What a broker shows of itself: metrics, health, logs and profiles."""
