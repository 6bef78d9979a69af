"""The command line. Commands ask and show; they decide nothing. Only `output` prints."""
