"""Kills, power loss, I/O errors, clocks, damage, full disks, processes."""
