"""The model seam: what a request holds, what an answer is made of, and how a call may fail."""
