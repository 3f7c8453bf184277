"""Settings for all tests."""

from hypothesis import settings

# The machines that run the tests are shared, so a time limit per example would only be noise.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
