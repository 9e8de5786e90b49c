"""The tool seam: what a tool is told, what it answers, and in which order calls run."""
