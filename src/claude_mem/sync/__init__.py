"""The exchange of a space: sealed logs of devices, carried by transports that understand nothing of them."""
