import unittest

from tally import total


class TestTotal(unittest.TestCase):
    def test_prices_are_added(self):
        self.assertEqual(total(["1.10", "2.20"]), 3.30)

    def test_no_prices_cost_nothing(self):
        self.assertEqual(total([]), 0)


if __name__ == "__main__":
    unittest.main()
