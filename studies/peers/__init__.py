"""The study of peers: methods that were published as better than cloning, beside the controls that may explain them."""
