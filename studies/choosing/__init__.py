"""The study of choosing: do imagined rollouts tell which policy will do well?"""
