import pytest

from deploynas.space import Space


@pytest.fixture(scope="session")
def imagenet() -> Space:
    return Space.load("imagenet")
