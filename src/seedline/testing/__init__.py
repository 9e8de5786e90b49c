"""Shipped for tests of whatever builds on Seedline: contracts, fakes, checks."""
