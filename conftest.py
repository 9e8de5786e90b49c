"""Which fixtures tests of several rooms share. What holds for every test stands in `tests/conftest.py`."""

pytest_plugins = ["seedline.testing.exemptions", "tests.postgres_server"]
