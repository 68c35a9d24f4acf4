"""Algorithms: networks, losses and learners. A learner takes rollouts, and knows no environment."""
