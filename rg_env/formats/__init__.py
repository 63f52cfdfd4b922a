"""Records of other programs, made into dumps."""
