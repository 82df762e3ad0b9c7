"""What a topic is: settings, topic models, words and pairs of words. Knows nothing of transformers."""
