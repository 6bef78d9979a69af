#!/bin/sh
# The distribution's Chromium, installed if it isn't there: Playwright only drives it and downloads no browser.
set -eu
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" > /dev/null; then exit 0; fi
done
if ! command -v apt-get > /dev/null; then
  echo "the tests of the viewer need Chromium: install it so that \`chromium\` is on the PATH" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2> /dev/null; then
    echo "the tests of the viewer need Chromium: sudo apt-get install chromium fonts-dejavu-core" >&2
    exit 1
  fi
  as_root="sudo -n"
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null
