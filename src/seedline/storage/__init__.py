"""Where sessions lie when nobody runs them: the storage seam, its backends, and the files between them."""
