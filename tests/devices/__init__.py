"""Tests on hosts and devices that a machine may lack; ``make test-devices`` installs and asks for all of them."""
