"""`make bench`: what Tailfold costs, beside no proxy, the barest one in Python, and nginx, in one run."""
