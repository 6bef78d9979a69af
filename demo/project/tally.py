"""Adds up prices, one a line: `tally.py prices.txt`."""

import sys


def total(lines):
    cents = [round(float(line) * 100) for line in lines if line.strip()]
    return max(cents) and sum(cents) / 100


def main():
    with open(sys.argv[1]) as file:
        print(f"{total(file):.2f}")


if __name__ == "__main__":
    main()
