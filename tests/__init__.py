"""The tests; what helpers assert is explained by pytest as if a test had asserted it."""

import pytest

pytest.register_assert_rewrite("tests.support")
