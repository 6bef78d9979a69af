"""Tests that mirror the source: no process of ours, no network."""
